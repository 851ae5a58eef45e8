"""The machine alone: its ten invariants under any mix of answers, its table and its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioagent import (
    Allow,
    Answered,
    AssistantMessage,
    Budget,
    Deny,
    Halted,
    Message,
    NeedApproval,
    NotPendingError,
    Suspended,
    SystemMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    TranscriptError,
    Usage,
    UserMessage,
)
from trioagent.actions import (
    Action,
    AskGate,
    AskModel,
    Broke,
    Decisions,
    End,
    Expired,
    Fed,
    Finished,
    Judged,
    Planned,
    Replied,
    RunTurn,
)
from trioagent.machine import TRANSITIONS, Machine, Phase
from trioagent.messages import check_transcript, correction, error_result

from .scripts import ASK, DENY, MAIL, MAIL_MARKER, call, calling, roles, saying, tokens, user

TOOLS = ("read", "send")
GO = (user("go"),)


# -- any run --------------------------------------------------------------------------------------

call_parts = st.builds(
    ToolCall,
    id=st.sampled_from(["", "a", "b", "call_1_0"]),
    name=st.sampled_from(["read", "send", "made up", "answer"]),
    arguments=st.sampled_from(["{}", '{"x":1}', "{"]),
)
some_text = st.builds(Text, st.just("so"))
replies = st.builds(
    AssistantMessage,
    # Few runs get far where a model mostly answers, so this one mostly calls.
    parts=st.sampled_from([call_parts, call_parts, call_parts | some_text, some_text]).flatmap(
        lambda parts: st.lists(parts, min_size=1, max_size=4).map(tuple)
    ),
    usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    stop_reason=st.sampled_from(["stop", "tool_calls", "stop", "tool_calls", "length"]),
    problem=st.sampled_from(["", "", "wrong"]),
)
verdicts = st.sampled_from(
    [
        Allow(),
        Allow(),
        Deny("no"),
        NeedApproval("ask"),
        NeedApproval("ask", "m"),
        NeedApproval("ask", "m-2"),
    ]
)
results = st.sampled_from([ToolResult((Text("done"),)), ToolResult(), error_result("broken")])
configs = st.fixed_dictionaries(
    {
        "system": st.sampled_from(["", "Be brief.", "Be long."]),
        "max_iter": st.sampled_from([4, 3, 2, 1]),
        "answer_tool": st.sampled_from([None, "answer"]),
        "budget": st.builds(
            Budget,
            max_tokens=st.sampled_from([None, None, None, 0, 20, 40]),
            max_tool_calls=st.sampled_from([None, None, 0, 2, 4, 6]),
            max_seconds=st.sampled_from([None, None, 1, 9]),
        ),
    }
)


def since_last_user(transcript: Sequence[Message]) -> list[AssistantMessage]:
    asked = max(
        i
        for i, message in enumerate(transcript)
        if isinstance(message, UserMessage) and not corrects(transcript, i)
    )
    return [message for message in transcript[asked:] if isinstance(message, AssistantMessage)]


def corrects(transcript: Sequence[Message], place: int) -> bool:
    before = transcript[place - 1] if place else None
    return (
        isinstance(before, AssistantMessage)
        and before.problem != ""
        and transcript[place] == correction(before)
    )


def snapshot(machine: Machine) -> tuple[Any, ...]:
    return machine.phase, machine.transcript, machine.usage, machine.ended


def is_subsequence(short: Sequence[Message], long: Sequence[Message]) -> bool:
    rest = iter(long)
    return all(any(message == other for other in rest) for message in short)


class Drive:
    """Drives one machine to an end with drawn answers.

    At every turn's boundary a second machine is made from the transcript; from then on it is fed
    the same and must do the same (invariant 8).
    """

    def __init__(
        self,
        data: st.DataObject,
        transcript: tuple[Message, ...],
        config: dict[str, Any],
        decisions: Decisions,
    ) -> None:
        self.draw = data.draw
        self.config = config
        self.budget: Budget = config["budget"]
        self.decisions = decisions
        self.machine = Machine(transcript, tools=TOOLS, decisions=decisions, **config)
        self.twins: list[Machine] = []
        self.before = self.machine.transcript
        self.finished: dict[int, ToolResult] = {}
        self.corrected = False

    def run(self) -> tuple[Message, ...]:
        """The transcript that a resume starts from."""
        try:
            while True:
                action = self.next()
                match action:
                    case AskModel():
                        self.ask_model(action)
                    case AskGate():
                        self.ask_gate(action)
                    case RunTurn():
                        self.turn(action)
                    case End(state):
                        self.ended(action)
                        assert state.transcript == self.machine.transcript
                        return state.transcript
                    case None:
                        assert self.machine.phase is Phase.FAILED
                        return self.with_what_finished()
        except NotPendingError:
            return self.machine.transcript

    def next(self) -> Action | None:
        seconds = self.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]), "seconds")
        action = self.machine.next_action(seconds)
        assert self.machine.next_action(seconds) == action
        if self.corrected:
            assert isinstance(action, AskModel | End)
            assert not (isinstance(action, End) and isinstance(action.state, Answered))
        self.corrected = False
        for twin in self.twins:
            assert twin.next_action(seconds) == action
            assert snapshot(twin) == snapshot(self.machine)
        if isinstance(action, AskModel | AskGate) and len(self.twins) < 3:
            twin = Machine(
                self.machine.transcript, tools=TOOLS, decisions=self.decisions, **self.config
            )
            assert twin.next_action(seconds) == action
            assert snapshot(twin) == snapshot(self.machine)
            self.twins.append(twin)
        self.check()
        return action

    def feed(self, fed: Fed) -> None:
        for machine in (*self.twins, self.machine):
            held = snapshot(machine)
            try:
                machine.feed(fed)
            except NotPendingError:
                assert snapshot(machine) == held
                if machine is self.machine:
                    raise
        self.check()

    def check(self) -> None:
        transcript = self.machine.transcript
        check_transcript(transcript)
        assert is_subsequence(self.before, transcript)
        self.before = transcript
        systems = [i for i, message in enumerate(transcript) if isinstance(message, SystemMessage)]
        assert systems in ([], [0])
        if self.config["system"]:
            assert transcript[0] == SystemMessage(self.config["system"])
        used = Usage()
        for message in since_last_user(transcript):
            used += message.usage
        assert self.machine.usage == used

    def ask_model(self, action: AskModel) -> None:
        made = len(since_last_user(self.machine.transcript))
        assert made < self.config["max_iter"]
        assert action.iter == made + 1
        assert action.step == f"llm/{made + 1}"
        assert action.messages == self.machine.transcript
        if self.budget.max_tokens is not None:
            assert self.machine.usage.total_tokens < self.budget.max_tokens
        if self.broke():
            return
        if self.budget.max_seconds is not None and self.draw(st.integers(0, 5), "expired") == 5:
            self.feed(Expired(99.0))
            return
        self.decisions = Decisions()
        reply = self.machine.adopted(self.draw(replies, "reply"))
        self.feed(Replied(reply))
        if reply.problem and not reply.tool_calls:
            assert self.machine.transcript[-2:] == (reply, correction(reply))
            self.corrected = True
        else:
            assert self.machine.transcript[-1] == reply

    def ask_gate(self, action: AskGate) -> None:
        asked = {index: self.draw(verdicts, "verdict") for index in action.calls}
        if self.broke():
            return
        self.feed(Judged(asked))
        after = self.machine.next_action()
        if not isinstance(after, RunTurn):
            assert isinstance(after, End) and isinstance(after.state, Suspended)
            pending = after.state.pending
            assert pending
            assert len({p.marker for p in pending}) == len(pending)
            assert not {p.marker for p in pending} & self.decisions.markers
            return
        assert [planned.index for planned in after.calls] == list(action.calls)
        for planned in after.calls:
            verdict = asked[planned.index]
            assert planned.call == action.calls[planned.index]
            if planned.call.name == self.config["answer_tool"]:
                assert planned.problem and planned.verdict == Allow()
            elif isinstance(verdict, NeedApproval):
                assert self.decisions.markers
                by_a_person = (Deny("I said no"), "a person")
                assert planned.verdict == Allow() or by_a_person == (
                    planned.verdict,
                    planned.denied_by,
                )
            elif planned.denied_by == "a person":  # who may tighten what the gate says, only
                assert self.decisions.denied
                assert (verdict, planned.verdict) == (Allow(), Deny("I said no"))
            else:
                assert planned.verdict == verdict
                assert planned.denied_by == "policy"

    def turn(self, action: RunTurn) -> None:
        answer_tool = self.config["answer_tool"]
        if any(not planned.problem and not planned.answer for planned in action.calls):
            calls = sum(
                call.name != answer_tool
                for reply in since_last_user(self.before)
                for call in reply.tool_calls
            )
            if self.budget.max_tokens is not None:
                assert self.machine.usage.total_tokens <= self.budget.max_tokens
            if self.budget.max_tool_calls is not None:
                assert calls <= self.budget.max_tool_calls
        reply = since_last_user(self.before)[-1]
        for planned in action.calls:
            cut = reply.stop_reason == "length"
            if planned.answer:
                assert reply.tool_calls == (planned.call,)
                assert planned.call.name == answer_tool
                assert not (planned.problem or reply.problem or cut)
            else:
                assert bool(planned.problem) == (cut or planned.call.name == answer_tool)
            name = planned.call.name.replace(" ", "_")
            assert planned.step == f"tool/{action.iter}/{planned.index}/{name}"
        answered = {m.call_id: m for m in self.before if isinstance(m, ToolMessage)}
        self.finished = {}
        for planned in self.draw(st.permutations(action.calls), "order"):
            assert self.machine.phase is Phase.ACTING
            assert self.machine.transcript == self.before
            if self.broke():
                return
            self.finished[planned.index] = self.draw(results, "result")
            self.feed(Finished(planned.index, self.finished[planned.index]))
        expected = [
            self.finished[i].answering(made) if i in self.finished else answered[made.id]
            for i, made in enumerate(reply.tool_calls)
        ]
        assert list(self.machine.transcript[-len(expected) :]) == expected
        self.finished = {}
        self.decisions = Decisions()
        if any(planned.answer for planned in action.calls):
            end = self.machine.next_action()
            assert isinstance(end, End) and isinstance(end.state, Answered)
            assert end.state.message == reply

    def broke(self) -> bool:
        if self.draw(st.integers(0, 19), "broke") != 19:
            return False
        self.feed(Broke())
        return True

    def with_what_finished(self) -> tuple[Message, ...]:
        """A failed turn's transcript, now and then with the results that it already had."""
        transcript = self.machine.transcript
        if not self.finished or not self.draw(st.booleans(), "keeps results"):
            return transcript
        calls = since_last_user(transcript)[-1].tool_calls
        return transcript + tuple(
            self.finished[i].answering(calls[i]) for i in sorted(self.finished)
        )

    def ended(self, action: End) -> None:
        held = snapshot(self.machine)
        for fed in (
            Replied(saying("more")),
            Expired(1.0),
            Judged({}),
            Finished(0, ToolResult()),
            Broke(),
        ):
            with pytest.raises(RuntimeError, match="takes no"):
                self.machine.feed(fed)
        assert self.machine.next_action(1e9) == action
        assert snapshot(self.machine) == held


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_run_with_any_resumes_keeps_the_ten_invariants(data: st.DataObject) -> None:
    transcript: tuple[Message, ...] = GO
    for _ in range(data.draw(st.integers(2, 6), "runs")):
        config = data.draw(configs, "config")
        decisions = decided(data, transcript, config)
        drive = Drive(data, transcript, config, decisions)
        transcript = drive.run()
        state = drive.machine.next_action()
        if isinstance(state, End) and isinstance(state.state, Answered):
            transcript = (*transcript, user("and then?"))


