"""``--mcp``: the tools of MCP servers for a model that has none of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from trioagent.agent import Agent
from trioagent.cli.application import ApplicationError
from trioagent.cli.ending import describe


@asynccontextmanager
async def with_servers(agent: Agent, servers: Sequence[str]) -> AsyncIterator[Agent]:
    """`agent` with the tools of `servers`, each an address or a command, while the block lasts.

    Raises:
        ApplicationError: the extra is not installed.
        McpError: a server does not start.
        ValueError: two tools have one name.
    """
    if not servers:
        yield agent
        return
    try:
        from trioagent.mcp import open_mcp
    except ImportError as exc:
        raise ApplicationError(
            f"{describe(exc)}; --mcp needs the extra: pip install 'trioagent[mcp]'"
        ) from exc
    async with AsyncExitStack() as stack:
        tools = list(agent.tools.values())
        for server in servers:
            if server.startswith(("http://", "https://")):
                tools += await stack.enter_async_context(open_mcp(url=server))
            else:
                tools += await stack.enter_async_context(open_mcp(command=server))
        # With --model an agent has nothing that is not named here.
        yield Agent(
            agent.provider,
            tools=tools,
            system=agent.system,
            max_iter=agent.max_iter,
            budget=agent.budget,
        )
