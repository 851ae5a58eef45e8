"""One owner a run: in this process, across processes, after a death and after a take-over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import trio

from trioagent import (
    Applied,
    FencedError,
    Journal,
    NotApplied,
    RunOwnedError,
    UnknownOutcomeError,
    open_journal,
)

from .acts import refused, rows
from .children import child


async def take(journal: Journal, run_id: str = "run") -> None:
    """Claim and let go."""
    async with journal.claim(run_id):
        pass


async def test_a_second_claim_in_the_same_process_is_refused(journal: Journal) -> None:
    """dbos-transact-java#491, dbos-transact-py#742: a live run is not taken, and nothing runs."""
    async with journal.claim("run") as run:
        await run.step("one", lambda: 1)
        before = rows(journal.path, "runs")
        await refused(take(journal), RunOwnedError, journal.path)
        assert rows(journal.path, "runs") == before
        await run.step("two", lambda: 2)
    await take(journal)


async def test_a_second_claim_through_another_opening_or_a_link_is_refused(
    journal: Journal, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(journal.path)
    async with journal.claim("run"):
        for path in (journal.path, link):
            async with open_journal(path) as other:
                await refused(take(other), RunOwnedError, journal.path)
        await refused(take(journal), RunOwnedError, journal.path)
    async with open_journal(link) as other, other.claim("run"):
        await refused(take(journal), RunOwnedError, journal.path)


async def test_another_process_is_refused_while_a_run_is_owned_and_not_after(
    journal: Journal, tmp_path: Path
) -> None:
    async with child("child", journal.path) as other:
        async with journal.claim("run") as run:
            await run.step("one", lambda: 1)
            assert await other.do("claim run") == "RunOwnedError"
            assert await other.do("status run") == "running"
        assert await other.do("claim run") == "ok"
        await refused(take(journal), RunOwnedError, journal.path)
        assert await other.do("release") == "ok"
        await take(journal)


async def test_a_run_is_still_owned_when_another_opening_of_its_process_was_closed(
    journal: Journal,
) -> None:
    """Closing any descriptor of a file drops a process's locks on it, SQLite's own too."""
    async with child("child", journal.path) as other, journal.claim("run") as run:
        async with open_journal(journal.path):
            pass
        assert await other.do("claim run") == "RunOwnedError"
        assert await other.do("reopen") == "ok"
        await run.step("one", lambda: 1)
        assert await other.do("reopen") == "ok"
        assert await other.do("status run") == "running"
        async with child("child", journal.path) as third:
            assert await third.do("status run") == "running"


async def test_a_run_whose_owner_was_killed_is_claimed_at_once_and_its_write_stays_in_doubt(
    journal: Journal,
) -> None:
    """pikku#1544"""
    async with child("child", journal.path) as other:
        assert await other.do("claim run") == "ok"
        assert await other.do("step one") == "ok"
        await other.tell("stuck two")
        assert await other.says() == "in two"
        assert await journal.doubts() == []
        await other.kill()
    (doubt,) = await journal.doubts()
    assert (doubt.run_id, doubt.step, doubt.attempt) == ("run", "two", 1)
    assert (await journal.view("run")).status == "in_doubt"
    ran: list[str] = []
    async with journal.claim("run") as run:
        assert await run.step("one", lambda: ran.append("one")) == "written"
        with pytest.raises(UnknownOutcomeError) as caught:
            await run.step("two", ran.append, "two")
    assert caught.value.step == "two"
    assert ran == []


async def test_a_write_is_not_resolved_while_its_run_is_owned(journal: Journal) -> None:
    async with child("child", journal.path) as other:
        assert await other.do("claim run") == "ok"
        await other.tell("stuck one")
        assert await other.says() == "in one"
        for resolution in (Applied("x"), NotApplied("me")):
            await refused(journal.resolve("run", "one", resolution), RunOwnedError, journal.path)
        await other.kill()
    async with journal.claim("run"):
        await refused(journal.resolve("run", "one", Applied("x")), RunOwnedError, journal.path)
    await journal.resolve("run", "one", Applied("x"))
    assert await journal.doubts() == []


async def test_an_owner_in_the_same_process_that_was_taken_over_records_nothing_more(
    journal: Journal,
) -> None:
    """tensorzero/durable#68: ownership lost, then an outcome: refused."""
    entered, go = trio.Event(), trio.Event()
    fenced: list[Exception] = []

    async def body() -> str:
        entered.set()
        await go.wait()
        return "written"

    async def hung() -> None:
        try:
            async with journal.claim("run") as run:
                await run.step("one", lambda: 1)
                await run.step("two", body)
        except FencedError as exc:
            fenced.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hung)
        await entered.wait()
        async with journal.claim("run", take_over=True) as run:
            (doubt,) = await journal.doubts()
            assert doubt.step == "two"
            assert (await journal.view("run")).status == "in_doubt"
            before = rows(journal.path)
            go.set()
            while not fenced:
                await trio.lowlevel.checkpoint()
            assert rows(journal.path) == before
            assert await run.step("one", lambda: 2) == 1
            with pytest.raises(UnknownOutcomeError):
                await run.step("two", body)