def decided(
    data: st.DataObject, transcript: tuple[Message, ...], config: dict[str, Any]
) -> Decisions:
    """A person's answers to the calls that wait at the transcript's end, if any do."""
    machine = Machine(transcript, tools=TOOLS, **config)
    if not isinstance(machine.next_action(), AskGate):
        return Decisions()
    asked = machine.next_action()
    assert isinstance(asked, AskGate)
    machine.feed(Judged({index: NeedApproval("ask") for index in asked.calls}))
    end = machine.next_action()
    if isinstance(end, RunTurn):  # nothing but answers that are wrong
        return Decisions()
    assert isinstance(end, End) and isinstance(end.state, Suspended)
    answers = {p.marker: data.draw(st.sampled_from("aadn"), "answer") for p in end.state.pending}
    answers["m"] = data.draw(st.sampled_from("nnnnna"), "answer")
    return Decisions(
        approved=frozenset(marker for marker, answer in answers.items() if answer == "a"),
        denied={marker: "I said no" for marker, answer in answers.items() if answer == "d"},
    )


# -- the table ------------------------------------------------------------------------------------


def test_every_phase_has_a_row_and_every_move_leads_to_a_phase_that_has_one() -> None:
    assert set(TRANSITIONS) == set(Phase)
    for row in TRANSITIONS.values():
        for targets in row.values():
            assert targets
            assert set(targets) <= set(Phase)


