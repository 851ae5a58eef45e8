"""Several models as one: where one fails, the next is asked."""

from __future__ import annotations

from collections.abc import Sequence

from trioagent.errors import (
    OverloadedError,
    ProviderError,
    RateLimitError,
    UnavailableError,
)
from trioagent.events import ModelReset
from trioagent.messages import AssistantMessage
from trioagent.provider import Delta, Emit, Provider, Request, Structured


class FallbackProvider:
    """The first of `providers` that answers.

    Each call begins with the first one.  One that fails with an error of the kinds in `on`, its
    own retries used up, is followed by the next; where something of its reply was shown, a
    `ModelReset` is emitted first.  Any other error is raised as it is, and so is the last one's;
    a note on it tells of those before.

    Args:
        providers: in the order in which they are asked; at least one.
        on: the kinds of error that the next one is asked after.

    Raises:
        ValueError: no provider.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        on: tuple[type[ProviderError], ...] = (
            RateLimitError,
            OverloadedError,
            UnavailableError,
        ),
    ) -> None:
        if not providers:
            raise ValueError("a FallbackProvider needs at least one provider")
        self._providers = tuple(providers)
        self._on = tuple(on)

    @property
    def model(self) -> str:
        """The models' names, joined by ``|``: another order is another configuration."""
        return "|".join([provider.model for provider in self._providers])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that may answer, each of which needs a price under a cost budget."""
        return tuple(
            [
                model
                for provider in self._providers
                for model in getattr(provider, "models", (provider.model,))
            ]
        )

    @property
    def structured(self) -> Structured:
        """``schema`` where all of them have a schema mode, since each may be the one to answer."""
        said = {getattr(provider, "structured", "tool") for provider in self._providers}
        return "schema" if said == {"schema"} else "tool"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        """The reply of the first provider that gives one.

        Raises:
            ProviderError: of a kind that is not in `on`, or the last provider's.

        Cancellation: that of the provider under way.
        """
        shown = False

        def show(delta: Delta) -> None:
            nonlocal shown
            shown = not isinstance(delta, ModelReset)
            emit(delta)

        failed: list[str] = []
        *others, last = self._providers
        for provider in others:
            try:
                return await provider.complete(request, show)
            except self._on as exc:
                failed.append(f"{provider.model}: {type(exc).__name__}: {exc}")
            if shown:
                show(ModelReset())
        try:
            return await last.complete(request, show)
        except ProviderError as exc:
            if failed:
                exc.add_note("asked before it: " + "; ".join(failed))
            raise
