"""Forks and follow-ups: runs that begin where another one stands, and copy nothing of it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.scripts import MAIL_MARKER, QUESTION, ByName, call, calling, saying, tool_texts
from trioagent import (
    Agent,
    Answered,
    Applied,
    Halted,
    Journal,
    NeedApproval,
    Suspended,
    UserMessage,
    open_journal,
)
from trioagent.errors import (
    JournalCorruptError,
    JournalError,
    ReplayMismatchError,
    UnknownOutcomeError,
)
from trioagent.journal import sqlite, verify
from trioagent.journal.records import Record, Started, write_data
from trioagent.messages import SystemMessage
from trioagent.providers import Scripted

from .acts import World, alter, by_turn, leave_open, rows

TURNS = (
    calling(call("read", {"what": "a"}, id="1")),
    calling(call("write", {"what": "b"}, id="2"), call("write", {"what": "c"}, id="3")),
    calling(call("write", {"what": "d"}, id="4")),
    saying("done"),
)


def agent(world: World, model: Scripted | None = None, **options: object) -> Agent:
    tools = [world.doing("read", "read"), world.doing("write", "write")]
    return Agent(model or by_turn(*TURNS), tools=tools, **options)  # type: ignore[arg-type]


async def answered(journal: Journal, run_id: str = "run") -> World:
    world = World()
    async with journal.claim(run_id) as run:
        assert isinstance(await agent(world).run("go", step_runner=run), Answered)
    return world


# -- forks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [0, 1, 2, 3, 4])
async def test_a_fork_replays_the_turns_it_keeps_and_runs_the_rest(
    journal: Journal, turn: int
) -> None:
    first = await answered(journal)
    before = await journal.view("run")
    forked = await journal.fork("run", "new", at_turn=turn)
    assert (forked.run_id, forked.of, forked.at_turn) == ("new", "run", turn)
    later = ["tool/2/0/write", "tool/2/1/write", "tool/3/0/write"]
    kept = {0: 0, 1: 0, 2: 2, 3: 3, 4: 3}[turn]
    assert sorted([step.name for step in forked.later_writes]) == later[kept:]
    world, model = World(), by_turn(*TURNS)
    async with journal.claim("new") as run:
        state = await agent(world, model).run(step_runner=run)
    assert state.unwrap().text == "done"
    assert len(model.requests) == 4 - turn
    done = {0: 0, 1: 1, 2: 3, 3: 4, 4: 4}[turn]
    assert sorted(world.did) == sorted(first.did)[done:]  # parallel writes end in any order
    after, view = await journal.view("run"), await journal.view("new")
    assert after == before
    assert (view.forked_from, view.at_turn) == ("run", turn)
    assert view.transcript == before.transcript
    assert (await verify(journal.path)).ok


async def test_a_fork_copies_no_record(journal: Journal) -> None:
    await answered(journal)
    count = len(rows(journal.path))
    await journal.fork("run", "new", at_turn=3)
    assert len(rows(journal.path)) == count + 1


async def test_a_fork_has_idempotency_keys_of_its_own(journal: Journal) -> None:
    await leave_open(journal, "plain", "load")
    (plain,) = await journal.doubts()
    with pytest.raises(JournalError, match="no agent's run"):
        await journal.resolve("plain", "load", Applied(None))
        await journal.fork("plain", "other", at_turn=0)
    await answered(journal)
    await journal.fork("run", "new", at_turn=1)
    nonces = {(await fold_of(journal, name)) for name in ("run", "new", "plain")}
    assert len(nonces) == 3
    assert plain.key not in nonces


async def fold_of(journal: Journal, run_id: str) -> bytes:
    from trioagent.journal.fold import fold

    return fold(await journal.records(run_id)).nonce


async def test_another_prompt_needs_to_be_accepted_in_a_fork_as_anywhere(journal: Journal) -> None:
    await answered(journal)
    await journal.fork("run", "new", at_turn=1)
    other = agent(World(), system="be brief")
    with pytest.raises(ReplayMismatchError, match="system"):
        async with journal.claim("new") as run:
            await other.run(step_runner=run)
    async with journal.claim("new") as run:
        state = await other.run(step_runner=run, accept_changes=True)
    assert isinstance(state, Answered)
    assert isinstance(state.transcript[0], SystemMessage)


@pytest.mark.parametrize(("turn", "why"), [(5, "not there"), (9, "not there"), (-1, "from 0")])
async def test_a_turn_that_is_not_there_is_refused_and_nothing_changes(
    journal: Journal, turn: int, why: str
) -> None:
    await answered(journal)
    before = rows(journal.path), rows(journal.path, "runs")
    with pytest.raises((JournalError, ValueError), match=why):
        await journal.fork("run", "new", at_turn=turn)
    assert (rows(journal.path), rows(journal.path, "runs")) == before


async def test_a_taken_id_and_an_unknown_run_are_refused(journal: Journal) -> None:
    await answered(journal)
    with pytest.raises(JournalError, match="there is a run 'run' already"):
        await journal.fork("run", "run", at_turn=1)
    with pytest.raises(LookupError, match="no run 'lost'"):
        await journal.fork("lost", "new", at_turn=1)
    with pytest.raises(ValueError, match="a run id is"):
        await journal.fork("run", "../new", at_turn=1)


async def test_a_write_in_doubt_before_the_cut_refuses_the_fork(journal: Journal) -> None:
    async with journal.claim("run") as run:
        await agent(World(), max_iter=2).run("go", step_runner=run)
    await leave_open(journal, "run", "load")
    with pytest.raises(UnknownOutcomeError, match="load"):
        await journal.fork("run", "new", at_turn=2)
    await journal.fork("run", "earlier", at_turn=1)  # the doubt came behind this cut
    await journal.resolve("run", "load", Applied(None))
    await journal.fork("run", "new", at_turn=2)


async def test_decisions_behind_the_cut_are_dropped(journal: Journal) -> None:
    mail = {"body": "hi", "to": "bob@corp.example"}
    model = by_turn(TURNS[0], calling(call("send_email", mail)), saying("sent"))
    world = World()

    def mailing() -> Agent:
        def send(body: str, to: str) -> str:
            world.did.append("send")
            return "sent"

        send.__name__ = "send_email"
        gate = ByName(send_email=NeedApproval("mail leaves"))
        return Agent(model, tools=[world.doing("read", "read"), send], gate=gate)

    async with journal.claim("run") as run:
        assert isinstance(await mailing().run("go", step_runner=run), Suspended)
    await journal.approve("run", MAIL_MARKER)
    await journal.fork("run", "new", at_turn=1)
    async with journal.claim("new") as run:
        assert isinstance(await mailing().run(step_runner=run), Suspended)
    assert "send" not in world.did
    async with journal.claim("run") as run:
        assert isinstance(await mailing().run(step_runner=run), Answered)
    assert [pending.run_id for pending in await journal.pending()] == ["new"]


async def test_a_fork_of_a_fork_and_of_a_run_that_is_owned(journal: Journal) -> None:
    async with journal.claim("run") as run:
        assert isinstance(await agent(World(), max_iter=2).run("go", step_runner=run), Halted)
        await journal.fork("run", "new", at_turn=2)
    await journal.fork("new", "newer", at_turn=1)
    for name in ("run", "new", "newer"):
        async with journal.claim(name) as run:
            state = await agent(World()).run(step_runner=run)
            assert tool_texts(state.transcript)[-1] == "did write d"
    assert (await verify(journal.path)).ok
    async with open_journal(journal.path) as again:
        assert (await again.view("newer")).forked_from == "new"


# -- follow-ups -----------------------------------------------------------------------------------


def talker(*answers: str, system: str = "") -> Agent:
    return Agent(by_turn(*[saying(answer) for answer in answers]), system=system)


async def test_a_follow_up_knows_what_was_said_and_copies_nothing(journal: Journal) -> None:
    talking = talker("sunny", "rainy", system="be brief")
    async with journal.claim("first") as run:
        await talking.run(QUESTION, step_runner=run)
    count = len(rows(journal.path))
    async with journal.claim("second", after="first") as run:
        state = await talking.run("And in Rome?", step_runner=run)
    assert state.unwrap().text == "rainy"
    roles = [type(message).__name__ for message in state.transcript]
    assert roles == [
        "SystemMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
    ]
    assert len(rows(journal.path)) == count + 5  # followed, started, intent, outcome, completed
    view = await journal.view("second")
    assert view.follows == "first"
    assert view.transcript == state.transcript
    assert [step.name for step in view.steps] == ["llm/1"]
    assert (await journal.view("first")).transcript == state.transcript[:3]
    assert (await verify(journal.path)).ok


async def test_a_follow_up_is_replayed_and_its_input_compared(journal: Journal) -> None:
    talking = talker("sunny", "rainy")
    async with journal.claim("first") as run:
        await talking.run(QUESTION, step_runner=run)
    async with journal.claim("second", after="first") as run:
        await talking.run("And in Rome?", step_runner=run)
    silent = Agent(Scripted([]))
    async with journal.claim("second") as run:
        assert (await silent.run(step_runner=run)).unwrap().text == "rainy"
    async with journal.claim("second", after="first") as run:
        assert (await silent.run("And in Rome?", step_runner=run)).unwrap().text == "rainy"


async def test_a_follow_up_counts_its_limits_from_its_own_question(journal: Journal) -> None:
    await answered(journal)
    turns = (*TURNS, calling(call("read", {"what": "z"}, id="9")), saying("more"))
    async with journal.claim("next", after="run") as run:
        state = await agent(World(), by_turn(*turns), max_iter=2).run("go on", step_runner=run)
    assert state.unwrap().text == "more"
    assert [step.name for step in (await journal.view("next")).steps] == [
        "llm/1",
        "tool/1/0/read",
        "llm/2",
    ]


async def test_only_an_answered_run_has_a_question_after_it(journal: Journal) -> None:
    async with journal.claim("run") as run:
        await agent(World(), max_iter=1).run("go", step_runner=run)
    before = rows(journal.path), rows(journal.path, "runs")
    with pytest.raises(JournalError, match="run is halted; only a run that is answered"):
        async with journal.claim("next", after="run"):
            pass
    with pytest.raises(LookupError):
        async with journal.claim("next", after="lost"):
            pass
    assert (rows(journal.path), rows(journal.path, "runs")) == before


async def test_a_run_follows_one_run_for_ever(journal: Journal) -> None:
    for name in ("a", "b"):
        async with journal.claim(name) as run:
            await talker("yes").run("?", step_runner=run)
    async with journal.claim("c", after="a"):
        pass
    with pytest.raises(JournalError, match="c is there already and follows a, not b"):
        async with journal.claim("c", after="b"):
            pass
    with pytest.raises(JournalError, match="b is there already and follows no other, not a"):
        async with journal.claim("b", after="a"):
            pass
    async with journal.claim("c") as run:  # which is not owned for that
        assert (await talker("yes", "no").run("!", step_runner=run)).unwrap().text == "no"


async def test_a_long_conversation_is_read_without_recursion(journal: Journal) -> None:
    count = 120
    talking = talker(*[f"answer {i}" for i in range(count)])
    for i in range(count):
        async with journal.claim(f"q-{i}", after=f"q-{i - 1}" if i else None) as run:
            state = await talking.run(f"question {i}", step_runner=run)
    assert len(state.transcript) == 2 * count
    assert (await journal.view(f"q-{count - 1}")).transcript == state.transcript


async def test_a_fork_of_a_follow_up_keeps_the_conversation(journal: Journal) -> None:
    await answered(journal)
    turns = (*TURNS, calling(call("read", {"what": "z"}, id="9")), saying("more"))
    async with journal.claim("next", after="run") as run:
        await agent(World(), by_turn(*turns)).run("go on", step_runner=run)
    await journal.fork("next", "other", at_turn=1)
    other = (*turns[:-1], saying("otherwise"))
    async with journal.claim("other") as run:
        state = await agent(World(), by_turn(*other)).run(step_runner=run)
    assert state.unwrap().text == "otherwise"
    assert len([m for m in state.transcript if isinstance(m, UserMessage)]) == 2


# -- the file -------------------------------------------------------------------------------------


async def test_what_a_branch_stands_on_is_not_pruned_before_it(journal: Journal) -> None:
    await answered(journal)
    await journal.fork("run", "new", at_turn=2)
    async with journal.claim("new") as run:
        await agent(World()).run(step_runner=run)
    expected = (await journal.view("new")).transcript
    pruned = await journal.prune(keep=1)
    assert pruned.runs == ()
    assert (await journal.view("new")).transcript == expected
    assert (await journal.prune(keep=0)).runs == ("new",)
    assert (await verify(journal.path)).ok
    assert (await journal.prune(keep=0)).runs == ("run",)
    assert rows(journal.path) == []
    assert (await verify(journal.path)).ok


async def test_a_chain_that_leads_into_another_run_without_a_branch_is_damage(
    journal: Journal,
) -> None:
    await answered(journal)
    await journal.fork("run", "new", at_turn=2)
    alter(journal.path, "UPDATE records SET tag = 'changed' WHERE tag = 'forked'")
    with pytest.raises(JournalCorruptError):
        await journal.view("new")
    assert not (await verify(journal.path)).ok


async def test_a_branch_of_another_run_than_it_says_is_found(journal: Journal) -> None:
    await answered(journal)
    await answered(journal, "other")
    await journal.fork("run", "new", at_turn=2)
    alter(journal.path, "UPDATE runs SET parent = 2 WHERE id = 'new'")
    report = await verify(journal.path)
    assert ["branched from another run" in fault for fault in report.faults] == [True]


async def test_a_journal_of_version_1_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = apsw.Connection(str(path))
    connection.execute(sqlite.MIGRATIONS[0]).fetchall()
    connection.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO runs (id, epoch, last) VALUES ('old', 1, 0)")
    run = sqlite.RunRow(1, "old", 1, 0)
    sqlite.append(
        connection, run, Record("run.started", 1, 1, "", "", write_data(Started(b"n" * 16)))
    )
    connection.close()
    async with open_journal(path) as journal:
        assert [one.run_id for one in await journal.runs()] == ["old"]
        async with journal.claim("old") as claimed:
            assert await claimed.step("s", lambda: 1, effect="read") == 1
    assert (await verify(path)).ok
