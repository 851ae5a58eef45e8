"""What the decoder of server-sent events promises."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent.errors import ProtocolError, ProviderError
from trioagent.providers.sse import SSEDecoder

STREAM = (
    b"\xef\xbb\xbf: hello\r\nevent: x\rdata: a\ndata:b\n\r\n"
    b"data:  c\r\n\r\nid: 7\n\ndata\n\ndata: d"
)


def read(*chunks: bytes, limit: int = 1000) -> list[str]:
    decoder = SSEDecoder(limit=limit)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


def test_the_data_lines_of_an_event_are_joined_and_all_else_is_passed_over() -> None:
    assert read(STREAM) == ["a\nb", " c", "", "d"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_end_of_the_standard_ends_a_line(end: bytes) -> None:
    assert read(end.join([b"data: 1", b"", b"data: 2", b"data: 3", b"", b""])) == ["1", "2\n3"]


def test_a_line_end_that_is_split_between_chunks_is_one_line_end() -> None:
    assert read(b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n") == ["1\n2"]


def test_an_event_is_given_when_its_last_byte_is_there() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 1\r\n\r") == ["1"]
    assert decoder.feed(b"\n") == []


def test_a_last_event_without_its_empty_line_is_given_at_the_close() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: [DONE]") == []
    assert decoder.close() == ["[DONE]"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_however_the_bytes_are_split_the_events_are_the_same(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*[STREAM[a:b] for a, b in pairwise(edges)]) == read(STREAM)


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_raise_anything_but_a_provider_error(chunks: list[bytes]) -> None:
    with suppress(ProviderError):
        assert all(isinstance(event, str) for event in read(*chunks))


@pytest.mark.parametrize("chunk", [b"x" * 10, b"data: 12345678\n"])
def test_a_line_or_an_event_over_the_limit_is_a_protocol_error(chunk: bytes) -> None:
    decoder = SSEDecoder(limit=50)
    with pytest.raises(ProtocolError, match="over 50 bytes"):
        for _ in range(10):
            decoder.feed(chunk)


def test_data_that_is_not_utf_8_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        read(b"data: \xff\n\n")


def test_events_that_were_given_are_not_kept() -> None:
    decoder = SSEDecoder()
    chunk = b"data: " + b"x" * 10_000 + b"\n\n"
    tracemalloc.start()
    try:
        for _ in range(500):
            decoder.feed(chunk)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200_000
