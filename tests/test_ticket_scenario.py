"""The ticket scenario: one run over five processes, two of which are killed, and a real server."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.chat_server import JSON, Reply, calls, chat_server, says
from tests.journal.children import child
from tests.journal.killed import noted
from trioagent import Applied, open_journal
from trioagent.gate import default_marker
from trioagent.messages import ToolCall

LOOKUP = ("call_a", "lookup", {"customer": "Ada"})
TICKET = ("call_b", "create_ticket", {"title": "Router X1 is broken"})
STEP = "tool/2/0/create_ticket"


def reply(body: JSON) -> Reply:
    """What the model says, from what it was sent alone."""
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if not results:
        return calls(LOOKUP)
    if len(results) == 1:
        return calls(TICKET)
    return says("Your ", "ticket: ", str(results[1]))


async def test_a_run_over_five_processes_asks_three_times_looks_up_twice_and_files_once(
    tmp_path: Path,
) -> None:
    async with chat_server(reply) as server, open_journal(tmp_path / "runs.db") as journal:

        async def attempt(fatal: str = "nowhere") -> str:
            async with child("ticket", tmp_path, server.base_url, fatal) as process:
                line = await process.says()
                expected = 0 if fatal == "nowhere" else -signal.SIGKILL
                assert await process.process.wait() == expected
                return line

        assert await attempt("lookup") == ""
        assert (await journal.view("ticket")).status == "interrupted"

        marker = default_marker(ToolCall("", TICKET[1], '{"title":"Router X1 is broken"}'))
        assert await attempt() == f"suspended {STEP} {marker}"
        assert noted(tmp_path, "tickets") == []
        assert (await journal.view("ticket")).status == "suspended"

        await journal.approve("ticket", marker)
        assert await attempt("filed") == ""

        assert await attempt() == f"in doubt {STEP}"
        (doubt,) = await journal.doubts()
        assert (doubt.run_id, doubt.step, doubt.attempt) == ("ticket", STEP, 1)
        assert doubt.call is not None
        assert (doubt.call.id, doubt.call.name) == ("call_b", "create_ticket")

        await journal.resolve("ticket", STEP, Applied("T-17, found in the tracker"))
        answer = "Your ticket: T-17, found in the tracker"
        assert await attempt() == f"answered {answer}"

        view = await journal.view("ticket")
        sent = [request.body["messages"] for request in server.requests]
    assert len(sent) == 3
    assert noted(tmp_path, "tickets") == ["Router X1 is broken"]
    assert noted(tmp_path, "lookups") == ["Ada", "Ada"]
    assert sent[2][-1]["role"] == "tool"
    assert sent[2][-1]["content"] == "T-17, found in the tracker"
    assert sent[2][: len(sent[1])] == sent[1]
    assert view.status == "answered"
    assert view.transcript[-1].text == answer  # type: ignore[union-attr]
    assert {step.name: step.by for step in view.steps} == {
        "llm/1": "",
        "tool/1/0/lookup": "",
        "llm/2": "",
        STEP: "resolved",
        "llm/3": "",
    }