def test_every_phase_can_be_reached_and_only_the_four_ends_have_an_empty_row() -> None:
    reached = {Phase.START}
    while more := {t for p in reached for ts in TRANSITIONS[p].values() for t in ts} - reached:
        reached |= more
    assert reached == set(Phase)
    assert {phase for phase, row in TRANSITIONS.items() if not row} == {
        Phase.ANSWERED,
        Phase.HALTED,
        Phase.SUSPENDED,
        Phase.FAILED,
    }


FEEDS: list[Fed] = [
    Replied(saying("hello")),
    Expired(3.0),
    Judged({0: Allow()}),
    Finished(0, ToolResult()),
    Broke(),
]


def in_phase(phase: Phase) -> Machine:
    """A machine that stands in `phase`."""
    machine = Machine(GO, tools=TOOLS, budget=Budget(max_seconds=3))
    if phase is Phase.START:
        return machine
    machine.next_action()
    if phase is Phase.HALTED:
        machine.feed(Expired(3.0))
    elif phase is Phase.ANSWERED:
        machine.feed(Replied(saying("hello")))
    elif phase is Phase.FAILED:
        machine.feed(Broke())
    elif phase is not Phase.ASKING:
        machine.feed(Replied(calling(call("read"))))
        if phase is Phase.SUSPENDED:
            machine.feed(Judged({0: ASK}))
        elif phase is not Phase.JUDGING:
            machine.feed(Judged({0: Allow()}))
            if phase is Phase.READY:
                machine.feed(Finished(0, ToolResult()))
    assert machine.phase is phase
    return machine


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("fed", FEEDS, ids=lambda fed: type(fed).__name__)
def test_what_a_phase_has_no_move_for_is_refused_and_changes_nothing(
    phase: Phase, fed: Fed
) -> None:
    machine = in_phase(phase)
    held = snapshot(machine)
    if type(fed).__name__ in TRANSITIONS[phase]:
        machine.feed(fed)
        assert machine.phase in TRANSITIONS[phase][type(fed).__name__]
    else:
        with pytest.raises(RuntimeError, match=f"{phase.value} takes no"):
            machine.feed(fed)
        assert snapshot(machine) == held


