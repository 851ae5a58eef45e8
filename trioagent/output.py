"""What the answer of a run must be: a type, its schema, and how a model is made to give it.  (pure)

A provider that has a schema mode is asked for a text that fits the schema.  Any other is given one
more tool, `ANSWER_TOOL`, whose arguments are the answer; so is one with a schema mode, for a type
that has no form there (`trioagent.closed_schema`).  Either way a text that fits is an answer, and
every answer is checked here, since not every vendor keeps what it says.

A reply is judged once, before it is recorded, and carries what is wrong with it
(`AssistantMessage.problem`).  What is no object, such as a list, is asked for as the field
``value`` of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .arguments import fault, shown, undoubled
from .closed_schema import closed
from .errors import ContentFilterError, EncodingError
from .messages import AssistantMessage, Message, ToolMessage
from .provider import Structured, ToolSpec

ANSWER_TOOL = "final_answer"
"""The name of the tool whose call is the answer."""

_DESCRIPTION = (
    "Give the final answer. Call it once, alone, when no other tool is needed any more; "
    "its arguments are the answer."
)
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)


class OutputConfig(msgspec.Struct, frozen=True):
    """What a journal compares of an output: its schema, and how the model is made to give it."""

    schema: dict[str, Any]
    structured: Structured


class Output:
    """The type `asked`, for a model of the kind `structured`.

    `tool` is what the model is given to answer with, `schema` what a request says of the answer's
    text; one of them is there.

    Raises:
        TypeError: a type that msgspec cannot read from JSON or has no schema for.
    """

    def __init__(self, asked: Any, structured: Structured) -> None:
        struct, schema = _schema_of(asked)
        self._wrapped = struct is not None
        self._decoder = msgspec.json.Decoder(asked if struct is None else struct)
        self._own = schema
        self.schema = closed(schema) if structured == "schema" else None
        self.tool: ToolSpec | None = None
        if self.schema is None:
            self.tool = ToolSpec(ANSWER_TOOL, _DESCRIPTION, schema)
        self.config = OutputConfig(schema, "tool" if self.schema is None else "schema")

    @property
    def tool_name(self) -> str | None:
        """The name of `tool`, if it is there."""
        return None if self.tool is None else self.tool.name

    def value(self, message: AssistantMessage) -> Any:
        """The answer that `message` holds.

        Raises:
            EncodingError: it does not fit; it was recorded when the type was another.
        """
        try:
            return self._read(self._text(message))
        except _WrongError as exc:
            raise EncodingError(f"the recorded answer is none any more: {exc}") from None

    def judged(self, message: AssistantMessage) -> AssistantMessage:
        """`message` with what is wrong with it as the answer, if it is meant to be one.

        One with calls is meant to be if its only call is that of the tool.  An answer beside
        other calls is the machine's to refuse, and so is a call that the output limit cut.
        """
        calls, problem = message.tool_calls, ""
        answers = [call.name for call in calls] == [ANSWER_TOOL] and message.stop_reason != "length"
        if not calls or (self.tool is not None and answers):
            try:
                self._read(self._text(message))
            except _WrongError as exc:
                problem = str(exc)
                if message.stop_reason == "length":
                    problem += "; the output limit cut it, so answer with less"
                problem += self._again()
        if problem == message.problem:
            return message
        return msgspec.structs.replace(message, problem=problem)

    def taken(self, message: AssistantMessage) -> AssistantMessage:
        """A model's reply, judged.

        Raises:
            ContentFilterError: the model refused; saying again what is wanted would not help.
        """
        judged = self.judged(message)
        if judged.problem and message.stop_reason in ("refusal", "content_filter"):
            said = f": {message.text[:600]}" if message.text else ""
            raise ContentFilterError(f"the model refused to answer{said}")
        return judged

    def rejudged(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A transcript that a run is to go on from, its last reply judged by this output: it may
        come from a run that was asked for another, or for none."""
        place = len(messages) - 1
        while place >= 0 and isinstance(messages[place], ToolMessage):
            place -= 1
        last = messages[place] if place >= 0 else None
        if not isinstance(last, AssistantMessage):
            return tuple(messages)
        return (*messages[:place], self.judged(last), *messages[place + 1 :])

    def _text(self, message: AssistantMessage) -> str:
        return next((call.arguments for call in message.tool_calls), message.text)

    def _again(self) -> str:
        if self.tool is None:
            return ". Answer again, with nothing but the JSON object"
        return f". Answer again, by a call of {ANSWER_TOOL}"

    def _read(self, text: str) -> Any:
        fenced = _FENCED.fullmatch(text)
        data = text if fenced is None else fenced[1]
        try:
            value = self._decoder.decode(data)
        except msgspec.ValidationError as exc:
            value = self._mended(data, exc)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
            wanted = self._fault("an object is wanted", {})
            raise _WrongError(f"the answer is no JSON ({exc}): {wanted}") from None
        return value.value if self._wrapped else value

    def _mended(self, data: str, problem: msgspec.ValidationError) -> Any:
        """The answer if a text in it is an object or a list that was written twice over."""
        found = msgspec.json.decode(data)
        value = undoubled(found, self._own)
        if not isinstance(value, dict):
            what = f"it is {shown(value)}, an object is wanted"
            raise _WrongError(f"the answer does not fit: {self._fault(what, {})}")
        if value is not found:
            try:
                return self._decoder.decode(msgspec.json.encode(value))
            except msgspec.ValidationError as exc:
                problem = exc
        raise _WrongError(f"the answer does not fit: {self._fault(str(problem), value)}")

    def _fault(self, problem: str, value: Any) -> str:
        return fault(problem, value, self._own, "fields")


class _WrongError(Exception):
    """What is wrong with an answer, for the model."""


def _schema_of(asked: Any) -> tuple[type[msgspec.Struct] | None, dict[str, Any]]:
    """The schema of `asked` as that of an object, with the struct that it was put into for that."""
    try:
        schema = _object_schema(asked)
        if "properties" in schema:
            return None, schema
        struct = msgspec.defstruct("Answer", [("value", asked)])
        return struct, _object_schema(struct)
    except (TypeError, ValueError, RecursionError, NameError) as exc:
        raise TypeError(f"output={asked!r} is no type with a JSON schema: {exc}") from exc


def _object_schema(asked: Any) -> dict[str, Any]:
    """The schema of `asked`, its own definition in place, and in ``$defs`` if it holds itself."""
    (schema,), components = msgspec.json.schema_components([asked], ref_template="#/$defs/{name}")
    msgspec.json.Decoder(asked)
    if "$ref" in schema:
        own = schema["$ref"].rsplit("/", 1)[1]
        schema = dict(components[own])
        if f'"#/$defs/{own}"'.encode() not in msgspec.json.encode(components):
            del components[own]
    root: dict[str, Any] = msgspec.to_builtins(schema)
    root.pop("title", None)
    if components:
        root["$defs"] = msgspec.to_builtins(components)
    return root
