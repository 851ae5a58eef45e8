"""Seventeen faults that the tests must notice: ``python -m tests.mutants``.

Each fault is one exact text replacement in a copy of the source.  The harness first runs all the
chosen tests against an unmutated copy, then those of each fault against a copy that has it, two at
a time.  A mutant is killed only where pytest ran and reports failed tests; a copy that cannot be
imported, or a test that is not found, is an error of the harness and no kill.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COPIED = ("trioagent", "tests", "pyproject.toml")
SECONDS = 60
"""What one run of pytest may take."""


@dataclass(frozen=True)
class Mutant:
    """`fault` put into `file` by replacing `old`, which stands there once; `tests` notice it."""

    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "the cap checked after the call",
        "machine.py",
        "if self._replies >= self._max_iter:",
        "if self._replies > self._max_iter:",
        ("test_loop.py::test_three_model_calls_under_max_iter_three_keep_the_last_message",),
    ),
    Mutant(
        "parallel calls unbounded",
        "loop.py",
        "trio.CapacityLimiter(agent.max_parallel_tools)",
        "trio.CapacityLimiter(1000)",
        ("test_loop.py::test_six_calls_under_a_bound_of_two_run_by_two_and_return_in_call_order",),
    ),
    Mutant(
        "results in finishing order",
        "machine.py",
        "[results[index].answering(call) for index, call in enumerate(calls)]",
        "[result.answering(calls[index]) for index, result in results.items()]",
        ("test_loop.py::test_six_calls_under_a_bound_of_two_run_by_two_and_return_in_call_order",),
    ),
    Mutant(
        "tool budget checked after dispatch",
        "machine.py",
        "and self._calls > budget.max_tool_calls",
        "and self._calls - len(calls) > budget.max_tool_calls",
        ("test_loop.py::test_three_calls_against_a_budget_of_two_run_none_of_them",),
    ),
    Mutant(
        "token budget checked after dispatch",
        "machine.py",
        "and used > budget.max_tokens:",
        "and used - reply.usage.total_tokens > budget.max_tokens:",
        ("test_loop.py::test_110_tokens_against_100_dispatch_nothing",),
    ),
    Mutant(
        "denied tool runs",
        "loop.py",
        "and isinstance(planned.verdict, Deny):",
        "and isinstance(planned.verdict, Deny) and tool is None:",
        ("test_loop.py::test_a_denied_call_never_runs_and_the_model_reads_why",),
    ),
    Mutant(
        "approval looked up by call id",
        "machine.py",
        "if marker not in decisions.approved:",
        "if call.id not in decisions.approved:",
        ("test_loop.py::test_approval_087_answers_go_to_their_calls_by_marker_not_by_position",),
    ),
    Mutant(
        "an approved call stays pending",
        "machine.py",
        "if marker not in decisions.approved:",
        "if marker not in decisions.denied_steps:",
        (
            "test_loop.py::"
            "test_an_approved_run_goes_on_without_a_model_call_before_the_approved_tool",
        ),
    ),
    Mutant(
        "context never tainted",
        "loop.py",
        "CallContext(action.tainted,",
        "CallContext(False,",
        (
            "test_loop.py::"
            "test_the_context_is_tainted_only_after_tool_output_and_on_a_resumed_transcript",
        ),
    ),
    Mutant(
        "system prompt added twice",
        "machine.py",
        "if messages and type(messages[0]) is SystemMessage:",
        "if messages and messages[0] is SystemMessage:",
        ("test_loop.py::test_the_system_prompt_is_first_and_once_also_on_a_resumed_transcript",),
    ),
    Mutant(
        "step name without the call's index",
        "machine.py",
        'f"{prefix}{i}/{_safe(call.name)}"',
        'f"{prefix}{_safe(call.name)}"',
        ("test_loop.py::test_steps_have_the_names_kinds_and_effects_of_the_contract",),
    ),
    Mutant(
        "the proposing assistant message dropped",
        "machine.py",
        "        messages.extend([results",
        "        messages.pop()\n        messages.extend([results",
        ("test_loop.py::test_the_worked_example_answers_with_two_model_calls_and_one_tool_run",),
    ),
    Mutant(
        "usage overwritten",
        "machine.py",
        "self._usage += message.usage",
        "self._usage = message.usage",
        ("test_loop.py::test_the_worked_example_answers_with_two_model_calls_and_one_tool_run",),
    ),
    Mutant(
        "a resumed run asks the model again",
        "machine.py",
        'self._take_turn("begin", reply, reply.tool_calls, done)',
        'self._go("begin", Phase.READY)',
        ("test_loop.py::test_unanswered_calls_run_without_asking_the_model_first",),
    ),
    Mutant(
        'every span outcome "ok"',
        "tracing.py",
        'set_attribute("tl.tool.outcome", outcome)',
        'set_attribute("tl.tool.outcome", "ok")',
        ("test_tracing.py::test_tool_spans_tell_ok_error_and_denied_apart",),
    ),
    Mutant(
        "provider error swallowed",
        "loop.py",
        """\
        if limit is None:
            return await provider.complete(request, emit)