@pytest.mark.parametrize("index", [-1, 2, 0])
def test_a_result_for_no_call_or_a_second_one_for_a_call_is_refused(index: int) -> None:
    machine = Machine(GO, tools=TOOLS)
    machine.next_action()
    machine.feed(Replied(calling(call("read"), call("send"))))
    machine.feed(Judged({0: Allow(), 1: Allow()}))
    machine.feed(Finished(0, ToolResult((Text("first"),))))
    held = snapshot(machine)
    with pytest.raises(RuntimeError, match="is not running"):
        machine.feed(Finished(index, ToolResult()))
    assert snapshot(machine) == held
    machine.feed(Finished(1, ToolResult()))
    assert machine.transcript[-2].text == "first"  # type: ignore[union-attr]


# -- how a transcript is taken up -----------------------------------------------------------------


def test_an_answered_transcript_is_answered_without_a_call() -> None:
    action = Machine((*GO, saying("hello"))).next_action()
    assert isinstance(action, End) and isinstance(action.state, Answered)
    assert action.state.message == saying("hello")


def test_a_follow_up_question_starts_at_iteration_one_and_counts_nothing_of_before() -> None:
    before = (*GO, calling(call("read"), usage=tokens(90)), ToolMessage("read", "read"))
    machine = Machine(
        (*before, saying("hello", usage=tokens(90)), user("and then?")),
        max_iter=1,
        budget=Budget(max_tokens=10, max_tool_calls=0),
    )
    action = machine.next_action()
    assert isinstance(action, AskModel)
    assert (action.iter, action.step) == (1, "llm/1")
    assert machine.usage == Usage()


