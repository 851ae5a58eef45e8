"""Pruning takes what is over and what the rules let go, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import apsw
import pytest
import trio

from tests.scripts import ASK, QUESTION, ByName, call, calling, saying
from trioagent import Agent, FencedError, Journal, JournalCorruptError, JournalError, open_journal
from trioagent.journal import Pruned, Record, prune, sqlite, verify
from trioagent.journal.claim import now

from .acts import World, alter, by_turn, leave_open, rows, weather
from .children import child

DAY = 86_400


async def done(journal: Journal, *run_ids: str) -> None:
    """Runs that are completed."""
    for run_id in run_ids:
        async with journal.claim(run_id) as run:
            await run.step("one", lambda: 1)


async def ids(journal: Journal) -> list[str]:
    """The runs that have a record."""
    return [run.run_id for run in await journal.runs()]


def age(journal: Journal, run_id: str, days: int) -> None:
    """A completed run whose records are that old."""
    connection = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READWRITE)
    at = now() - days * DAY * 1000
    with sqlite.transaction(connection):
        row = sqlite.next_epoch(connection, run_id)
        for record in (
            Record("step.started", at - 1000, 1, "one", "read"),
            Record("step.completed", at - 500, 1, "one"),
            Record("run.completed", at, 1, "", "steps"),
        ):
            sqlite.append(connection, row, record)
            found = sqlite.find_run(connection, run_id)
            assert found is not None
            row = found
    connection.close()


async def every_end(journal: Journal) -> None:
    """A run for each way in which a run can stand while nobody owns it."""
    world = World()
    async with journal.claim("answered") as run:
        await weather(world).run(QUESTION, step_runner=run)
    await done(journal, "completed")
    asking = Agent(
        by_turn(calling(call("ask")), saying("done")),
        tools=[world.doing("ask", "write")],
        gate=ByName(ask=ASK),
    )
    async with journal.claim("suspended") as run:
        await asking.run(QUESTION, step_runner=run)
    async with journal.claim("halted") as run:
        await weather(world, max_iter=1).run(QUESTION, step_runner=run)
    with pytest.raises(ValueError):
        async with journal.claim("failed") as run:
            await run.step("one", lambda: 1)
            raise ValueError
    with trio.CancelScope() as scope:
        async with journal.claim("cancelled") as run:
            await run.step("one", lambda: 1)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    await leave_open(journal, "in_doubt", "put")
    async with journal.claim("two_scopes") as run:
        await weather(world).run(QUESTION, step_runner=run)
        await asking.run(QUESTION, step_runner=run.scope("inner"))
    async with child("child", journal.path) as other:
        await other.do("claim", "interrupted")
        await other.do("step", "one")
        await other.kill()


STANDS = {
    **{status: status for status in ("answered", "completed", "suspended", "halted", "failed")},
    **{status: status for status in ("cancelled", "in_doubt", "interrupted")},
    "two_scopes": "answered",
}


@pytest.mark.parametrize("also", [(), ("failed",), ("failed", "cancelled", "halted")])
async def test_only_what_is_over_goes_and_what_could_go_on_only_where_it_is_asked_for(
    also: tuple[Any, ...], journal: Journal
) -> None:
    await every_end(journal)
    assert {run.run_id: run.status for run in await journal.runs()} == STANDS
    pruned = await journal.prune(keep=0, statuses=("answered", "completed", *also))
    gone = {"answered", "completed", *also}
    assert set(pruned.runs) == gone
    assert set(await ids(journal)) == set(STANDS) - gone
    assert (await verify(journal.path)).ok


@pytest.mark.parametrize("status", ["suspended", "in_doubt", "interrupted", "running", "else"])
async def test_what_may_never_go_cannot_be_asked_for(status: Any, journal: Journal) -> None:
    await done(journal, "run")
    with pytest.raises(ValueError, match="can be pruned"):
        await journal.prune(keep=0, statuses=("answered", status))
    assert await ids(journal) == ["run"]


@pytest.mark.parametrize("rules", [{}, {"keep": -1}, {"older_than": -1.0}, {"max_bytes": -1}])
async def test_pruning_needs_a_rule_that_is_one(rules: Any, journal: Journal) -> None:
    await done(journal, "run")
    with pytest.raises(ValueError):
        await journal.prune(**rules)
    assert await ids(journal) == ["run"]


async def test_a_run_is_as_old_as_its_last_record(journal: Journal) -> None:
    for run_id, days in (("old", 31), ("edge", 29), ("new", 0)):
        age(journal, run_id, days)
    assert (await journal.prune(older_than=30 * DAY)).runs == ("old",)
    assert (await journal.prune(older_than=28 * DAY)).runs == ("edge",)
    assert await ids(journal) == ["new"]


async def test_those_that_ended_last_are_kept_whatever_order_they_were_made_in(
    journal: Journal,
) -> None:
    for run_id, days in (("b", 2), ("d", 0), ("a", 3), ("c", 1)):
        age(journal, run_id, days)
    await leave_open(journal, "doubt", "put")
    assert (await journal.prune(keep=2)).runs == ("a", "b")
    assert (await journal.prune(keep=9)) == Pruned(used_bytes=used(journal))
    assert await ids(journal) == ["d", "c", "doubt"]


async def test_a_run_goes_only_if_every_rule_lets_it_go(journal: Journal) -> None:
    for number in range(5):
        age(journal, f"old-{number}", 40 - number)
        age(journal, f"new-{number}", number)
    pruned = await journal.prune(older_than=30 * DAY, keep=7)
    assert pruned.runs == ("old-0", "old-1", "old-2")
    assert (await journal.prune(older_than=30 * DAY, max_bytes=0)).runs == ("old-3", "old-4")
    assert (await journal.prune(keep=0, max_bytes=10**9)).runs == ()


def used(journal: Journal) -> int:
    """Bytes of the file's pages that hold something."""
    ((count, free, size),) = rows(
        journal.path, "pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    return int((count - free) * size)


async def fill(journal: Journal, count: int, size: int) -> None:
    """Runs with a payload of their own each."""
    for number in range(count):
        async with journal.claim(f"run-{number}") as run:
            data = random.Random(number).randbytes(size).hex()
            await run.step("one", lambda d=data: d, effect="read")


async def test_to_a_size_those_that_ended_first_go_and_no_more_than_must(
    journal: Journal,
) -> None:
    await fill(journal, 10, 20_000)
    before = used(journal)
    pruned = await journal.prune(max_bytes=before // 2)
    assert pruned.used_bytes == used(journal) <= before // 2
    assert pruned.freed_bytes == before - used(journal)
    assert used(journal) > before // 2 - 30_000
    assert pruned.runs == tuple(f"run-{number}" for number in range(len(pruned.runs)))
    assert pruned.payloads == len(pruned.runs)


async def test_a_dry_run_says_exactly_what_would_go_and_changes_nothing(journal: Journal) -> None:
    await fill(journal, 10, 20_000)
    tables = ("runs", "records", "blobs")
    before = [rows(journal.path, table) for table in tables]
    told = await journal.prune(max_bytes=100_000, dry_run=True)
    assert [rows(journal.path, table) for table in tables] == before
    assert await journal.prune(max_bytes=100_000) == told
    assert len(told.runs) > 3


async def test_a_payload_goes_with_the_last_run_that_uses_it_and_not_before(
    journal: Journal,
) -> None:
    """The same result and the same configuration in three runs, one of which stays."""
    shared = "The same. " * 1000
    for run_id in ("one", "two", "three"):
        agent = Agent(
            by_turn(calling(call("big")), saying("ok")),
            tools=[World().doing("big", "read", shared)],
        )
        async with journal.claim(run_id) as run:
            await agent.run(QUESTION, step_runner=run)
    assert len(rows(journal.path, "blobs")) == 2
    pruned = await journal.prune(keep=1)
    assert (pruned.runs, pruned.payloads) == (("one", "two"), 0)
    assert (await journal.view("three")).status == "answered"
    assert (await verify(journal.path)).ok
    assert (await journal.prune(keep=0)).payloads == 2
    assert rows(journal.path, "blobs") == rows(journal.path) == []
    assert (await verify(journal.path)).ok


async def test_an_owned_run_stays_whoever_owns_it(journal: Journal) -> None:
    await done(journal, "mine", "theirs", "free")
    async with child("child", journal.path) as other:
        await other.do("claim", "theirs")
        async with journal.claim("mine") as run:
            assert (await journal.prune(keep=0)).runs == ("free",)
            await run.step("two", lambda: 2)
        assert await other.do("step", "two") == "ok"
        await other.do("release")
    assert (await journal.prune(keep=0)).runs == ("mine", "theirs")


async def test_a_run_that_moved_since_it_was_looked_at_stays(journal: Journal) -> None:
    await done(journal, "run")
    connection = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READWRITE)
    rules = prune.Rules(None, 0, None, prune.OVER)
    chosen = prune.choose(prune.ended_runs(connection, prune.OVER), rules, now())
    assert [row.run_id for row in chosen] == ["run"]
    async with journal.claim("run") as run:
        await run.step("two", lambda: 2)
    with sqlite.transaction(connection):
        assert prune.remove(connection, chosen, rules, now(), lambda row: False).runs == ()
    connection.close()
    assert len((await journal.view("run")).steps) == 2


async def test_portions_add_up_to_the_whole(journal: Journal) -> None:
    await fill(journal, 9, 5_000)
    connection = apsw.Connection(str(journal.path), flags=apsw.SQLITE_OPEN_READWRITE)
    rules = prune.Rules(None, 0, None, prune.OVER)
    chosen = prune.choose(prune.ended_runs(connection, prune.OVER), rules, now())
    total, portions = Pruned(), 0
    while chosen:
        with sqlite.transaction(connection):
            part = prune.remove(connection, chosen, rules, now(), lambda row: False, 7)
        total, portions = prune.added(total, part), portions + 1
        assert (await verify(journal.path)).ok
    connection.close()
    assert (len(total.runs), total.records, total.payloads, portions) == (9, 36, 9, 5)
    assert rows(journal.path) == rows(journal.path, "blobs") == []


# -- what is left of it ---------------------------------------------------------------------------


async def test_a_pruned_run_is_told_from_one_that_never_was(journal: Journal) -> None:
    await done(journal, "run")
    await journal.prune(keep=0)
    for look in (journal.view, journal.records, journal.doubts, journal.pending):
        with pytest.raises(LookupError, match=r"'run' was pruned on \d{4}-\d\d-\d\d at .* UTC"):
            await look("run")
    with pytest.raises(LookupError, match="there is no run"):
        await journal.view("other")
    assert await journal.runs() == await journal.doubts() == await journal.pending() == []


async def test_its_id_can_be_claimed_anew_with_new_keys_and_a_later_epoch(
    journal: Journal,
) -> None:
    nonces: list[bytes] = []
    for epoch in (1, 2, 3):
        async with journal.claim("run") as run:
            assert await run.step("one", lambda n=epoch: n) == epoch
            nonces.append(run._claim.fold.nonce)
        assert (await journal.view("run")).epoch == epoch
        assert (await journal.prune(keep=0)).runs == ("run",)
    assert len(set(nonces)) == 3
    assert (await verify(journal.path)).ok


async def test_an_old_owner_stays_fenced_after_its_run_was_pruned(journal: Journal) -> None:
    async with open_journal(journal.path) as other:
        with pytest.raises(FencedError):
            async with other.claim("run") as hung:
                await hung.step("one", lambda: 1)
                async with journal.claim("run", take_over=True) as run:
                    await run.step("two", lambda: 2)
                assert (await journal.prune(keep=0)).runs == ("run",)
                await hung.step("three", lambda: 3)
    assert rows(journal.path) == []


async def test_free_pages_are_used_again_and_a_vacuum_gives_them_back(journal: Journal) -> None:
    await fill(journal, 10, 20_000)
    size = rows(journal.path, "pragma_page_count")
    await journal.prune(keep=0)
    await fill(journal, 10, 20_000)
    assert rows(journal.path, "pragma_page_count") == size
    pruned = await journal.prune(keep=0, vacuum=True)
    assert journal.path.stat().st_size <= pruned.used_bytes
    assert (await verify(journal.path)).ok
    await done(journal, "run")
    assert await ids(journal) == ["run"]


async def test_a_vacuum_is_refused_while_a_run_is_owned_and_nothing_is_removed(
    journal: Journal,
) -> None:
    await done(journal, "one", "two")
    async with journal.claim("one"):
        with pytest.raises(JournalError, match="one is owned"):
            await journal.prune(keep=0, vacuum=True)
    assert await ids(journal) == ["one", "two"]


async def test_nothing_is_removed_where_a_run_cannot_be_read(journal: Journal) -> None:
    await done(journal, "one", "two")
    alter(journal.path, "UPDATE records SET tag = 'x' WHERE seq = 6")
    before = rows(journal.path)
    with pytest.raises(JournalCorruptError):
        await journal.prune(keep=0)
    assert rows(journal.path) == before
