"""``run --model``: a model behind a real HTTP server on the loopback interface."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from tests import chat_server
from tests.cli.command import Command, Ran
from tests.providers.wires import ANTHROPIC, CHAT, RESPONSES, Wire

KEY = "sk-a-key-that-nobody-may-see"


async def ran(command: Command, *arguments: str, **environment: str) -> Ran:
    """Run the command beside a server in this process."""
    done: subprocess.CompletedProcess[bytes] = await trio.run_process(
        command.words(*arguments),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=command.folder,
        env=command.environment(**environment),
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("kind", "wire"), [("openai", CHAT), ("responses", RESPONSES), ("anthropic", ANTHROPIC)]
)
async def test_a_model_answers_over_http_and_its_key_is_sent_but_not_shown(
    kind: str, wire: Wire, command: Command, tmp_path: Path
) -> None:
    async with chat_server.chat_server(lambda body: wire.says("Good ", "day.")) as server:
        done = await ran(
            command,
            *("run", "Hello.", "--model", f"{kind}:tiny", "--base-url", server.base_url),
            *("--system", "Be kind.", "--run-id", "a", "--api-key-env", "MY_KEY"),
            MY_KEY=KEY,
        )
    assert (done.code, done.out) == (0, "Good day.\n")
    (request,) = server.requests
    header = request.headers.get("authorization", request.headers.get("x-api-key", ""))
    assert (request.path, header.removeprefix("Bearer ")) == (wire.path, KEY)
    assert request.body["model"] == "tiny"
    assert "Be kind." in str(request.body)
    assert KEY not in done.out + done.err
    assert KEY.encode() not in (tmp_path / "runs.db").read_bytes()


async def test_a_run_that_the_server_failed_goes_on_by_the_command_that_it_names(
    command: Command,
) -> None:
    replies: list[Any] = [
        chat_server.fails(401, f"wrong key {KEY}"),
        chat_server.says("Good day."),
    ]
    async with chat_server.chat_server(lambda body: replies.pop(0)) as server:
        failed = await ran(
            command,
            *("run", "Hello.", "--model", "openai:tiny", "--base-url", server.base_url),
            *("--system", "Be kind.", "--run-id", "a", "--json"),
            OPENAI_API_KEY=KEY,
        )
        end = failed.lines[-1]
        assert (failed.code, end["status"]) == (1, "failed")
        assert end["error"]["type"] == "AuthenticationError"
        assert KEY not in failed.out + failed.err
        (resume,) = end["next"]
        words = resume.split()
        assert "Be kind." not in resume, "the system prompt is taken from the record"
        again = await ran(command, *words[1:], OPENAI_API_KEY=KEY)
    assert (again.code, again.out) == (0, "Good day.\n")
    assert json.dumps(server.requests[-1].body["messages"]).count("Be kind.") == 1


async def test_a_server_of_ones_own_may_want_no_key(command: Command) -> None:
    async with chat_server.chat_server(lambda body: chat_server.says("Hi.")) as server:
        done = await ran(
            command, "run", "Hello.", "--model", "openai:tiny", "--base-url", server.base_url
        )
    assert (done.code, done.out) == (0, "Hi.\n")
    assert "authorization" not in server.requests[0].headers


async def test_the_demo_takes_a_real_model(command: Command, tmp_path: Path) -> None:
    """The server says what the scripted model would, one read a turn: another course of events."""
    (tmp_path / "texts").mkdir()
    for number in range(3):
        (tmp_path / "texts" / f"{number}.txt").write_text("word\n")

    def reply(body: dict[str, Any]) -> chat_server.Reply:
        asked = sum(message["role"] == "assistant" for message in body["messages"])
        turns = [
            ("list_folder", {}),
            ("read_file", {"path": "0.txt"}),
            ("read_file", {"path": "1.txt"}),
            ("append_report", {"text": "three files"}),
        ]
        if asked == len(turns):
            return chat_server.says("Reported.")
        return chat_server.calls((f"c{asked}", *turns[asked]))

    async with chat_server.chat_server(reply) as server:
        done = await ran(
            command,
            *("demo", "texts", "--keep", "kept", "--model", "openai:tiny"),
            *("--base-url", server.base_url),
        )
    assert (done.code, done.err) == (0, "")
    assert "  true   5 model calls made, 5 needed" in done.out
    assert len(server.requests) == 5
