"""The public names: adding or losing one is a decision, so it is made here too."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import trioagent

NAMES = [
    "Agent",
    "AgentStream",
    "Allow",
    "Answered",
    "Applied",
    "ApprovalError",
    "AssistantMessage",
    "AuthenticationError",
    "Begun",
    "Budget",
    "BudgetError",
    "CallContext",
    "CallOptions",
    "ContentFilterError",
    "ContextLengthError",
    "Deny",
    "Direct",
    "Done",
    "DuplicateStepError",
    "EncodingError",
    "Event",
    "Failure",
    "FencedError",
    "File",
    "FunctionTool",
    "Gate",
    "Halted",
    "Image",
    "InputMismatchError",
    "InvalidRequestError",
    "Journal",
    "JournalCorruptError",
    "JournalError",
    "JournalFormatError",
    "MaxIterationsError",
    "Message",
    "ModelReset",
    "NeedApproval",
    "NotApplied",
    "NotPendingError",
    "Opaque",
    "OverloadedError",
    "Pending",
    "Price",
    "PriceError",
    "ProtocolError",
    "Provider",
    "ProviderError",
    "RateLimitError",
    "ReplayMismatchError",
    "Request",
    "Run",
    "RunError",
    "RunOwnedError",
    "Start",
    "State",
    "Step",
    "StepContext",
    "StepError",
    "StepFailedError",
    "StepRunner",
    "StillUnknown",
    "Suspended",
    "SystemMessage",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolCalled",
    "ToolContext",
    "ToolFinished",
    "ToolMessage",
    "ToolResult",
    "ToolSignatureError",
    "ToolSpec",
    "TranscriptError",
    "TrioagentError",
    "UnavailableError",
    "UnknownOutcomeError",
    "Usage",
    "UsageMissingError",
    "UsageReported",
    "UserMessage",
    "Verdict",
    "View",
    "open_journal",
    "tool",
]


def test_the_public_names_are_these_and_no_others() -> None:
    assert trioagent.__all__ == NAMES
    assert sorted(NAMES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_exists_and_says_what_it_is(name: str) -> None:
    value = getattr(trioagent, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__.startswith("trioagent.")
        assert vars(value).get("__doc__", value.__doc__)


def public_methods() -> list[Any]:
    found = []
    for name in NAMES:
        value = getattr(trioagent, name)
        if inspect.isclass(value):
            for key, member in vars(value).items():
                function = member.fget if isinstance(member, property) else member
                if inspect.isfunction(function) and not key.startswith("_"):
                    found.append(pytest.param(function, id=f"{name}.{key}"))
    return found


@pytest.mark.parametrize("function", public_methods())
def test_every_public_method_says_what_it_does(function: Any) -> None:
    assert function.__doc__