def test_unanswered_calls_go_on_under_their_own_number_and_step_names() -> None:
    turn = (*GO, calling(call("read", id="1")), ToolMessage("1", "read"))
    machine = Machine((*turn, calling(call("read", id="2"), call("send", id="3"))), tools=TOOLS)
    action = machine.next_action()
    assert isinstance(action, AskGate)
    assert action.iter == 2
    assert action.steps == {0: "tool/2/0/read", 1: "tool/2/1/send"}


@pytest.mark.parametrize("transcript", [(), (SystemMessage("Be brief."),)])
def test_a_transcript_with_nothing_to_answer_is_refused(transcript: tuple[Message, ...]) -> None:
    with pytest.raises(TranscriptError, match="nothing to answer"):
        Machine(transcript)


def test_a_system_prompt_replaces_the_one_of_a_resumed_transcript() -> None:
    machine = Machine((SystemMessage("old"), *GO), system="new")
    assert machine.transcript == (SystemMessage("new"), *GO)


def test_a_max_iter_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        Machine(GO, max_iter=0)


def test_a_made_up_tool_name_is_cut_to_what_a_step_name_holds() -> None:
    machine = Machine((*GO, calling(call("rm -rf /" + "x" * 99))))
    action = machine.next_action()
    assert isinstance(action, AskGate)
    assert action.steps[0] == "tool/1/0/rm_-rf__" + "x" * 56


# -- limits ---------------------------------------------------------------------------------------


def halted(machine: Machine, seconds: float = 0.0) -> Halted:
    action = machine.next_action(seconds)
    assert isinstance(action, End) and isinstance(action.state, Halted)
    return action.state


def test_a_limit_that_is_reached_ends_the_run_before_the_next_call() -> None:
    at_limit = (*GO, calling(call("read"), usage=tokens(100)), ToolMessage("read", "read"))
    state = halted(Machine(at_limit, budget=Budget(max_tokens=100)))
    assert (state.reason, state.used, state.limit) == ("tokens", 100, 100)
    state = halted(Machine(at_limit, max_iter=1))
    assert (state.reason, state.used, state.limit) == ("max_iter", 1, 1)
    state = halted(Machine(GO, budget=Budget(max_seconds=5)), 5.0)
    assert (state.reason, state.used, state.limit) == ("deadline", 5, 5)


def test_calls_at_the_very_token_limit_still_run() -> None:
    machine = Machine(
        (*GO, calling(call("read"), usage=tokens(100))), budget=Budget(max_tokens=100)
    )
    assert isinstance(machine.next_action(), AskGate)


def test_an_answer_past_the_token_budget_is_an_answer() -> None:
    machine = Machine(GO, budget=Budget(max_tokens=10))
    machine.next_action()
    machine.feed(Replied(saying("long", usage=tokens(11))))
    assert machine.phase is Phase.ANSWERED


def test_a_reply_cut_by_the_output_limit_runs_none_of_its_calls() -> None:
    machine = Machine((*GO, calling(call("read"), call("send"), stop="length")), tools=TOOLS)
    action = machine.next_action()
    assert isinstance(action, RunTurn)
    assert all("output limit" in planned.problem for planned in action.calls)


# -- approvals ------------------------------------------------------------------------------------


