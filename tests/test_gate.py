"""Verdicts, markers and what a gate may assume."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioagent import Allow, CallContext, Deny, NeedApproval
from trioagent.gate import default_marker, judge

from .scripts import ASK, DENY, MAIL, MAIL_MARKER, Always, call

ALLOW = Allow()
CONTEXT = CallContext(tainted=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], ALLOW),
        ([ALLOW, ALLOW], ALLOW),
        ([ALLOW, ASK], ASK),
        ([ASK, ALLOW], ASK),
        ([ASK, NeedApproval("second")], ASK),
        ([ASK, DENY], DENY),
        ([DENY, ASK, ALLOW], DENY),
        ([ALLOW, ASK, DENY, Deny("second")], DENY),
    ],
)
def test_the_most_restrictive_verdict_wins_and_the_first_of_equal_ones(
    verdicts: list[object], expected: object
) -> None:
    assert judge([Always(verdict) for verdict in verdicts], call("t"), CONTEXT) == expected


def test_a_gate_that_raises_denies_and_says_why() -> None:
    verdict = judge([Always(OSError("no file")), Always(ALLOW)], call("t"), CONTEXT)
    assert verdict == Deny("gate error: OSError: no file")


def test_a_gate_error_whose_text_json_cannot_hold_still_denies_in_a_text_that_it_can() -> None:
    verdict = judge([Always(ValueError("\ud800"))], call("t"), CONTEXT)
    assert verdict == Deny("gate error: ValueError: \\ud800")


@pytest.mark.parametrize("answer", [None, True, "allow"])
def test_an_answer_that_is_no_verdict_denies(answer: object) -> None:
    verdict = judge([Always(answer)], call("t"), CONTEXT)
    assert isinstance(verdict, Deny)
    assert "is no verdict" in verdict.reason


def test_a_missing_context_reads_as_tainted() -> None:
    assert CallContext().tainted is True


def test_the_marker_of_the_worked_example_is_the_one_in_the_contract() -> None:
    assert MAIL_MARKER == "2d5fbffff5685a7a"
    assert default_marker(call("send_email", MAIL)) == MAIL_MARKER


def test_a_marker_does_not_depend_on_the_call_id_the_key_order_or_white_space() -> None:
    backwards = '{ "to" : "bob@corp.example",\n "body" : "\\u0068i" }'
    assert default_marker(call("send_email", backwards, id="other")) == MAIL_MARKER


@given(json_values, json_values)
def test_a_marker_tells_apart_any_two_different_arguments(one: object, other: object) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    markers = {default_marker(call("t", json.dumps({"x": x}))) for x in (one, other)}
    assert len(markers) == (1 if same else 2)


def test_a_marker_tells_apart_name_and_arguments() -> None:
    assert default_marker(call("t", "{}")) != default_marker(call("t{", "}"))


@pytest.mark.parametrize("arguments", ["", "{", '{"a": "\\ud800"}', "[" * 9000])
def test_a_call_whose_arguments_are_no_json_has_a_marker_too(arguments: str) -> None:
    assert len(default_marker(call("t", arguments or " "))) == 16