""",
        """\
        if limit is None:
            try:
                return await provider.complete(request, emit)
            except TrioagentError:
                return AssistantMessage()
""",
        ("test_loop.py::test_a_provider_error_ends_the_run_and_runs_no_tool",),
    ),
    Mutant(
        "a runner's refusal shown to the model as a tool error",
        "loop.py",
        """\
            except Exception as exc:
                failures[job.planned.index] = exc
""",
        """\
            except StepError as exc:
                finish(job.planned, encode(error_result(str(exc))), False)
""",
        ("test_loop.py::test_a_runner_that_refuses_a_call_ends_the_run_with_nothing_appended",),
    ),
)

# Loaded by pytest before any test: a run that would test another copy is refused.
WHERE = """\
from pathlib import Path

import trioagent

here = Path(__file__).resolve().parent
assert Path(trioagent.__file__).resolve().is_relative_to(here), trioagent.__file__
"""


class HarnessError(Exception):
    """The harness cannot tell whether the tests notice a fault."""


def mutated(mutant: Mutant, root: Path) -> str:
    """The text of the mutant's file under `root` with the fault in it.

    Raises:
        HarnessError: what is to be replaced does not stand there exactly once.
    """
    text = (root / "trioagent" / mutant.file).read_text()
    if (times := text.count(mutant.old)) != 1:
        raise HarnessError(
            f"{mutant.fault}: in {mutant.file}, not once but {times} times: {mutant.old.strip()!r}"
        )
    return text.replace(mutant.old, mutant.new)


def copy_to(root: Path) -> None:
    """Copy the source and its tests."""
    for name in COPIED:
        source = HERE / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.db*")
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy(source, root / name)
    (root / "where_imported.py").write_text(WHERE)


def run_tests(root: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run `tests` against the copy under `root`."""
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "where_imported", *(f"tests/{test}" for test in tests)]
    try:
        return subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{' '.join(tests)}: no end within {SECONDS} s") from None


def is_killed(mutant: Mutant) -> bool:
    """Whether the mutant's tests notice its fault."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        root = Path(directory)
        copy_to(root)
        (root / "trioagent" / mutant.file).write_text(mutated(mutant, root))
        ran = run_tests(root, mutant.tests)
    if ran.returncode == 0:
        return False
    if ran.returncode == 1 and re.search(r"\b\d+ failed\b", ran.stdout):
        return True
    raise HarnessError(
        f"{mutant.fault}: pytest ended with {ran.returncode}\n{ran.stdout}{ran.stderr}"
    )


def check_unmutated(mutants: Sequence[Mutant]) -> None:
    """All the chosen tests pass while there is no fault, else their failing would say nothing."""
    with tempfile.TemporaryDirectory(prefix="unmutated-") as directory:
        root = Path(directory)
        copy_to(root)
        for mutant in mutants:
            mutated(mutant, root)
        ran = run_tests(root, sorted({test for mutant in mutants for test in mutant.tests}))
    if ran.returncode != 0:
        raise HarnessError(f"the tests fail without a fault\n{ran.stdout}{ran.stderr}")


def main() -> int:
    """Print a line a mutant and how many were killed; 0 where all were."""
    try:
        check_unmutated(MUTANTS)
        killed = 0
        with ThreadPoolExecutor(2) as pool:
            for mutant, dead in zip(MUTANTS, pool.map(is_killed, MUTANTS), strict=True):
                print("killed  " if dead else "SURVIVED", mutant.fault, flush=True)
                killed += dead
    except HarnessError as exc:
        print(exc, file=sys.stderr)
        return 1
    print(f"killed {killed} of {len(MUTANTS)}")
    return 0 if killed == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
