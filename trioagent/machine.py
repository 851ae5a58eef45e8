"""The machine that decides what a run does next.  (pure)

It takes values and gives values: no clock, no task, no input or output.  Somebody asks
`next_action()`, does what it says, and feeds back what came of it; the answer to the next
`next_action()` follows from nothing else.  One iteration goes down this page:

    ready     limits are checked, then the model is asked
    asking    a model call is out
    judging   the gate is asked about the turn's calls
    acting    the turn's calls run, and end in any order
    answered, halted, suspended, failed    nothing more happens

`TRANSITIONS` holds every row; the diagram in the README is made from it.

Invariants, kept here and checked under hypothesis for any mix of replies, verdicts, finishing
orders, limits and resumes:

1.  The transcript is always one that `check_transcript` takes, and only ever grows.
2.  The system prompt is its first message, once, or nowhere.
3.  Model call `max_iter + 1` since the last user message is never asked for.
4.  No call is planned to run while more than `max_tokens` are used, nor in a turn that would take
    the calls past `max_tool_calls`.
5.  A turn is planned only when every call in it is allowed, approved, denied, known to fail or the
    answer itself; a denied call is planned as denied.
6.  Results stand in call order, whatever order they finished in.
7.  `usage` is the sum of the usages of the assistant messages since the last user message.
8.  A machine made from another's transcript at a turn's boundary goes on as that one does.
9.  An ended machine stays as it ended.
10. A reply that has a `problem` never is the answer: the model reads the problem, and is asked
    again only within the limits.

The answer of a run that was asked for a form is either a text, as ever, or the call of a tool that
nobody runs, alone in its turn.  Such a call is answered like any other, so that a question may
follow it.  Whoever feeds a reply has judged it and says so in it, so a replay judges nothing.

What it leaves out: how a call is run, recorded or shown; whether a recorded one runs again.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from .actions import (
    NO_DECISIONS,
    Action,
    AskGate,
    AskModel,
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
from .budget import UNLIMITED, Budget
from .errors import NotPendingError, TranscriptError, UsageMissingError
from .events import Answered, Halted, HaltReason, Pending, State, Suspended
from .gate import ALLOW, Deny, NeedApproval, Verdict, default_marker
from .messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    check_transcript,
    correction,
    unanswered,
    with_unique_ids,
)

CUT_REPLY = (
    "the output limit cut this reply, so the arguments of its calls may be incomplete and none "
    "of them was run; ask again with less at once"
)


ANSWER_BESIDE = (
    "the answer was given beside other calls, so before their results were there; read those, "
    "then give the answer in a call alone"
)


class Phase(enum.StrEnum):
    """Where a run stands."""

    START = "start"
    READY = "ready"
    ASKING = "asking"
    JUDGING = "judging"
    ACTING = "acting"
    ANSWERED = "answered"
    HALTED = "halted"
    SUSPENDED = "suspended"
    FAILED = "failed"


TRANSITIONS: Mapping[Phase, Mapping[str, tuple[Phase, ...]]] = {
    Phase.START: {
        "begin": (Phase.READY, Phase.JUDGING, Phase.ACTING, Phase.ANSWERED, Phase.HALTED),
        "Broke": (Phase.FAILED,),
    },
    Phase.READY: {"limits": (Phase.ASKING, Phase.HALTED), "Broke": (Phase.FAILED,)},
    Phase.ASKING: {
        "Replied": (Phase.JUDGING, Phase.ACTING, Phase.READY, Phase.ANSWERED, Phase.HALTED),
        "Expired": (Phase.HALTED,),
        "Broke": (Phase.FAILED,),
    },
    Phase.JUDGING: {"Judged": (Phase.ACTING, Phase.SUSPENDED), "Broke": (Phase.FAILED,)},
    Phase.ACTING: {
        "Finished": (Phase.ACTING, Phase.READY, Phase.ANSWERED),
        "Broke": (Phase.FAILED,),
    },
    Phase.ANSWERED: {},
    Phase.HALTED: {},
    Phase.SUSPENDED: {},
    Phase.FAILED: {},
}


class Machine:
    """One run's decisions, from a transcript on.

    Args:
        transcript: what was said so far; a system message in it is replaced by `system`, if given.
        system: the system prompt, or "" for none.
        tools: the names of the known tools; a call of any other is not put to the gate.
        max_iter: model calls allowed since the last user message, from 1.
        budget: the other limits.
        decisions: what people decided about the calls that wait.
        cost_of: what a reply costs, for the budget's `max_cost`.
        replied: the last iteration whose reply is recorded, 0 for none.  Limits hold for work, and
            what is only replayed up to there is none: a lower limit never undoes an answer.
        answer_tool: the name of the tool whose call is the answer, where the run has one.  Its
            calls are put to no gate and count against no `max_tool_calls`.

    Raises:
        TranscriptError: for a transcript that no model would take, or one with nothing to answer.
        ValueError: for a `max_iter` below 1.
    """

    def __init__(
        self,
        transcript: Sequence[Message],
        *,
        system: str = "",
        tools: Collection[str] = (),
        max_iter: int = 8,
        budget: Budget = UNLIMITED,
        decisions: Decisions = NO_DECISIONS,
        cost_of: Callable[[AssistantMessage], float] | None = None,
        replied: int = 0,
        answer_tool: str | None = None,
    ) -> None:
        if max_iter < 1:
            raise ValueError(f"max_iter counts from 1, not {max_iter}")
        self._messages = _with_system(transcript, system)
        check_transcript(self._messages)
        if all(type(message) is SystemMessage for message in self._messages):
            raise TranscriptError("there is nothing to answer; give at least one user message")
        self._tools = tools
        self._max_iter = max_iter
        self._budget = budget
        self._decisions = decisions
        self._cost_of = cost_of
        self._known = replied
        self._answer_tool = answer_tool
        self._problem = ""
        self._answer: AssistantMessage | None = None
        self._phase = Phase.START
        self._action: Action | None = None
        self._turn: tuple[ToolCall, ...] = ()
        self._results: dict[int, ToolResult] = {}
        self._ids: set[str] = set()
        self._tainted = False
        self._must_match = False
        self._count()

    def _count(self) -> None:
        """Count what the limits count, from the transcript since its last user message."""
        usage = Usage()
        replies = calls = 0
        cost, uncounted = 0.0, False
        before: Message | None = None
        for message in self._messages:
            if type(message) is UserMessage and not _corrects(message, before):
                usage, replies, calls = Usage(), 0, 0
                cost, uncounted = 0.0, False
            elif type(message) is AssistantMessage:
                usage += message.usage
                cost += self._price(message)
                uncounted = uncounted or message.usage_missing
                replies += 1
                calls += self._countable(message.tool_calls)
                self._ids.update(call.id for call in message.tool_calls)
            elif type(message) is ToolMessage:
                self._tainted = True
            before = message
        self._usage, self._replies, self._calls = usage, replies, calls
        self._cost, self._uncounted = cost, uncounted

    def _countable(self, calls: Sequence[ToolCall]) -> int:
        """How many of `calls` count against `max_tool_calls`."""
        if self._answer_tool is None:
            return len(calls)
        return sum([call.name != self._answer_tool for call in calls])

    def _price(self, message: AssistantMessage) -> float:
        if self._budget.max_cost is None or self._cost_of is None:
            return 0.0
        return self._cost_of(message)

    def _check_counted(self) -> None:
        """Refuse to go on under a budget whose use is not known."""
        if not self._uncounted:
            return
        if self._budget.max_tokens is not None or self._budget.max_cost is not None:
            raise UsageMissingError(
                "a reply came without token counts, so the budget cannot be kept; ask the vendor "
                "for them, or run without max_tokens and max_cost"
            )

    # -- what it holds ----------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Where the run stands."""
        return self._phase

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return not TRANSITIONS[self._phase]

    @property
    def transcript(self) -> tuple[Message, ...]:
        """Everything said so far."""
        return tuple(self._messages)

    @property
    def usage(self) -> Usage:
        """Tokens used since the last user message."""
        return self._usage

    def adopted(self, reply: AssistantMessage) -> AssistantMessage:
        """`reply` with ids that are unique in this run: what is to be recorded and fed."""
        return with_unique_ids(reply, self._replies + 1, self._ids)

    # -- what to do next --------------------------------------------------------------------------

    def next_action(self, seconds: float = 0.0) -> Action | None:
        """What to do now, `seconds` being how long processes have held the run.

        The same action is given until it is fed back; ``None`` after a failure.
        """
        if self._phase is Phase.START:
            self._begin()
        if self._phase is Phase.READY:
            self._check_limits(seconds)
        return self._action

    def _begin(self) -> None:
        last = self._messages[-1]
        waiting = unanswered(self._messages)
        if self._decisions.iter == 0 and self._decisions.markers:
            if not waiting:
                raise NotPendingError(min(self._decisions.markers), ())
            self._decisions = msgspec.structs.replace(self._decisions, iter=self._replies)
            self._must_match = True
        if waiting:
            reply, done = self._last_turn()
            self._take_turn("begin", reply, reply.tool_calls, done)
        elif type(last) is AssistantMessage:
            self._take_text("begin", last)
        elif type(last) is ToolMessage and self._is_answer(reply := self._last_turn()[0]):
            self._end("begin", Phase.ANSWERED, self._answered(reply))
        else:
            self._go("begin", Phase.READY)

    def _check_limits(self, seconds: float) -> None:
        """Limits come before the work they limit: iterations, tokens, cost, deadline, in order."""
        if self._replies < self._known:
            self._ask()
            return
        self._check_counted()
        budget = self._budget
        used = self._usage.total_tokens
        if self._replies >= self._max_iter:
            self._halt("limits", "max_iter", self._replies, self._max_iter)
        elif budget.max_tokens is not None and used >= budget.max_tokens:
            self._halt("limits", "tokens", used, budget.max_tokens)
        elif budget.max_cost is not None and self._cost >= budget.max_cost:
            self._halt("limits", "cost", self._cost, budget.max_cost)
        elif budget.max_seconds is not None and seconds >= budget.max_seconds:
            self._halt("limits", "deadline", seconds, budget.max_seconds)
        else:
            self._ask()

    def _ask(self) -> None:
        iteration = self._replies + 1
        self._go("limits", Phase.ASKING)
        self._action = AskModel(iteration, f"llm/{iteration}", tuple(self._messages))

    # -- what came of it --------------------------------------------------------------------------

    def feed(self, fed: Fed) -> None:
        """Take in what came of the last action.

        Raises:
            NotPendingError: a decision about a call that does not wait for one.
            RuntimeError: nothing of this kind is awaited now.
        """
        if type(fed).__name__ not in TRANSITIONS[self._phase]:
            raise RuntimeError(f"a run that is {self._phase.value} takes no {type(fed).__name__}")
        if type(fed) is Finished:
            self._finished(fed.index, fed.result)
        elif type(fed) is Replied:
            self._replied(fed.message)
        elif type(fed) is Judged:
            self._judged(fed.verdicts)
        elif type(fed) is Expired:
            limit = self._budget.max_seconds
            assert limit is not None
            self._halt("Expired", "deadline", fed.seconds, limit)
        else:
            self._action = None
            self._go("Broke", Phase.FAILED)

    def _replied(self, message: AssistantMessage) -> None:
        calls = message.tool_calls
        self._messages.append(message)
        self._replies += 1
        self._calls += self._countable(calls)
        self._usage += message.usage
        self._cost += self._price(message)
        self._uncounted = self._uncounted or message.usage_missing
        self._ids.update([call.id for call in calls])
        if calls:
            self._take_turn("Replied", message, calls, {})
        else:
            self._take_text("Replied", message)

    def _take_text(self, event: str, reply: AssistantMessage) -> None:
        """The last message is a reply without calls: the answer, unless something is wrong."""
        if reply.problem:
            self._messages.append(correction(reply))
            self._action = None
            self._go(event, Phase.READY)
        else:
            self._end(event, Phase.ANSWERED, self._answered(reply))

    def _is_answer(self, reply: AssistantMessage) -> bool:
        """Whether `reply` is the call of the answer tool, whole, alone and right."""
        if self._answer_tool is None or reply.problem or reply.stop_reason == "length":
            return False
        return [call.name for call in reply.tool_calls] == [self._answer_tool]

    def _take_turn(
        self,
        event: str,
        reply: AssistantMessage,
        calls: tuple[ToolCall, ...],
        done: Mapping[str, ToolResult],
    ) -> None:
        """The last reply has calls to answer, some of them `done`: may the turn go on at all?"""
        self._turn = calls
        self._problem = reply.problem
        if self._is_answer(reply):
            # An answer stands where it took the run past a limit too, as one without a call does.
            self._answer, (call,) = reply, calls
            self._results = {}
            self._go(event, Phase.ACTING)
            name = f"tool/{self._replies}/0/{_safe(call.name)}"
            planned = [Planned(0, name, call, answer=True)]
            self._action = RunTurn(self._replies, tuple(planned), self._tainted)
            return
        self._check_counted()
        todo = dict(enumerate(calls))
        self._results = {}
        if done:
            self._results = {i: done[call.id] for i, call in todo.items() if call.id in done}
            todo = {i: call for i, call in todo.items() if call.id not in done}
        prefix = f"tool/{self._replies}/"
        steps = {i: f"{prefix}{i}/{_safe(call.name)}" for i, call in todo.items()}
        budget = UNLIMITED if self._replies < self._known else self._budget
        used = self._usage.total_tokens
        if budget.max_tokens is not None and used > budget.max_tokens:
            self._halt(event, "tokens", used, budget.max_tokens)
        elif reply.stop_reason == "length":
            self._go(event, Phase.ACTING)
            planned = [Planned(i, steps[i], todo[i], problem=CUT_REPLY) for i in todo]
            self._action = RunTurn(self._replies, tuple(planned), self._tainted)
        elif budget.max_tool_calls is not None and self._calls > budget.max_tool_calls:
            self._halt(event, "tool_calls", self._calls, budget.max_tool_calls)
        else:
            self._go(event, Phase.JUDGING)
            self._action = AskGate(self._replies, todo, steps, self._tainted)

    def _last_turn(self) -> tuple[AssistantMessage, dict[str, ToolResult]]:
        """The last assistant message, and the results after it by call id."""
        done: dict[str, ToolResult] = {}
        for message in reversed(self._messages):
            if isinstance(message, AssistantMessage):
                return message, done
            assert isinstance(message, ToolMessage)
            done[message.call_id] = ToolResult(message.parts, message.outcome)
        raise AssertionError("a turn without an assistant message")

    def _judged(self, verdicts: Mapping[int, Verdict]) -> None:
        asked = self._action
        assert type(asked) is AskGate
        # A decision is for the calls that waited, never for an equal call of a later turn.
        decisions = self._decisions if self._decisions.iter == asked.iter else NO_DECISIONS
        asks = bool(verdicts) and any(type(v) is NeedApproval for v in verdicts.values())
        asks = asks or self._must_match or bool(decisions.denied)
        markers = _markers(asked.calls, verdicts) if asks else {}
        # The marker of a call that today's policy allows by itself is known, though of no use.
        if self._must_match and (unknown := decisions.markers - set(markers.values())):
            waiting = [m for i, m in markers.items() if isinstance(verdicts.get(i), NeedApproval)]
            raise NotPendingError(min(unknown), waiting)
        planned: list[Planned] = []
        pending: list[Pending] = []
        steps = asked.steps
        for index, call in asked.calls.items():
            if call.name == self._answer_tool:
                problem = self._problem or ANSWER_BESIDE
                planned.append(Planned(index, steps[index], call, problem=problem))
                continue
            verdict = verdicts.get(index, ALLOW)
            reason = self._person_denied(decisions, markers.get(index), steps[index])
            denied_by = "policy"
            if reason is not None and not isinstance(verdict, Deny):
                # A gate that is asked again can tighten what a person decided, never loosen it.
                verdict, denied_by = Deny(reason), "a person"
            elif isinstance(verdict, NeedApproval):
                marker = markers[index]
                if marker not in decisions.approved:
                    pending.append(Pending(marker, call, verdict.reason, steps[index]))
                    continue
                verdict = ALLOW
            planned.append(Planned(index, steps[index], call, verdict, denied_by))
        if pending:
            state = Suspended(pending=tuple(pending), transcript=self.transcript, usage=self._usage)
            self._end("Judged", Phase.SUSPENDED, state)
        else:
            self._go("Judged", Phase.ACTING)
            self._action = RunTurn(asked.iter, tuple(planned), asked.tainted)

    @staticmethod
    def _person_denied(decisions: Decisions, marker: str | None, step: str) -> str | None:
        """Why a person denied the call, or nothing."""
        by_step = decisions.denied_steps.get(step)
        if by_step is not None or marker is None:
            return by_step
        return decisions.denied.get(marker)

    def _finished(self, index: int, result: ToolResult) -> None:
        """A result counts once, and only for a call of the turn; the turn is told when whole."""
        calls, results = self._turn, self._results
        if index in results or not 0 <= index < len(calls):
            raise RuntimeError(f"call {index} of the turn is not running")
        results[index] = result
        if len(results) < len(calls):
            return  # more of the turn is on its way
        messages = self._messages
        while type(messages[-1]) is ToolMessage:
            messages.pop()
        messages.extend([results[index].answering(call) for index, call in enumerate(calls)])
        self._tainted = True
        self._action = None
        if self._answer is None:
            self._go("Finished", Phase.READY)
        else:
            self._end("Finished", Phase.ANSWERED, self._answered(self._answer))

    # -- how it moves -----------------------------------------------------------------------------

    def _go(self, event: str, phase: Phase) -> None:
        assert phase in TRANSITIONS[self._phase][event], (self._phase, event, phase)
        self._phase = phase

    def _halt(self, event: str, reason: HaltReason, used: float, limit: float) -> None:
        state = Halted(
            reason=reason, used=used, limit=limit, transcript=self.transcript, usage=self._usage
        )
        self._end(event, Phase.HALTED, state)

    def _end(self, event: str, phase: Phase, state: State) -> None:
        self._go(event, phase)
        self._action = End(state)

    def _answered(self, message: AssistantMessage) -> Answered:
        return Answered(message=message, transcript=self.transcript, usage=self._usage)


