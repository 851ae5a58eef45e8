"""Every exception of the library, grouped by who raises it.  (pure)

One class per thing that a caller would do differently.  An error that ended a run carries the
run's `transcript` and `usage` as far as they came.  No error text holds a credential.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .events import Pending
    from .messages import Message, Usage


class TrioagentError(Exception):
    """The root.  `transcript` and `usage` are what the run had when it ended, if one did."""

    transcript: tuple[Message, ...] = ()
    usage: Usage | None = None


# -- what a caller gave ---------------------------------------------------------------------------


class EncodingError(TrioagentError, ValueError):
    """JSON has no form for a value, or bytes are not what they should be."""


class TranscriptError(TrioagentError, ValueError):
    """A transcript that no model would take; nothing was asked."""


class PriceError(TrioagentError, LookupError):
    """A model without a price under a cost budget; nothing was asked."""

    def __init__(self, model: str) -> None:
        self.model = model
        super().__init__(
            f"the model {model!r} has no price, so max_cost cannot be kept; "
            "give prices={...} with a Price for it"
        )


class ToolSignatureError(TrioagentError, TypeError):
    """A function whose signature has no JSON schema; raised where the tool is made."""


class NotPendingError(TrioagentError, LookupError):
    """An approval or denial of something that does not wait for one; nothing was recorded."""

    def __init__(self, marker: str, pending: Sequence[str]) -> None:
        self.marker = marker
        self.pending = tuple(pending)
        waiting = ", ".join(self.pending) if self.pending else "nothing"
        super().__init__(f"no pending call has the marker {marker!r}; pending: {waiting}")


# -- how a run ended, raised by `unwrap` ----------------------------------------------------------


class RunError(TrioagentError):
    """An expected end that is no answer; `state.unwrap()` raises it."""


class MaxIterationsError(RunError):
    """The model was called as often as `max_iter` allows and still wants tools."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"no answer within {limit} model calls; raise max_iter to go on")


class BudgetError(RunError):
    """A budget ended the run.  `resource` is tokens, tool_calls, cost or deadline (seconds)."""

    def __init__(self, resource: str, used: float, limit: float) -> None:
        self.resource = resource
        self.used = used
        self.limit = limit
        super().__init__(f"{resource} budget: {used:g} of {limit:g} used; raise it to go on")


class ApprovalError(RunError):
    """The run waits for approvals; `pending` says of what."""

    def __init__(self, pending: Sequence[Pending]) -> None:
        self.pending = tuple(pending)
        calls = ", ".join(f"{p.call.name} ({p.marker})" for p in self.pending)
        super().__init__(f"waiting for approval of {calls}; approve or deny each marker")


# -- providers ------------------------------------------------------------------------------------


class ProviderError(TrioagentError):
    """A model call failed; no tool ran, and running again asks again.

    `retryable` says whether the same request may succeed later, `retry_after` after how many
    seconds the vendor asks for it, `status` the HTTP status where there was one.
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RateLimitError(ProviderError):
    """The vendor takes no more requests for now."""

    retryable = True


class OverloadedError(ProviderError):
    """The vendor has too much to do for now."""

    retryable = True


class UnavailableError(ProviderError):
    """No answer: a connection that failed, a time-out, a 5xx."""

    retryable = True


class ProtocolError(ProviderError):
    """The answer is not what the wire format allows, or it ends without its end."""

    retryable = True


class ContextLengthError(ProviderError):
    """The request is longer than the model's context."""


class ContentFilterError(ProviderError):
    """The vendor's filter refused the request."""


class AuthenticationError(ProviderError):
    """The credential is missing, wrong or not allowed to do this."""


class InvalidRequestError(ProviderError):
    """The vendor does not take the request as it is."""


class UsageMissingError(ProviderError):
    """A reply came without token counts, so a token or cost budget cannot be kept any further.

    The reply stands in the transcript; the run goes on without such a budget, or with a provider
    that reports counts (`OpenAIChat` asks for them unless ``include_usage=False``).
    """


# -- steps and the journal ------------------------------------------------------------------------


class StepError(TrioagentError):
    """A step could not be run or replayed; its run ends.  `step` is the step's name."""

    step: str = ""


class UnknownOutcomeError(StepError):
    """A write was begun and nobody recorded how it ended, so it is not run again by itself."""

    def __init__(self, run_id: str, step: str) -> None:
        self.run_id = run_id
        self.step = step
        super().__init__(
            f"{run_id}: the write {step} was begun and its outcome never recorded; find out "
            "whether it took effect, then resolve it with Applied(result) or NotApplied(by=...)"
        )


class ReplayMismatchError(StepError):
    """What is asked now is not what was recorded under the same name; nothing was run."""

    def __init__(self, message: str, *, step: str = "") -> None:
        self.step = step
        super().__init__(message)


class InputMismatchError(ReplayMismatchError):
    """The run id already has another input."""


class DuplicateStepError(StepError):
    """The same step name twice in one run."""

    def __init__(self, step: str) -> None:
        self.step = step
        super().__init__(f"the step {step} was already asked for; each step needs its own name")


class StepFailedError(StepError):
    """The body of a `run.step` raised: `error_type` and `message` are what was recorded of it."""

    def __init__(self, step: str, error_type: str, message: str) -> None:
        self.step = step
        self.error_type = error_type
        self.message = message
        super().__init__(f"{step}: {error_type}: {message}")


class FencedError(StepError):
    """Another owner took the run over; this one may record nothing more."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"{run_id}: another owner has taken this run over; nothing was recorded")


class RunOwnedError(StepError):
    """Somebody else holds the run."""

    def __init__(self, run_id: str, action: str) -> None:
        self.run_id = run_id
        super().__init__(f"{run_id} is owned by a live owner, so it cannot be {action} now")


class JournalError(StepError):
    """The journal could not do what was asked (a full disk, an input/output error, ...)."""


class JournalFormatError(JournalError):
    """The file is no journal, or of a newer version; nothing in it was changed."""


class JournalCorruptError(JournalError):
    """A record that fails its checksum or a payload that is not there; nothing was changed."""
