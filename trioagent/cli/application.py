"""The agent that a command runs: the one of an application, or a model alone."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import click
import msgspec

from trioagent.agent import Agent
from trioagent.cli.ending import describe
from trioagent.cli.safe import one_line
from trioagent.provider import Provider

MODELS = {
    "openai": ("OpenAIChat", "OPENAI_API_KEY"),
    "responses": ("OpenAIResponses", "OPENAI_API_KEY"),
    "anthropic": ("Anthropic", "ANTHROPIC_API_KEY"),
}
"""What ``--model`` may begin with: the provider of each, and the variable that holds its key."""


class ApplicationError(click.ClickException):
    """The application cannot be had; exit code 1."""


@dataclass(frozen=True)
class Limits:
    """What the command's options say of limits; ``None`` leaves the agent's own."""

    max_iter: int | None = None
    max_tokens: int | None = None
    max_tool_calls: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def on(self, agent: Agent) -> Agent:
        """A copy of `agent` under these limits."""
        names = ("max_tokens", "max_tool_calls", "max_cost", "max_seconds")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        budget = msgspec.structs.replace(agent.budget, **given)
        return agent.limited(max_iter=self.max_iter, budget=budget)


@dataclass(frozen=True)
class Source:
    """Where the agent comes from, as the options say it: exactly one of `app` and `model`."""

    app: str | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    system: str | None = None
    mcp: Sequence[str] = ()

    def check(self) -> None:
        """Refuse options that do not go together."""
        if (self.app is None) == (self.model is None):
            raise click.UsageError(f"give one of --app MODULE:AGENT and --model {_named()}")
        if self.app is not None:
            for option in ("base_url", "api_key_env", "system"):
                if getattr(self, option) is not None:
                    name = option.replace("_", "-")
                    raise click.UsageError(f"--{name} goes with --model; an --app has its own")
            if self.mcp:
                raise click.UsageError("--mcp goes with --model; an --app opens its own servers")

    def arguments(self) -> Sequence[str]:
        """The options that a later command has to repeat; the system prompt is recorded."""
        words: list[str] = []
        for option in ("app", "model", "base_url", "api_key_env"):
            value = getattr(self, option)
            if value is not None:
                words += [f"--{option.replace('_', '-')}", value]
        for server in self.mcp:
            words += ["--mcp", server]
        return words

    def agent(self, recorded_system: str = "") -> Agent:
        """The agent; `recorded_system` is the prompt where the options give none."""
        self.check()
        if self.app is not None:
            return load_agent(self.app)
        system = recorded_system if self.system is None else self.system
        return Agent(self.provider(), system=system)

    def provider(self) -> Provider:
        """The model."""
        assert self.model is not None
        kind, colon, name = self.model.partition(":")
        if kind not in MODELS or not colon or not name:
            raise click.BadParameter(
                f"{one_line(self.model)!r} is not {_named()}", param_hint="--model"
            )
        made, variable = MODELS[kind]
        try:
            provider: Any = getattr(importlib.import_module("trioagent.providers"), made)
        except ImportError as exc:
            raise ApplicationError(describe(exc)) from exc
        options: dict[str, Any] = {} if self.base_url is None else {"base_url": self.base_url}
        try:
            model: Provider = provider(name, api_key=self._key(variable), **options)
            return model
        except ValueError as exc:
            raise click.UsageError(one_line(str(exc))) from None

    def _key(self, usual: str) -> str | None:
        """The key, which is printed nowhere.  A server of one's own may want none."""
        variable = self.api_key_env or usual
        key = os.environ.get(variable)
        if not key and (self.api_key_env is not None or self.base_url is None):
            raise click.UsageError(
                f"the environment has no {one_line(variable)}; set it to the API key, or name "
                "the variable that holds it with --api-key-env"
            )
        return key or None


def _named() -> str:
    """The forms of ``--model``: ``openai:NAME, ... or ...``."""
    *others, last = [f"{kind}:NAME" for kind in MODELS]
    return f"{', '.join(others)} or {last}"


def load_agent(spec: str) -> Agent:
    """The agent that ``module:name`` names: an `Agent`, or what a function without arguments gives.

    Raises:
        click.BadParameter: `spec` is not of that form.
        ApplicationError: the module, the name or the function does not give an agent.
    """
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        raise click.BadParameter(
            f"{one_line(spec)!r} is not MODULE:AGENT, such as myapp.agents:support",
            param_hint="--app",
        )
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ApplicationError(f"{module_name} has no {name}; --app names an agent in it")
        found = getattr(found, name)
    if isinstance(found, Agent):
        return found
    if not callable(found):
        raise ApplicationError(
            f"{spec} is {_a(found)}, neither an Agent nor a function that returns one"
        )
    made = _called(spec, found)
    if inspect.iscoroutine(made):
        made.close()
        raise ApplicationError(f"{spec} is an async function; --app takes a plain one")
    if not isinstance(made, Agent):
        raise ApplicationError(f"{spec} returned {_a(made)}, not an Agent")
    return made


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            raise ApplicationError(
                f"there is no module {exc.name}; it is looked for in this folder and where Python "
                "looks for packages"
            ) from exc
        raise ApplicationError(f"{name} imports {exc.name}, which is not installed") from exc
    except (Exception, SystemExit) as exc:
        raise ApplicationError(f"importing {name} failed: {_kind_and_text(exc)}") from exc


def _called(spec: str, function: Any) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as exc:
        raise ApplicationError(f"{spec} must be callable without arguments: {exc}") from exc
    except ValueError:
        pass  # Some builtins have no signature; calling tells.
    try:
        return function()
    except (Exception, SystemExit) as exc:
        raise ApplicationError(f"{spec}() failed: {_kind_and_text(exc)}") from exc


def _kind_and_text(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def _a(value: Any) -> str:
    return f"of type {type(value).__name__}"