def judged(
    decisions: Decisions, calls: Sequence[ToolCall], verdicts: dict[int, Any]
) -> tuple[Planned, ...] | Suspended:
    machine = Machine((*GO, calling(*calls)), tools=TOOLS, decisions=decisions)
    machine.next_action()
    machine.feed(Judged(verdicts))
    action = machine.next_action()
    if isinstance(action, RunTurn):
        return action.calls
    assert isinstance(action, End) and isinstance(action.state, Suspended)
    return action.state


def test_one_call_that_waits_holds_the_whole_turn() -> None:
    state = judged(Decisions(), [call("read"), call("send", MAIL)], {0: DENY, 1: ASK})
    assert isinstance(state, Suspended)
    (pending,) = state.pending
    assert pending.step == "tool/1/1/send"
    assert pending.reason == ASK.reason


def test_markers_stay_apart_where_a_gate_names_one_that_another_call_was_given() -> None:
    calls = [call("send", id=str(i)) for i in range(3)]
    verdicts = {0: NeedApproval("", "m"), 1: NeedApproval("", "m"), 2: NeedApproval("", "m-2")}
    state = judged(Decisions(), calls, verdicts)
    assert isinstance(state, Suspended)
    assert len({pending.marker for pending in state.pending}) == 3


def test_a_denial_wins_over_an_approval_of_the_same_marker() -> None:
    mail = call("send_email", MAIL)
    both = Decisions(approved=frozenset([MAIL_MARKER]), denied={MAIL_MARKER: "no"})
    planned = judged(both, [mail], {0: ASK})
    assert planned == (Planned(0, "tool/1/0/send_email", mail, Deny("no"), "a person"),)


def test_an_approval_does_not_lift_the_denial_of_todays_policy() -> None:
    mail = call("send_email", MAIL)
    planned = judged(Decisions(approved=frozenset([MAIL_MARKER])), [mail], {0: DENY})
    assert planned == (Planned(0, "tool/1/0/send_email", mail, DENY),)


def test_an_approval_is_not_for_an_equal_call_of_a_later_turn() -> None:
    approved = Decisions(approved=frozenset([MAIL_MARKER]))
    first = call("send_email", MAIL, id="1")
    machine = Machine((*GO, calling(first)), tools=["send_email"], decisions=approved)
    machine.next_action()
    machine.feed(Judged({0: ASK}))
    machine.feed(Finished(0, ToolResult()))
    machine.next_action()
    machine.feed(Replied(calling(call("send_email", MAIL, id="2"))))
    machine.feed(Judged({0: ASK}))
    assert machine.phase is Phase.SUSPENDED
    assert roles(machine.transcript) == ["user", "assistant", "tool", "assistant"]


def test_a_call_under_a_marker_that_its_gate_chose_is_not_pending_under_its_own() -> None:
    mail = call("send_email", MAIL)
    approved = Decisions(approved=frozenset([MAIL_MARKER]))
    with pytest.raises(NotPendingError) as caught:
        judged(approved, [mail], {0: NeedApproval("ask", "mail")})
    assert caught.value.pending == ("mail",)


def test_an_approval_that_todays_policy_no_longer_asks_for_is_no_error() -> None:
    mails = [call("send_email", MAIL, id="1"), call("send_email", MAIL, id="2")]
    approved = Decisions(approved=frozenset([MAIL_MARKER, f"{MAIL_MARKER}-2"]))
    planned = judged(approved, mails, {0: Allow(), 1: Allow()})
    assert isinstance(planned, tuple)
    assert [call.verdict for call in planned] == [Allow(), Allow()]


@pytest.mark.parametrize(
    "transcript", [GO, (*GO, saying("hello")), (*GO, calling(call("send_email", {"to": "eve"})))]
)
def test_a_decision_about_what_does_not_wait_is_refused(transcript: tuple[Message, ...]) -> None:
    machine = Machine(
        transcript, tools=["send_email"], decisions=Decisions(approved=frozenset([MAIL_MARKER]))
    )
    with pytest.raises(NotPendingError) as caught:
        machine.next_action()
        machine.feed(Judged({0: ASK}))
    assert caught.value.marker == MAIL_MARKER
    assert machine.transcript == transcript
    assert not machine.ended