def _corrects(message: UserMessage, before: Message | None) -> bool:
    """Whether `message` only says what was wrong with the reply `before` it."""
    return (
        type(before) is AssistantMessage
        and bool(before.problem)
        and (message == correction(before))
    )


def _with_system(transcript: Sequence[Message], system: str) -> list[Message]:
    messages = list(transcript)
    if system:
        if messages and type(messages[0]) is SystemMessage:
            del messages[0]
        messages.insert(0, SystemMessage(system))
    return messages


def _markers(calls: Mapping[int, ToolCall], verdicts: Mapping[int, Verdict]) -> dict[int, str]:
    """The marker of every call by its index, each one different.

    Equal calls are counted over the whole turn, so that a marker stays the same when its twin is
    approved and has started.
    """
    markers: dict[int, str] = {}
    taken: set[str] = set()
    for index, call in calls.items():
        verdict = verdicts.get(index, ALLOW)
        given = verdict.marker if isinstance(verdict, NeedApproval) else None
        base = marker = default_marker(call) if given is None else given
        number = 1
        while marker in taken:
            number += 1
            marker = f"{base}-{number}"
        taken.add(marker)
        markers[index] = marker
    return markers


_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


@functools.lru_cache(maxsize=256)
def _safe(name: str) -> str:
    """A name that the model made up is cut to what a step name may hold."""
    return _UNSAFE.sub("_", name)[:64]
