"""Results within a budget: JSON stays JSON, text is cut with what was left out counted."""

from __future__ import annotations

import base64
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent import File, Image, Text, ToolResult, tool
from trioagent.rendering import cut, render, within

from .runners import context


def text_of(value: Any, limit: int) -> str:
    (part,) = render(value, limit).parts
    assert isinstance(part, Text)
    assert len(part.text) <= limit
    return part.text


def test_a_long_list_shows_its_first_items_and_how_many_there_are() -> None:
    value = [{"n": n} for n in range(1000)]
    shown = json.loads(text_of(value, 1000))
    assert list(shown) == ["items", "truncated"]
    assert shown["items"] == value[: len(shown["items"])]
    assert len(shown["items"]) > 50
    truncated = shown["truncated"]
    assert (truncated["shown"], truncated["total"]) == (len(shown["items"]), 1000)
    assert "left out" in truncated["note"]


def test_a_result_within_its_budget_stands_as_it_is() -> None:
    assert text_of([1, 2], 200) == "[1,2]"
    assert text_of("x" * 200, 200) == "x" * 200
    assert render("x" * 300).parts == (Text("x" * 300),)


def test_of_an_object_the_longest_values_are_shortened() -> None:
    value = {"status": "ok", "rows": list(range(10_000)), "log": "a line\n" * 500, "n": 3}
    shown = json.loads(text_of(value, 1000))
    assert (shown["status"], shown["n"]) == ("ok", 3)
    assert shown["rows"]["items"][:3] == [0, 1, 2]
    assert shown["rows"]["truncated"]["total"] == 10_000
    assert shown["log"].startswith("a line\n")
    assert re.search(r"\[\d+ of 3500 characters left out\]$", shown["log"])


def test_a_list_whose_first_item_is_too_long_shows_the_beginning_of_it() -> None:
    shown = json.loads(text_of([{"text": "some words " * 1000}, 2], 1000))
    assert shown["items"][0]["text"].startswith("some words some")
    assert shown["truncated"]["shown"] == 1


def test_json_in_a_text_is_shortened_as_json() -> None:
    assert json.loads(text_of(json.dumps(list(range(1000))), 500))["truncated"]["total"] == 1000
    assert text_of("[not json " * 100, 200).endswith("characters left out]")


def test_what_json_cannot_shorten_is_cut_as_text() -> None:
    assert "characters left out" in text_of({f"key {n}": n for n in range(1000)}, 500)


def test_text_is_cut_with_what_was_left_out_counted() -> None:
    text = " ".join(str(n) for n in range(10_000))
    shown = text_of(text, 1000)
    found = re.fullmatch(r"(.*)\n\[(\d+) of (\d+) characters left out\]", shown, re.S)
    assert found is not None
    assert text.startswith(found[1])
    assert len(found[1]) + int(found[2]) == int(found[3]) == len(text)
    assert len(shown) > 950


@pytest.mark.parametrize(
    "one", ["e\u0301", "\U0001f469\u200d\U0001f680", "\u2764\ufe0f", "\u0915\u093f"]
)
def test_text_is_never_cut_within_what_a_reader_sees_as_one_character(one: str) -> None:
    for limit in range(200, 230):
        kept = cut(one * 500, limit).partition("\n")[0]
        assert kept == one * (len(kept) // len(one))


PICTURE = base64.b64encode(random.Random(1).randbytes(30_000)).decode()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PICTURE * 5, ""),
        (f"before {PICTURE} after", "before "),
        ("data:image/png;base64," + PICTURE, "data:image/png;base64,"),
        ("see\n" + "\n".join(re.findall(".{1,76}", PICTURE)) + "\nend", "see\n"),
    ],
    ids=["alone", "within", "address", "lines"],
)
def test_tools_067_base64_is_left_out_whole_and_never_cut(text: str, kept: str) -> None:
    shown = text_of(text, 16_000)
    assert shown.removeprefix(kept).lstrip("\n") == (
        f"[{len(text) - len(kept)} of {len(text)} characters left out]"
    )


def test_tools_067_binary_parts_are_not_counted_and_not_cut() -> None:
    picture, file = Image("image/png", b"\x89" * 10_000), File("a/b", b"x" * 10_000)
    result = render([Text("a " * 300), picture, Text("b " * 300), file, Text("c " * 300)], 700)
    assert [type(part) for part in result.parts] == [Text, Image, Text, File, Text]
    assert (result.parts[1], result.parts[3]) == (picture, file)
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    assert texts[0] == "a " * 300
    assert texts[2] == "[600 of 600 characters left out]"


def test_bytes_are_shown_whole_or_not_at_all() -> None:
    assert "left out" in text_of(b"\x01" * 100_000, 1000)
    assert "AQEB" not in text_of(b"\x01" * 100_000, 1000)


async def test_a_tool_says_how_much_of_its_result_is_read() -> None:
    @tool(max_result_chars=300)
    async def short() -> str:
        return "word " * 1000

    @tool
    async def usual() -> str:
        return "word " * 100_000

    @tool(max_result_chars=None)
    async def whole() -> str:
        return "word " * 100_000

    @tool(max_result_chars=300)
    async def outcome() -> ToolResult:
        return ToolResult((Text("word " * 1000),), "error")

    lengths = []
    for made in (short, usual, whole, outcome):
        result = await made.run({}, context(), tainted=False, deps=None)
        (part,) = result.parts
        assert isinstance(part, Text)
        lengths.append(len(part.text))
    assert lengths[2] == 500_000
    assert lengths[0] <= 300 and lengths[1] <= 100_000 and lengths[3] <= 300
    assert lengths[1] > 99_000
    assert result.outcome == "error"


async def test_the_text_of_an_exception_is_bounded() -> None:
    @tool
    async def fails() -> None:
        raise ValueError("why " * 100_000)

    result = await fails.run({}, context(), tainted=False, deps=None)
    (part,) = result.parts
    assert isinstance(part, Text)
    assert len(part.text) < 5000
    assert part.text.startswith("error: ValueError: why why")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)


@given(json_values, st.integers(200, 400))
def test_every_result_is_within_its_budget(value: Any, limit: int) -> None:
    if any(part in json.dumps(value) for part in ("Infinity", "NaN")):
        return
    text_of(value, limit)


@given(st.text(), st.integers(0, 300))
def test_a_cut_text_begins_as_the_text_and_counts_what_it_left(text: str, limit: int) -> None:
    shown = within(text, limit)
    if shown != text and not text.lstrip().startswith(("[", "{")):
        kept, _, note = shown.rpartition("[")
        kept = kept.removesuffix("\n")
        assert text.startswith(kept)
        assert note == f"{len(text) - len(kept)} of {len(text)} characters left out]"
