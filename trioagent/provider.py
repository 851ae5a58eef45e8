"""What the loop asks of a model: one request, deltas while it comes, one message.  (pure)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from .events import ModelReset, TextDelta, ThinkingDelta
from .messages import AssistantMessage, Message

Delta: TypeAlias = TextDelta | ThinkingDelta | ModelReset
Emit: TypeAlias = Callable[[Delta], None]

Structured: TypeAlias = Literal["schema", "tool"]
"""How a model is made to answer in a form: by a schema for its text, or by a tool to call."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it; `parameters` is the JSON schema of an object."""

    name: str
    description: str
    parameters: dict[str, Any]


AUTO = "auto"
"""The model chooses whether to call a tool."""


class CallOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the model is to answer; ``None`` or () leaves it to the vendor.

    They mean the same for every vendor.  One that a vendor lacks is an `InvalidRequestError` that
    names it, before anything is sent; none is ever dropped.

    `temperature`, `top_p`: the vendor's own ranges.
    `max_output_tokens`: from 1, reasoning included.
    `stop`: texts that end the reply where the model writes one.
    `seed`: for replies that are more alike; lacking: Responses, Anthropic.
    `reasoning_effort`: one of the vendor's levels, such as ``low``, ``medium``, ``high``.
    `tool_choice`: ``auto``, ``none``, ``required`` or the name of a tool; a forced choice holds
    for a run's first model call, then ``auto``, since a run forced at every turn never ends.
    `extra_body`: more fields of the request, as the vendor names them.  A field that the library
    writes itself is refused, save ``tools``, whose items are put after the run's own.  It is kept
    in journals, so it is no place for a secret.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    tool_choice: str = AUTO
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        # msgspec omits a default by identity: equal options must be the same bytes in a journal,
        # also where the text was put together or read from a file.
        if self.tool_choice == AUTO:
            msgspec.structs.force_setattr(self, "tool_choice", AUTO)


class Request(msgspec.Struct, frozen=True):
    """One model call.

    `output` is the JSON schema of an object that the text of the answer must be; only a provider
    that says ``schema`` is given one.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: CallOptions = CallOptions()
    output: dict[str, Any] | None = None


class Provider(Protocol):
    """A model.

    `model` names it; a journal keeps the name as part of a run's configuration.  A provider that
    takes `Request.output` says so by an attribute `structured` of ``"schema"``; one that has no
    such attribute, or ``"tool"``, is given a tool to answer with instead.
    """

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    async def complete(self, request: Request, emit: Emit) -> AssistantMessage:
        """The reply to `request`.

        `emit` is called with each delta as it comes; it never blocks.  Where something was emitted
        and the call is tried again, a `ModelReset` goes first.  The message holds the whole text,
        whatever was emitted.

        Raises:
            ProviderError: the call failed; the run fails with it.
        """
        ...
