"""A cut history is made of whole turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent import Message, SystemMessage, ToolCall, ToolMessage
from trioagent.history import recent_turns
from trioagent.messages import check_transcript

from .scripts import call, calling, saying, user


def result(made: ToolCall) -> ToolMessage:
    return ToolMessage(made.id, made.name, ())


A, B, C = call("a"), call("b"), call("c")
HISTORY: list[Message] = [
    user("first"),
    calling(A),
    result(A),
    calling(B, C),
    result(B),
    result(C),
    user("second"),
]


def test_loop_048_a_cut_inside_a_turn_moves_to_the_turns_end() -> None:
    assert recent_turns(HISTORY, 3) == (user("second"),)
    assert recent_turns(HISTORY, 6) == (user("second"),)
    assert recent_turns(HISTORY, 7) == tuple(HISTORY)


def test_the_last_turn_and_the_system_prompt_are_always_kept() -> None:
    system = SystemMessage("be brief")
    assert recent_turns([system, *HISTORY[:-1]], 1) == (system, *HISTORY[:-1])
    assert recent_turns([system, *HISTORY], 1) == (system, user("second"))
    assert recent_turns([], 1) == ()


def test_less_than_one_message_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        recent_turns(HISTORY, 0)


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(1, 20))
def test_any_cut_is_a_transcript_without_a_lonely_call_or_result(
    turns: list[int], at_most: int
) -> None:
    transcript: list[Message] = []
    for number, size in enumerate(turns):
        transcript.append(user(f"question {number}"))
        for i in range(size):
            made = call("t", id=f"{number}-{i}")
            transcript += [calling(made), result(made)]
        transcript.append(saying("answer"))
    cut = recent_turns(transcript, at_most)
    check_transcript(cut)
    assert cut == tuple(transcript[len(transcript) - len(cut) :])
    assert len(cut) <= at_most or cut[0] == transcript[-len(cut)] == user(
        f"question {len(turns) - 1}"
    )
