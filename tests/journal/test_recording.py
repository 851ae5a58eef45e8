"""A run as JSON lines: what is written is read, and what was edited is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent.errors import JournalCorruptError, JournalFormatError
from trioagent.journal.payloads import blob_hash
from trioagent.journal.recording import Recording, read_lines, write_lines
from trioagent.journal.records import KINDS, Record, Started, write_data

CONFIG = b'{"system":"be brief"}'
BEGUN = Record(
    "run.started",
    1,
    1,
    "",
    "",
    write_data(Started(b"n" * 16, msgspec.Raw(b"[]"), blob_hash(CONFIG))),
)
STEP = Record("step.started", 2, 1, "llm/1", "read", b"\xff" * 16)
DONE = Record("step.completed", 3, 1, "llm/1", "", b'{"type":"assistant"}')
PARIS = Recording("paris", (BEGUN, STEP, DONE), {blob_hash(CONFIG): CONFIG})
ROME = Recording("rome", (STEP,), {})

names = st.text(max_size=20).filter(lambda s: s.isprintable())
data = st.binary(max_size=40) | st.sampled_from(
    [b"", b"0", b"null", b'"a"', b" 1", b"1\n", b'"\xff"']
)
others = st.builds(
    Record,
    st.sampled_from([kind for kind in KINDS if kind not in ("run.started", "signal")]),
    st.integers(0, 2**53 - 1),
    st.integers(0, 2**31 - 1),
    names,
    names,
    data,
)


@given(st.lists(others, max_size=8))
def test_what_is_written_is_read_and_written_again_the_same(records: list[Record]) -> None:
    lines = list(write_lines([Recording("a", (BEGUN, *records), PARIS.configs)]))
    read = list(read_lines(lines))
    assert read == [Recording("a", (BEGUN, *records), PARIS.configs)]
    assert list(write_lines(read)) == lines


def test_json_stands_in_the_file_as_it_is() -> None:
    text = b"".join(write_lines([PARIS]))
    assert b'"data":{"type":"assistant"}' in text
    assert b'{"config":{"system":"be brief"}}\n' in text


def test_several_runs_share_a_configuration() -> None:
    again = msgspec.structs.replace(PARIS, run_id="again")
    lines = list(write_lines([PARIS, ROME, again]))
    assert [line for line in lines if b'"config":{' in line] == [b'{"config":' + CONFIG + b"}\n"]
    assert list(read_lines(lines)) == [PARIS, ROME, again]


@given(st.integers(0, 6), st.data())
def test_a_file_that_was_edited_or_cut_off_is_refused(line: int, draw: st.DataObject) -> None:
    lines = list(write_lines([PARIS, ROME]))
    text = bytearray(b"".join(lines[: line + 1]))
    start = len(b"".join(lines[:line]))
    place = draw.draw(st.integers(start, len(text) - 2))
    text[place] ^= draw.draw(st.sampled_from([1, 2, 4, 16]))
    edited = [*bytes(text).splitlines(keepends=True), *lines[line + 1 :]]
    with pytest.raises((JournalCorruptError, JournalFormatError)):
        list(read_lines(edited))
    with pytest.raises((JournalCorruptError, JournalFormatError)):
        list(read_lines(lines[:line]))


def test_another_kind_of_file_and_a_newer_one_are_named() -> None:
    with pytest.raises(JournalFormatError, match="no journal"):
        list(read_lines([b"hello\n"]))
    with pytest.raises(JournalFormatError, match="no journal"):
        list(read_lines([b"{}\n"]))
    with pytest.raises(JournalFormatError, match="version 2"):
        list(read_lines([b'{"format":"trioagent.journal","version":2}\n']))


def test_a_missing_configuration_is_refused() -> None:
    lost = Recording("paris", PARIS.records, {})
    with pytest.raises(JournalCorruptError, match="configuration is missing"):
        list(read_lines(write_lines([lost])))


def test_what_follows_the_end_is_refused() -> None:
    lines = list(write_lines([PARIS]))
    with pytest.raises(JournalCorruptError, match="follows the last line"):
        list(read_lines([*lines, lines[-1]]))
