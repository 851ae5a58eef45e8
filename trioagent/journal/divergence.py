"""Where two runs part: the first step that differs, and what differs in it.  (pure)

A run is compared as what it did: its input and configuration, its steps in the order of the loop,
what people decided, and how it ended.  When something happened, who owned the run, how often a
read was tried and in which order parallel tools finished is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from trioagent.messages import (
    ToolCall,
    ToolMessage,
    decode_assistant,
    decode_messages,
    decode_result,
)

from .difference import first_difference
from .fold import split_step
from .recording import Recording
from .records import Changed, Decided, Record, Started, Stopped, read_data

SHOWN = 120
"""Characters of an outcome that a line shows."""

AROUND = 3
"""Lines that are shown before the place where two runs part."""


NOTHING = "(nothing)"
"""What is shown on the side that has none."""


class Item(msgspec.Struct, frozen=True):
    """A thing that a run did: its name, such as a step's, what is compared, and a line to show."""

    name: str
    data: bytes
    shown: str


class Divergence(msgspec.Struct, frozen=True):
    """The first thing in which two runs differ.

    `recorded` and `found` show it on either side, "" where that side has none; `difference` says
    what differs within it, and `around` shows what came before it.
    """

    name: str
    recorded: str
    found: str
    difference: str
    around: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.difference}", *[f"    {line}" for line in self.around]]
        if self.recorded != self.found:
            lines.append(f"  - {self.recorded or NOTHING}")
            lines.append(f"  + {self.found or NOTHING}")
        return "\n".join(lines)


def diverge(recorded: Recording, now: Recording) -> Divergence | None:
    """Where `now` first differs from `recorded`; ``None`` where it does not.

    Raises:
        JournalCorruptError: a record of either that cannot be read.
    """
    was, is_now = items(recorded), items(now)
    for place in range(max(len(was), len(is_now))):
        left = was[place] if place < len(was) else None
        right = is_now[place] if place < len(is_now) else None
        difference = differ(left, right)
        if difference is not None:
            named = left or right
            assert named is not None
            return Divergence(
                named.name,
                "" if left is None else left.shown,
                "" if right is None else right.shown,
                difference,
                shown_before(was, place),
            )
    return None


def differ(recorded: Item | None, now: Item | None) -> str | None:
    """What differs between two items in the same place; ``None`` for nothing."""
    if recorded is None:
        return "it was not recorded"
    if now is None:
        return "it was recorded and does not happen"
    if recorded.name != now.name:
        return f"{recorded.name} was recorded and {now.name} happens"
    if recorded.data == now.data:
        return None
    try:
        return first_difference(recorded.data, now.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "its bytes are others"


def shown_before(all_items: Sequence[Item], place: int) -> tuple[str, ...]:
    """The lines of the items before `place`."""
    return tuple([item.shown for item in all_items[max(0, place - AROUND) : place]])


# -- a run as items -------------------------------------------------------------------------------


def items(recording: Recording) -> list[Item]:
    """What a run did, in order."""
    found: list[Item] = []
    outcomes = {r.step: r for r in recording.records if r.kind == "step.completed"}
    begun: set[str] = set()
    for record in recording.records:
        if record.kind == "step.started":
            if record.step not in begun:
                begun.add(record.step)
                found.append(step_item(record.step, outcomes.get(record.step)))
        elif record.kind != "step.completed":
            found += _other_items(record, recording)
    return _in_call_order(found)


def step_item(name: str, outcome: Record | None) -> Item:
    """A step with its outcome, or without one."""
    if outcome is None:
        return Item(name, b"null", f"{name}  (no outcome)")
    return Item(name, outcome.data, f"{name}  {shown_outcome(name, outcome.data)}")


def shown_outcome(name: str, data: bytes) -> str:
    """The outcome of a step as a line."""
    inner = split_step(name)[1]
    try:
        if inner.startswith("llm/"):
            message = decode_assistant(data)
            calls = [_shown_call(call) for call in message.tool_calls]
            return _line(" ".join([*([message.text] if message.text else []), *calls]))
        if inner.startswith("tool/"):
            result = decode_result(data)
            return _line(ToolMessage("", "", result.parts, result.outcome).text)
    except Exception as exc:  # what cannot be read is shown as what it is
        return f"({type(exc).__name__})"
    return _line(data.decode("utf-8", "backslashreplace"))


def _shown_call(call: ToolCall) -> str:
    return f"calls {call.name} {call.arguments}"


def _line(text: str) -> str:
    escaped = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return escaped if len(escaped) <= SHOWN else f"{escaped[:SHOWN]}…"


def _other_items(record: Record, recording: Recording) -> list[Item]:
    where = record.step or "run"
    match record.kind:
        case "run.started":
            started = read_data(record, Started)
            config = recording.configs.get(started.config, b"")
            return _begun(where, config, bytes(started.input))
        case "signal" if record.tag in ("approved", "denied"):
            decided = read_data(record, Decided)
            data = msgspec.json.encode({"decision": record.tag, "reason": decided.reason})
            return [Item(f"{record.step} decided", data, f"{record.step}  {record.tag}")]
        case "signal" if record.tag == "changed":
            changed = read_data(record, Changed)
            config = recording.configs.get(changed.config, b"")
            return _begun(f"{where} changed", config, bytes(changed.input))
        case "run.stopped":
            stopped = read_data(record, Stopped)
            told = {"end": record.tag, "reason": stopped.reason, "error": stopped.error_type}
            shown = " ".join([record.tag, stopped.reason, stopped.error_type]).strip()
            return [Item(f"{where} ends", msgspec.json.encode(told), f"{where}  {shown}")]
        case "run.completed":
            data = msgspec.json.encode({"end": record.tag, "reason": "", "error": ""})
            return [Item(f"{where} ends", data, f"{where}  {record.tag}")]
    return []


def _begun(where: str, config: bytes, given: bytes) -> list[Item]:
    found = [config_item(config, where)] if config else []
    return [*found, input_item(given, where)] if given else found


def config_item(config: bytes, where: str = "run") -> Item:
    """A configuration, as canonical JSON; no line of it would say more than its difference."""
    return Item(f"{where} configuration", config, f"{where} configuration")


def input_item(given: bytes, where: str = "run") -> Item:
    """The input, as the JSON of its messages."""
    said = " ".join([message.text for message in decode_messages(given)])
    return Item(f"{where} input", given, f"{where} input  {_line(said)}")


def _in_call_order(found: Iterable[Item]) -> list[Item]:
    """The tools of one turn in the model's order, whichever of them began first."""
    ordered: list[Item] = []
    turn: list[Item] = []
    for item in found:
        if turn and _turn_of(item.name) != _turn_of(turn[0].name):
            ordered += sorted(turn, key=_index_of)
            turn = []
        if _turn_of(item.name):
            turn.append(item)
        else:
            ordered.append(item)
    return [*ordered, *sorted(turn, key=_index_of)]


def _turn_of(name: str) -> str:
    prefix, inner = split_step(name)
    parts = inner.split("/")
    # What a person decided about a step is none.
    if len(parts) < 4 or parts[0] != "tool" or " " in inner:
        return ""
    return f"{prefix}{parts[1]}"


def _index_of(item: Item) -> int:
    index = split_step(item.name)[1].split("/")[2]
    return int(index) if index.isdecimal() else 0
