"""All recordings through all checks, counted by wire format and vendor."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.wire.asked import InexpressibleError
from tests.wire.recordings import Recording
from tests.wire.replies import (
    disagreements,
    final_response_faults,
    shape,
    split_faults,
    twin_key,
    verdict,
)
from tests.wire.requests import counts, request_faults, returned_faults
from trioagent.providers import Reply


@dataclass(slots=True)
class Sweep:
    """What was found.  `faults` is empty where everything holds."""

    verdicts: dict[tuple[str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    streams: int = 0
    twins: int = 0

    @property
    def total(self) -> int:
        """How many recordings were read."""
        return sum(sum(counter.values()) for counter in self.verdicts.values())


def sweep(recordings: Iterable[Recording], *, thorough: bool) -> Sweep:
    """Check every recording; whatever is raised that has no type is a fault like any other."""
    found = Sweep()
    twins: dict[str, dict[bool, list[Reply]]] = defaultdict(lambda: {True: [], False: []})
    for recording in recordings:
        where = f"{recording.id} ({recording.api}, {recording.provider})"
        try:
            faults = list(_reply_faults(found, recording, twins, thorough=thorough))
            faults += _request_faults(found, recording)
        except Exception as exc:
            faults = [f"{type(exc).__name__}: {exc}"]
        found.faults += [f"{where}: {fault}" for fault in faults]
    for key, pair in twins.items():
        if pair[True] and pair[False]:
            found.twins += 1
            shapes = {streamed: {repr(shape(r)) for r in pair[streamed]} for streamed in pair}
            if shapes[True] != shapes[False]:
                found.faults.append(f"twins differ: {shapes}: {key[:80]}")
    return found


def _reply_faults(
    found: Sweep,
    recording: Recording,
    twins: dict[str, dict[bool, list[Reply]]],
    *,
    thorough: bool,
) -> Iterator[str]:
    kind, reply = verdict(recording)
    found.verdicts[recording.api, recording.provider][kind] += 1
    if not isinstance(reply, Reply):
        if kind == "refused":
            found.refused[str(reply)] += 1
        else:
            found.errors[type(reply).__name__] += 1
        return
    yield from disagreements(recording, reply)
    yield from final_response_faults(recording, reply)
    yield from returned_faults(recording, reply)
    if recording.streaming:
        found.streams += 1
        yield from split_faults(recording, reply, thorough=thorough)
    key = twin_key(recording)
    if key is not None:
        twins[key][recording.streaming].append(reply)


def _request_faults(found: Sweep, recording: Recording) -> list[str]:
    if not counts(recording):
        return []
    try:
        faults = list(request_faults(recording))
    except InexpressibleError as exc:
        found.requests["no place for it in messages"] += 1
        return [f"no place in messages: {recording.api}: {exc}"]
    found.requests["differs" if faults else "means the same"] += 1
    return faults


def report(found: Sweep) -> Iterator[str]:
    """The figures as lines of text."""
    yield f"{'api':20} {'provider':16} {'read':>6} {'typed error':>12} {'refused':>8}"
    totals: Counter[str] = Counter()
    for (api, provider), counter in sorted(found.verdicts.items()):
        totals += counter
        yield _row(api, provider, counter)
    yield _row("all", f"{found.total} exchanges", totals)
    yield ""
    yield f"typed errors: {_listed(found.errors)}"
    yield f"refused with a reason: {_listed(found.refused)}"
    yield f"streams that give the same reply however they are split: {found.streams}"
    yield f"pairs of a stream and its whole twin that agree: {found.twins}"
    yield f"requests with tool results, read and written again: {_listed(found.requests)}"
    yield f"faults: {len(found.faults)}"
    yield from [f"  {fault[:400]}" for fault in found.faults]


def _row(api: str, provider: str, counter: Counter[str]) -> str:
    read, errors, refused = (counter[name] for name in ("read", "typed error", "refused"))
    return f"{api:20} {provider:16} {read:6} {errors:12} {refused:8}"


def _listed(counter: Counter[str]) -> str:
    return "; ".join(f"{count} {name}" for name, count in counter.most_common()) or "none"
