"""From what a vendor says of a failure to the class that a caller can act on.  (pure)

Two shapes are read, which between them cover the wire formats: ``{"error": {"type", "code",
"message"}}`` and the same fields without the wrapper.  What decides, in this order:

1. a code or a text that names the cause: a context that is too long, a content filter, a quota
   that is used up (HTTP 429, yet waiting does not help, so it is no rate limit here);
2. the HTTP status;
3. the error's type or code alone: inside an HTTP 200 there is no other sign.

Texts are not cut and not redacted here; `trioagent.providers.http` does both to all of them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from trioagent.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    OverloadedError,
    ProtocolError,
    ProviderError,
    RateLimitError,
    UnavailableError,
)

_CONTEXT = re.compile(
    r"context_length_exceeded|model_context_window_exceeded|context[ _](?:length|window|size|limit)"
    r"|maximum context|prompt is too long|input is too long|reduce the length of the messages",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content_filter|content_policy_violation|responsibleaipolicyviolation"
    r"|content management policy|content filtering policy",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|billing|insufficient (?:balance|credit)", re.IGNORECASE)
_OVERLOADED = re.compile(r"overload", re.IGNORECASE)

_BY_STATUS: dict[int, type[ProviderError]] = {
    401: AuthenticationError,
    402: AuthenticationError,
    403: AuthenticationError,
    408: UnavailableError,
    409: UnavailableError,
    425: UnavailableError,
    429: RateLimitError,
    529: OverloadedError,
}

_BY_KIND: dict[str, type[ProviderError]] = {
    "api_error": UnavailableError,
    "authentication_error": AuthenticationError,
    "invalid_api_key": AuthenticationError,
    "invalid_request": InvalidRequestError,
    "invalid_prompt": InvalidRequestError,
    "invalid_request_error": InvalidRequestError,
    "model_not_found": InvalidRequestError,
    "not_found_error": InvalidRequestError,
    "permission_error": AuthenticationError,
    "rate_limit_error": RateLimitError,
    "rate_limit_exceeded": RateLimitError,
    "request_too_large": InvalidRequestError,
    "internal_error": UnavailableError,
    "internal_server_error": UnavailableError,
    "server_error": UnavailableError,
    "service_unavailable": UnavailableError,
    "timeout": UnavailableError,
    "timeout_error": UnavailableError,
    "tokens": RateLimitError,
    "requests": RateLimitError,
    "too_many_requests": RateLimitError,
}


def from_body(status: int, body: bytes, retry_after: float | None = None) -> ProviderError:
    """The error of a response whose status is not 2xx; `body` may be anything at all."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        text = " ".join(body.decode("utf-8", "replace").split())
        return _classified(status, "", "", text, retry_after)
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict) and value.get("error"):
        value = value["error"]
    return from_error(value, status=status, retry_after=retry_after)


def from_error(
    error: Any, *, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    """The error of an error object, such as a stream holds; `status` where there is an HTTP one.

    A numeric code from 400 to 599 counts as a status: gateways hand on their vendor's that way.
    """
    if not isinstance(error, dict):
        return _classified(status, "", "", _text(error), retry_after)
    code, kind = _text(error.get("code")), _text(error.get("type"))
    message = _text(error.get("message") or error.get("detail"))
    if status is None and re.fullmatch(r"[45]\d\d", code):
        status = int(code)
    return _classified(status, code, kind, message, retry_after)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str | int):
        return str(value)
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.EncodeError, RecursionError):  # pragma: no cover - it came out of JSON
        return ""


def _classified(
    status: int | None, code: str, kind: str, message: str, retry_after: float | None
) -> ProviderError:
    names = code if code == kind or not kind else f"{kind} {code}".strip()
    where = f"HTTP {status}" if status is not None else "the stream holds an error"
    said = f" ({names})" if names else ""
    text = f"{where}{said}: {message or 'the vendor says nothing of the cause'}"
    if status is not None and 300 <= status < 400:
        text += "; redirects are not followed, so set base_url to where it leads"
    cls = _class_of(status, code, kind, message)
    return cls(text, status=status, retry_after=retry_after)


def _class_of(status: int | None, code: str, kind: str, message: str) -> type[ProviderError]:
    names = f"{code} {kind}"
    everything = f"{names} {message}"
    if status in (None, 400, 402, 403, 413, 422, 429) and _QUOTA.search(everything):
        return AuthenticationError
    if status in (None, 400, 413, 422, 500) and _CONTEXT.search(everything):
        return ContextLengthError
    if status in (None, 400, 403, 422) and _FILTER.search(everything):
        return ContentFilterError
    if status in (None, 503) and _OVERLOADED.search(everything):
        return OverloadedError
    if status is not None and status >= 300:
        return _of_status(status, (code, kind))
    for name in (code, kind):
        if name.lower() in _BY_KIND:
            return _BY_KIND[name.lower()]
    return ProtocolError


def _of_status(status: int, names: tuple[str, str]) -> type[ProviderError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return UnavailableError
    # Some vendors refuse a request of too many tokens a minute as 413 with the code of a limit.
    if "rate_limit_exceeded" in names:
        return RateLimitError
    return InvalidRequestError
