"""Crash experiments: everywhere a run can be stopped, and what they find of a planted fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioagent.testing import Report, Scenario, Trial, cancel_everywhere, crash_everywhere

from . import crash_scenarios as scenarios

KEPT = [scenarios.reads, scenarios.writes, scenarios.settled_writes, scenarios.transfers]


def broken(report: Report) -> dict[str, tuple[str, ...]]:
    """The trials in which the promise did not hold, each with what was twice or lost."""
    return {t.point: t.twice + t.lost for t in report.trials if t.verdict in ("twice", "lost")}


@pytest.mark.parametrize("scenario", KEPT, ids=lambda scenario: scenario.name)
def test_a_run_crashed_at_every_moment_ends_as_if_it_had_not_or_names_a_doubt(
    scenario: Scenario,
) -> None:
    seen: list[Trial] = []
    report = crash_everywhere(scenario, on_trial=seen.append)
    assert report.ok, str(report)
    assert tuple(seen) == report.trials
    assert len(report.trials) >= 28
    points = [trial.point for trial in report.trials]
    assert points[:2] == ["begin", "begun"] and points[-2:] == ["end", "ended"]
    for trial in report.trials:
        assert trial.same or trial.doubts


def test_only_a_write_is_ever_in_doubt_and_settling_it_gives_the_clean_run() -> None:
    verdicts = {s.name: set(crash_everywhere(s).counts) for s in KEPT}
    assert verdicts == {
        "parallel reads": {"clean"},
        "a write": {"clean", "doubt"},
        "a write, settled": {"clean", "settled"},
        "a transfer": {"clean"},
    }


@pytest.mark.parametrize("scenario", [scenarios.writes, scenarios.transfers], ids=["w", "t"])
def test_a_run_cancelled_at_every_checkpoint_goes_on_as_well(scenario: Scenario) -> None:
    report = cancel_everywhere(scenario)
    assert report.ok, str(report)
    assert len(report.trials) > 40


def test_a_run_crashed_at_every_checkpoint_too(capsys: pytest.CaptureFixture[str]) -> None:
    report = crash_everywhere(scenarios.writes, checkpoints=True)
    assert report.ok, str(report)
    assert len(report.trials) > 70
    assert any(trial.point.startswith("checkpoint ") for trial in report.trials)


def test_a_real_process_is_killed_at_every_moment() -> None:
    report = crash_everywhere(
        scenarios.settled_writes, kill="tests.testing.crash_scenarios:settled_writes"
    )
    assert report.ok, str(report)
    assert set(report.counts) == {"clean", "settled"}


def test_a_tool_that_lies_about_its_effect_is_found() -> None:
    report = crash_everywhere(scenarios.lying)
    assert not report.ok
    assert broken(report)["tool/1/0/append: body ended"] == ("one",)
    assert "THE PROMISE IS BROKEN" in report.summary


def test_a_runner_that_records_before_the_effect_is_found() -> None:
    report = crash_everywhere(scenarios.early)
    assert not report.ok
    assert broken(report)["tool/1/0/append: body begins"] == ("one",)


def test_a_report_is_a_table_and_a_page(tmp_path: Path) -> None:
    report = crash_everywhere(scenarios.lying)
    lines = str(report).splitlines()
    assert lines[0].split() == ["POINT", "EFFECTS", "REPLAYED", "AGAIN", "VERDICT"]
    assert len(lines) == len(report.trials) + 2
    report.save(tmp_path / "crashes.html")
    report.save(tmp_path / "crashes.html")
    page = (tmp_path / "crashes.html").read_text()
    assert page.count('<div class="row">') == len(report.trials)
    assert "twice: one" in page
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        report.save(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_scenario_that_does_not_end_by_itself_is_refused() -> None:
    def build(folder: Path) -> None:
        raise OSError("no agent today")

    bad = Scenario(build=build, input="Go.", observe=scenarios.no_effects)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no agent today"):
        crash_everywhere(bad)
