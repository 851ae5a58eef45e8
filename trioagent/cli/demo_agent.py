"""The demo's application: an agent that reports on a folder, its tools and its scripted model.

Nothing in here knows that processes die, but for the two places where a `Fate` is asked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from trioagent.agent import Agent
from trioagent.cli.application import Source
from trioagent.cli.demo_folder import Folder
from trioagent.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, Usage
from trioagent.provider import Emit, Provider, Request
from trioagent.providers import Scripted
from trioagent.steps import Applied, NotApplied, Resolution
from trioagent.tools import ToolContext, tool

RUN_ID = "demo"
PROMPT = "Report on this folder: what is in it?"
SYSTEM = (
    "List the folder with list_folder, read several files at once with read_file, append your "
    "findings to the report with append_report once, then answer in one or two sentences."
)

FILES_READ = 6
"""Files that the scripted model reads."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of the demo is told.

    `act` counts processes from 1; `crash` is where this one dies, ``reading``, ``writing`` or
    ``""``; `victim` is which read it dies in, from 1; with `reconcile` the write has one.
    """

    folder: str
    keep: str
    act: int
    crash: str = ""
    victim: int = 1
    reconcile: bool = False
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return Path(self.keep, "runs.db")

    @property
    def report(self) -> Path:
        """The file that the agent writes."""
        return Path(self.keep, "report.md")

    @property
    def ledger(self) -> Path:
        """What really ran, written by the tools and the model themselves."""
        return Path(self.keep, "ledger.jsonl")


class Entry(msgspec.Struct, frozen=True):
    """A line of the ledger: in act `act`, `what` (``model`` or a tool) began, as `step`; of a
    write, `key` is its idempotency key."""

    act: int
    what: str
    step: str = ""
    key: str = ""


class Fate(Protocol):
    """Where the process may die."""

    async def in_read(self) -> None:
        """A read has begun."""
        ...

    def after_write(self) -> None:
        """A write has taken effect and is not recorded yet."""
        ...


def demo_agent(setup: Setup, fate: Fate) -> Agent:
    """The agent of one process."""
    folder = Folder(Path(setup.folder), without=Path(setup.keep))

    def ran(what: str, step: str = "", key: str = "") -> None:
        _append(setup.ledger, msgspec.json.encode(Entry(setup.act, what, step, key)) + b"\n")

    @tool(effect="read")
    def list_folder(context: ToolContext) -> list[dict[str, Any]]:
        """The folder's text files: path and size in bytes."""
        ran("list_folder", context.step)
        return [{"path": path, "bytes": size} for path, size in folder.files()]

    @tool(effect="read")
    async def read_file(path: str, context: ToolContext) -> str:
        """The text of one file, by its path as list_folder gives it."""
        ran("read_file", context.step)
        await fate.in_read()
        return await trio.to_thread.run_sync(folder.read, path)

    def look_into_report(arguments: dict[str, Any], key: str) -> Resolution:
        # An application knows best how to find out; here the key is written with the entry.
        if times_in_report(setup.report, key):
            return Applied(_APPENDED)
        return NotApplied(by="the report, which has no entry with this key")

    @tool(effect="write", reconcile=look_into_report if setup.reconcile else None)
    def append_report(text: str, context: ToolContext) -> str:
        """Append findings to the report."""
        ran("append_report", context.step, context.idempotency_key)
        _append(setup.report, f"{text}\n\n<!-- key {context.idempotency_key} -->\n".encode())
        fate.after_write()
        return _APPENDED

    provider = _Counted(_provider(setup), lambda: ran("model"))
    return Agent(provider, tools=[list_folder, read_file, append_report], system=SYSTEM)


_APPENDED = "appended to the report"


def times_in_report(report: Path, key: str) -> int:
    """How many entries of the report have this idempotency key."""
    return report.read_text().count(key) if report.exists() else 0


def _append(path: Path, data: bytes) -> None:
    """Append in one write, on the disk before it returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- the model ------------------------------------------------------------------------------------


class _Counted:
    """A model that says when it is called."""

    def __init__(self, provider: Provider, called: Any) -> None:
        self._provider = provider
        self._called = called

    @property
    def model(self) -> str:
        return self._provider.model

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        self._called()
        return await self._provider.complete(request, emit)


def _provider(setup: Setup) -> Provider:
    if setup.model is None:
        return Scripted(scripted_reply)
    source = Source(model=setup.model, base_url=setup.base_url, api_key_env=setup.api_key_env)
    return source.provider()


def scripted_reply(messages: tuple[Message, ...]) -> AssistantMessage:
    """What the scripted model says to `messages`: it decides by what it has read so far, so it
    says the same in whichever process it is asked."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    of_tool = {message.name: message for message in results}
    if "append_report" in of_tool:
        return _says(f"I read {_files_read(results)} files and wrote what I found to the report.")
    if "read_file" in of_tool:
        return _says("Now the report.", ("append_report", {"text": _findings(messages)}))
    if "list_folder" in of_tool:
        paths = [found["path"] for found in json.loads(of_tool["list_folder"].text)]
        reads = [("read_file", {"path": path}) for path in paths[:FILES_READ]]
        return _says("I read several files at once.", *reads)
    return _says("First I look at what there is.", ("list_folder", {}))


def _says(text: str, *calls: tuple[str, dict[str, Any]]) -> AssistantMessage:
    made = [ToolCall("", name, json.dumps(arguments)) for name, arguments in calls]
    return AssistantMessage((Text(text), *made), Usage(input_tokens=100, output_tokens=20))


def _files_read(results: list[ToolMessage]) -> int:
    return len([message for message in results if message.name == "read_file"])


def _findings(messages: tuple[Message, ...]) -> str:
    """A line for each file that was read, and the one with the most words."""
    paths = {
        call.id: str(json.loads(call.arguments)["path"])
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
        if call.name == "read_file"
    }
    words: dict[str, int] = {}
    lines = ["# What is in the folder", ""]
    for message in messages:
        if isinstance(message, ToolMessage) and message.call_id in paths:
            path, text = paths[message.call_id], message.text
            words[path] = len(text.split())
            lines.append(f"- {path}: {len(text.splitlines())} lines, {words[path]} words")
    longest = max(words, key=lambda path: words[path])
    return "\n".join([*lines, "", f"Most words are in {longest}."])
