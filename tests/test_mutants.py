"""The mutants stay in step with the source: each fault still has its place, and its tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .mutants import HERE, MUTANTS, HarnessError, Mutant, copy_to, mutated, run_tests


def test_there_are_seventeen_faults_each_with_a_name_of_its_own() -> None:
    assert len({mutant.fault for mutant in MUTANTS}) == len(MUTANTS) == 17


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_faults_snippet_stands_once_in_the_source_and_leaves_it_parsable(mutant: Mutant) -> None:
    compile(mutated(mutant, HERE), mutant.file, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_the_tests_that_must_notice_a_fault_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, name = test.split("::")
        assert re.search(rf"^(async )?def {name}\(", (HERE / "tests" / file).read_text(), re.M)


@pytest.mark.parametrize("old", ["import", "no such text"])
def test_a_snippet_that_does_not_stand_there_once_is_an_error(old: str) -> None:
    with pytest.raises(HarnessError, match="not once"):
        mutated(Mutant("a fault", "machine.py", old, "", ()), HERE)


def test_the_harness_tests_the_copy_and_not_the_installed_package(tmp_path: Path) -> None:
    copy_to(tmp_path)
    (tmp_path / "trioagent" / "budget.py").write_text("raise ImportError('this is the copy')\n")
    ran = run_tests(tmp_path, ["test_gate.py"])
    assert ran.returncode not in (0, 1)
    assert "this is the copy" in ran.stdout + ran.stderr