async def test_a_stopped_owner_that_was_taken_over_and_continued_records_nothing(
    journal: Journal,
) -> None:
    async with child("child", journal.path) as other:
        assert await other.do("claim run") == "ok"
        await other.tell("stuck one")
        assert await other.says() == "in one"
        other.process.send_signal(signal.SIGSTOP)
        await refused(take(journal), RunOwnedError, journal.path)
        async with journal.claim("run", take_over=True) as run:
            with pytest.raises(UnknownOutcomeError):
                await run.step("one", lambda: "again")
        (doubt,) = await journal.doubts()
        assert doubt.step == "one"
        before = rows(journal.path)
        other.process.send_signal(signal.SIGCONT)
        await other.tell("go on")
        assert await other.says() == "FencedError"
        assert await other.do("step two") == "FencedError"
        assert rows(journal.path) == before
        await journal.resolve("run", "one", NotApplied("somebody looked"))
        async with journal.claim("run") as run:
            assert await run.step("one", lambda: "mine") == "mine"


async def test_a_journal_opened_before_a_fork_is_refused_in_the_child_and_the_parent_goes_on(
    tmp_path: Path,
) -> None:
    async with child("forked", tmp_path / "runs.db") as parent:
        for name in ("view", "claim", "step", "approve"):
            assert await parent.says() == f"{name} refused True"
        assert await parent.says() == "close done"
        assert await parent.says() == "parent completed"
        assert await parent.process.wait() == 0
    async with open_journal(tmp_path / "runs.db") as journal:
        view = await journal.view("run")
    assert [step.name for step in view.steps] == ["before", "after"]


async def test_a_claim_that_is_cancelled_lets_the_run_go(journal: Journal) -> None:
    with trio.CancelScope() as scope:
        async with journal.claim("run"):
            scope.cancel()
            await trio.sleep_forever()
    with trio.CancelScope() as scope:
        scope.cancel()
        async with journal.claim("run"):
            await trio.sleep_forever()
    async with child("child", journal.path) as other:
        assert await other.do("claim run") == "ok"


async def test_a_claim_whose_block_raises_lets_the_run_go_and_the_exception_is_bare(
    journal: Journal,
) -> None:
    with pytest.raises(OSError, match="mine"):
        async with journal.claim("run"):
            raise OSError("mine")
    await take(journal)


async def test_a_journal_can_be_closed_and_opened_again_by_those_who_share_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    async with child("child", path) as other:
        for number in range(3):
            async with open_journal(path) as journal, journal.claim("mine") as run:
                await run.step(f"{number}", lambda: 1)
                assert await other.do("reopen") == "ok"
                assert await other.do("claim theirs") == "ok"
                assert await other.do(f"step {number}") == "ok"
                assert await other.do("release") == "ok"
    async with open_journal(path) as journal:
        for run_id in ("mine", "theirs"):
            steps = (await journal.view(run_id)).steps
            assert [step.name for step in steps] == ["0", "1", "2"]


async def test_two_processes_that_write_at_once_never_see_a_locked_database(
    journal: Journal,
) -> None:
    """langgraph#8136: two processes, 200 writes each."""
    async with child("child", journal.path) as other:
        assert await other.do("claim theirs") == "ok"
        await other.tell("many 200")
        async with journal.claim("mine") as run:
            for number in range(200):
                await run.step(f"write-{number}", lambda: 1)
        assert await other.says() == "ok"
        assert await other.do("release") == "ok"
    for run_id in ("mine", "theirs"):
        assert len((await journal.view(run_id)).steps) == 200


async def test_processes_that_make_one_journal_together_never_see_a_locked_database(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    async with child("child", path) as one, child("child", path) as two:
        for number in range(20):
            for other in (one, two):
                await other.tell("make", tmp_path / f"{number}.db")
            assert {await one.says(), await two.says()} == {"ok"}
