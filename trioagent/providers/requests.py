"""What the encoders of all wire formats share: options, JSON that is whole, data URLs.  (pure)"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from trioagent.errors import EncodingError, InvalidRequestError
from trioagent.messages import (
    ContentPart,
    File,
    Image,
    Message,
    Opaque,
    Text,
    UserMessage,
    encode,
)
from trioagent.provider import CallOptions

UNWRITABLE = (EncodingError, msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What writing a value as JSON may raise."""

OUTPUT_NAME = "answer"
"""What the APIs that want a name are told of the form of an answer."""


def unwritable(exc: BaseException) -> InvalidRequestError:
    """The error of a request that cannot be written."""
    return InvalidRequestError(f"the request cannot be written as JSON: {exc}")


def checked(value: Any) -> msgspec.Raw:
    """`value` encoded apart, by the encoder that refuses NaN."""
    return msgspec.Raw(encode(value))


def sampling(options: CallOptions) -> dict[str, Any]:
    """The options that every vendor has under the same name."""
    chosen: dict[str, Any] = {}
    if options.temperature is not None:
        chosen["temperature"] = checked(options.temperature)
    if options.top_p is not None:
        chosen["top_p"] = checked(options.top_p)
    return chosen


def refuse_lacking(options: CallOptions, api: str, lacking: Collection[str]) -> None:
    """Refuse an option that is set and that the API does not have."""
    for name in lacking:
        if getattr(options, name) not in (None, ()):
            raise InvalidRequestError(f"{api} has no option {name}; leave it unset for this model")


def add_extra(body: dict[str, Any], options: CallOptions) -> None:
    """Put `CallOptions.extra_body` into `body`, without replacing anything."""
    for name, value in (options.extra_body or {}).items():
        if name == "tools" and isinstance(value, list):
            body["tools"] = [*body.get("tools", ()), *[checked(tool) for tool in value]]
        elif name in body:
            raise InvalidRequestError(
                f"extra_body holds {name}, which the library writes itself; use its own option"
            )
        else:
            body[name] = checked(value)


def with_list(body: dict[str, Any], field: str, forms: Sequence[bytes]) -> bytes:
    """The JSON of `body`, whose last field is the list of `forms`.

    The forms are put together once, into what is sent: a long transcript is some hundred kilobytes,
    and each copy of it costs more than finding all its forms.
    """
    body.pop(field, None)
    head = msgspec.json.encode(body)[:-1] + b',"' + field.encode() + b'":['
    if not forms:
        return head + b"]}"
    pieces = list(forms)
    pieces[0] = head + pieces[0]
    pieces[-1] += b"]}"
    return b",".join(pieces)


def fields_of(part: Opaque) -> dict[str, msgspec.Raw]:
    """The fields of an opaque part, their values as they stand: never parsed and written anew."""
    try:
        return msgspec.json.decode(part.json, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidRequestError(
            f"an opaque part of {part.provider} holds no JSON object; it must go back as it came"
        ) from None


def only_for(part: Opaque, provider: str) -> dict[str, msgspec.Raw]:
    """What a user gave that only one vendor understands, if `provider` is that one.

    Raises:
        InvalidRequestError: it is another; leaving it out would change what was asked.
    """
    if part.provider != provider:
        raise InvalidRequestError(
            f"the user's message holds a part for {part.provider} only, which {provider} cannot "
            "read; give it in a form that both have"
        )
    return fields_of(part)


def whole_message(message: Message, provider: str) -> dict[str, msgspec.Raw] | None:
    """The message that the only part of a user's message is, if it is one."""
    if type(message) is not UserMessage or len(message.parts) != 1:
        return None
    (part,) = message.parts
    if type(part) is not Opaque:
        return None
    fields = only_for(part, provider)
    return fields if "role" in fields else None


def data_url(media_type: str, data: bytes) -> str:
    """`data` as a URL of its own."""
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def told(part: ContentPart) -> str:
    """A part as a sentence, for where the API takes only text: base64 as text would cost tokens
    and tell the model nothing."""
    match part:
        case Text():
            return part.text
        case Image(url=url) if url:
            return f"[image at {url}, which cannot be shown here]"
        case Image():
            kind, name = part.media_type or "image", ""
        case File(url=url) if url:
            return f"[file at {url}, which cannot be shown here]"
        case Opaque():
            return f"[something for {part.provider} only, which cannot be shown here]"
        case File():
            kind, name = part.media_type or "file", part.name
    called = f" {name!r}" if name else ""
    return f"[{kind}{called}, {len(part.data)} bytes, which cannot be shown here]"
