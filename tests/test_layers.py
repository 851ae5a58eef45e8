"""The arrows point one way, from the shell to the pure parts: read off the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trioagent

PACKAGE = Path(trioagent.__file__).parent
PURE = [
    name
    for name in (
        "messages",
        "events",
        "errors",
        "gate",
        "history",
        "budget",
        "actions",
        "effects",
        "arguments",
        "closed_schema",
        "output",
        "machine",
        "provider",
        "journal.payloads",
        "journal.records",
        "journal.fold",
        "journal.difference",
        "journal.divergence",
        "journal.recording",
    )
    if PACKAGE.joinpath(*name.split(".")).with_suffix(".py").exists()
]
IMPURE = {"trio", "sqlite3", "apsw", "time", "random", "secrets", "opentelemetry", "uuid", "os"}
CLOCKS = {"now", "utcnow", "today"}


def modules() -> list[str]:
    """Every module of the package, by its name below it."""
    return sorted(
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")
    )


def parsed(module: str) -> ast.Module:
    return ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text())


def imports(module: str) -> Iterator[str]:
    """What `module` imports, wherever in it, as full dotted names."""
    here = ["trioagent", *module.split(".")[:-1]]
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = here[: len(here) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def of_package(module: str) -> set[str]:
    """The modules of the package that `module` imports."""
    known = set(modules())
    named = {
        name.removeprefix("trioagent.") for name in imports(module) if name.startswith("trioagent.")
    }
    return {name if name in known else f"{name}.__init__" for name in named} & known


def test_the_reader_of_imports_sees_what_there_is() -> None:
    assert {"trio", "trioagent.machine.Machine", "typing.TYPE_CHECKING"} <= set(imports("loop"))
    assert {"machine", "steps", "agent"} <= of_package("loop")
    assert len(PURE) >= 7


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_no_clock_no_chance_and_no_outside_world(module: str) -> None:
    assert {name for name in imports(module) if within(name, IMPURE)} == set()


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_asks_no_clock(module: str) -> None:
    asked = {node.attr for node in ast.walk(parsed(module)) if isinstance(node, ast.Attribute)}
    assert asked & CLOCKS == set()


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_imports_only_pure_modules_of_the_package(module: str) -> None:
    assert of_package(module) <= set(PURE)


@pytest.mark.parametrize("module", modules())
def test_no_module_imports_asyncio_or_pickle(module: str) -> None:
    assert not [name for name in imports(module) if within(name, {"asyncio", "pickle"})]


@pytest.mark.parametrize("module", ["loop", "agent", "stream", "steps", "tools", "tracing"])
def test_the_shell_knows_no_journal_and_no_provider_by_name(module: str) -> None:
    outside = {"trioagent.journal", "trioagent.providers", "trioagent.cli", "trioagent.testing"}
    assert not [name for name in imports(module) if within(name, outside)]


def test_no_file_is_named_after_nothing() -> None:
    assert not {"utils", "helpers", "common", "base"} & {
        part for module in modules() for part in module.split(".")
    }


def test_importing_the_package_imports_nothing_that_not_every_user_needs() -> None:
    code = (
        "import sys, trioagent; "
        "print(*{name.split('.')[0] for name in sys.modules}"
        " & {'opentelemetry', 'httpx2', 'click', 'rich', 'asyncio', 'pickle', 'mcp', 'anyio',"
        " 'pydantic', 'docstring_parser'})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.split() == []
