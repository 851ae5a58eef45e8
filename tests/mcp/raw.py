"""An MCP server that writes what it is told to, well-formed or not: ``python -m tests.mcp.raw``.

It speaks by hand, so that it can do what no SDK lets a server do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

NAMES = ["say", "flood", "hang", "pid", "stubborn", "mute", "deaf", "orphan"]


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def reply(id: int, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")


def said(id: int, text: str) -> None:
    reply(id, {"content": [{"type": "text", "text": text}], "resultType": "complete"})


def called(id: int, name: str, given: dict[str, Any]) -> None:
    match name:
        case "say":
            for line in given["lines"]:
                write(line.replace("@ID", str(id)) + "\n")
        case "flood":
            for _ in range(given["megabytes"]):
                write("x" * 1_000_000)
            said(id, "flooded")
        case "hang":
            write('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n')
        case "pid":
            said(id, str(os.getpid()))
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            said(id, str(os.getpid()))
            while True:
                time.sleep(3600)
        case "mute":
            print("said no more", file=sys.stderr, flush=True)
            os.close(1)
        case "deaf":
            os.close(0)
            said(id, "deaf")
            time.sleep(3600)
        case "orphan":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            print("left a child", file=sys.stderr, flush=True)
            os._exit(3)


def main() -> None:
    if "chatty" in sys.argv:
        write("Starting up...\n\n{not json\n[1, 2]\n")
    for line in sys.stdin:
        message = json.loads(line)
        match message["method"]:
            case "initialize" if {"refusing", "modern"} & set(sys.argv):
                error = {"code": -32603, "message": "not today"}
                write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}) + "\n")
            case "initialize":
                info = {"name": "raw", "version": "1"}
                version = message["params"]["protocolVersion"]
                capabilities = {} if "toolless" in sys.argv else {"tools": {}}
                reply(
                    message["id"],
                    {
                        "protocolVersion": version,
                        "capabilities": capabilities,
                        "serverInfo": info,
                        "instructions": "Be careful.",
                    },
                )
            case "tools/list":
                listed = next((word for word in sys.argv if word.startswith("[")), None)
                schema = {"type": "object"}
                tools = [{"name": name, "inputSchema": schema} for name in NAMES]
                result = {"tools": tools if listed is None else json.loads(listed)}
                if "modern" in sys.argv:
                    result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
                reply(message["id"], result)
            case "tools/call":
                params = message["params"]
                called(message["id"], params["name"], params.get("arguments", {}))
            case "server/discover" if "modern" in sys.argv:
                reply(
                    message["id"],
                    {
                        "supportedVersions": ["2026-07-28"],
                        "capabilities": {"tools": {}},
                        "resultType": "complete",
                        "ttlMs": 0,
                        "cacheScope": "private",
                    },
                )
            case "server/discover":
                error = {"code": -32601, "message": "no such method"}
                write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}) + "\n")


if __name__ == "__main__":
    main()
