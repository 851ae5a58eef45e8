"""Tools of MCP servers, for an `Agent` (extra ``mcp``, the official SDK).

async with open_mcp(command=["mcp-server-time"]) as tools:
    agent = Agent(provider, tools=[*tools, mine])
"""

from __future__ import annotations

from trioagent.mcp.connection import McpError
from trioagent.mcp.opening import McpTools, open_mcp
from trioagent.mcp.tools import McpLimits, McpTool

__all__ = ["McpError", "McpLimits", "McpTool", "McpTools", "open_mcp"]
