"""The pytest plugin, in real test runs of its own: recorded once, replayed ever after, and failing
with a readable difference where the agent changed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

AGENT = '''
from trioagent import Agent, AssistantMessage, ToolCall, tool
from trioagent.providers import Scripted

def did(what):
    with open("did.txt", "a") as file:
        print(what, file=file)

@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    did("look")
    return f"sunny in {city}"

@tool
def note(text: str) -> str:
    """Note a text."""
    did("note")
    return "noted"

PARIS = ToolCall("1", "look", '{"city":"Paris"}')
ROME = ToolCall("2", "look", '{"city":"Rome"}')
NOTE = ToolCall("3", "note", '{"text":"both"}')
TURNS = [AssistantMessage((PARIS, ROME)), AssistantMessage((NOTE,)), "It is sunny."]
SYSTEM = "Be brief."

def script(messages):
    did("model")
    return TURNS[sum(isinstance(m, AssistantMessage) for m in messages)]

class Live:
    """A provider that is no script, so that it is never asked in a replay."""

    model = "live"

    async def complete(self, request, emit):
        return await Scripted(script).complete(request, emit)

agent = Agent(MODEL, tools=[look, note], system=SYSTEM)
'''

TEST = """
from weather import agent

def test_weather(replay):
    state = replay(agent, "What is the weather?")
    assert state.unwrap().text == "It is sunny."
"""


class Project:
    """A user's folder with one agent and one test of five lines."""

    def __init__(self, pytester: pytest.Pytester, test: str = TEST) -> None:
        self.pytester = pytester
        self.write("Live()")
        (pytester.path / "test_weather.py").write_text(test)

    @property
    def journal(self) -> Path:
        return self.pytester.path / "journals" / "test_weather.test_weather.jsonl"

    @property
    def did(self) -> list[str]:
        """What really ran since the last look."""
        file = self.pytester.path / "did.txt"
        found = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def write(self, model: str, *changes: tuple[str, str]) -> None:
        text = AGENT.replace("MODEL", model)
        for old, new in changes:
            assert text.count(old) >= 1
            text = text.replace(old, new)
        (self.pytester.path / "weather.py").write_text(text)

    def run(self, *options: str, passed: int = 0, failed: int = 0, errors: int = 0) -> str:
        """A test run within this process, which takes a tenth of the time."""
        result = self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
        result.assert_outcomes(passed=passed, failed=failed, errors=errors)
        return result.stdout.str()

    def run_alone(self) -> None:
        """A test run as a user starts it, which passes."""
        result = self.pytester.runpytest_subprocess("-p", "no:cacheprovider")
        result.assert_outcomes(passed=1)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("CI", raising=False)
    return Project(pytester)


RAN = ["model", "look", "look", "model", "note", "model"]


def test_the_first_run_records_and_the_second_replays_without_a_call(project: Project) -> None:
    project.run_alone()
    assert project.did == RAN
    recorded = project.journal.read_bytes()
    project.run_alone()
    assert project.did == []
    assert project.journal.read_bytes() == recorded


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ("Be brief.", "Be rude."),
            ['run configuration: system was "Be brief." and is "Be rude."'],
        ),
        (
            ("def look(", "def glance("),
            ['run configuration: tools[0].name was "look" and is "glance"'],
        ),
        (
            ('\'{"city":"Rome"}\'', '\'{"city":"Bern"}\''),
            [
                "llm/1: parts[1].arguments was",
                '- llm/1  calls look {"city":"Paris"} calls look {"city":"Rome"}',
                '+ llm/1  calls look {"city":"Paris"} calls look {"city":"Bern"}',
            ],
        ),
        (
            ("((NOTE,))", "((NOTE, PARIS))"),
            ["llm/2: parts had 1 items and has 2", "tool/1/1/look  sunny in Rome"],
        ),
        (
            ("((PARIS, ROME))", "((ROME, PARIS))"),
            ['llm/1: parts[0].id was "1" and is "2"'],
        ),
        (
            ('"It is sunny."]', '"It rains."]'),
            ['llm/3: parts[0].text was "It is sunny." and is "It rains."', "+ llm/3  It rains."],
        ),
    ],
    ids=["system prompt", "tool renamed", "arguments", "a call more", "order", "answer"],
)
def test_a_changed_agent_fails_with_what_changed(
    change: tuple[str, str], told: list[str], project: Project
) -> None:
    project.write("Scripted(script)")
    project.run(passed=1)
    recorded = project.journal.read_bytes()
    changes = [change, ("tools=[look,", "tools=[glance,")] if "glance" in change[1] else [change]
    project.write("Scripted(script)", *changes)
    out = project.run(failed=1)
    for text in told:
        assert text in out
    assert "to record it anew, with calls of the model: pytest --journal-record=rewrite" in out
    assert "Traceback" not in out and "trioagent/" not in out
    assert project.journal.read_bytes() == recorded


def test_without_a_recording_it_fails_where_nothing_may_be_recorded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = project.run("--journal-record=none", failed=1)
    assert "there is no journals/test_weather.test_weather.jsonl" in out
    monkeypatch.setenv("CI", "true")
    project.run(failed=1)
    assert project.did == []
    assert not project.journal.exists()
    project.run("--journal-record=once", passed=1)
    project.run(passed=1)
    assert project.did == RAN


def test_a_test_that_fails_records_nothing(project: Project) -> None:
    project.write("Live()", ('"It is sunny."]', '"It rains."]'))
    project.run(failed=1)
    assert project.did == RAN
    assert not project.journal.exists()


def test_rewrite_records_anew_and_leaves_what_did_not_change(project: Project) -> None:
    project.run(passed=1)
    recorded = project.journal.read_bytes()
    project.run("--journal-record=rewrite", passed=1)
    assert project.did == RAN * 2
    assert project.journal.read_bytes() == recorded
    project.write("Live()", ("Be brief.", "Be rude."))
    project.run(failed=1)
    project.run("--journal-record=rewrite", passed=1)
    assert project.journal.read_bytes() != recorded
    project.run(passed=1)


def test_an_edited_recording_is_refused(project: Project) -> None:
    project.run(passed=1)
    project.journal.write_bytes(project.journal.read_bytes().replace(b"sunny in", b"rainy in"))
    assert "not what was written: its hash is another" in project.run(errors=1)


TRIO_TEST = """
from weather import agent

async def test_weather(replay):
    state = await replay.run(agent, "What is the weather?", OPTIONS)
    assert state.unwrap().text == "It is sunny."
    DIFFERENCE
"""


def trio_test(options: str = "", difference: str = "assert replay.difference is None") -> str:
    return TRIO_TEST.replace("OPTIONS", options).replace("DIFFERENCE", difference)


def test_a_trio_test_awaits_its_replay(project: Project) -> None:
    (project.pytester.path / "test_weather.py").write_text(trio_test())
    for ran in (RAN, []):
        project.run("-o", "trio_mode=true", passed=1)
        assert project.did == ran


def test_with_requests_ignored_a_changed_prompt_passes_up_to_a_write(project: Project) -> None:
    file = project.pytester.path / "test_weather.py"
    file.write_text(trio_test('requests="ignore"'))
    project.run("-o", "trio_mode=true", passed=1)
    project.write("Live()", ("Be brief.", "Be rude."))
    out = project.run("-o", "trio_mode=true", failed=1)
    assert "tool/2/0/note: its request is another, and a write's outcome stands for its own" in out
    reads = [("Be brief.", "Be brief!"), (", AssistantMessage((NOTE,))", "")]
    project.write("Live()", *reads)
    project.run("-o", "trio_mode=true", "--journal-record=rewrite", passed=1)
    project.write("Live()", *reads, ("Be brief!", "Be rude."))
    assert len(project.did) > 0
    project.run("-o", "trio_mode=true", passed=1)
    assert project.did == []


def test_a_replay_may_go_live_from_a_step_on_and_says_what_differs(project: Project) -> None:
    file = project.pytester.path / "test_weather.py"
    file.write_text(trio_test())
    project.run("-o", "trio_mode=true", passed=1)
    assert project.did == RAN
    file.write_text(trio_test('live_from="llm/2"'))
    project.run("-o", "trio_mode=true", passed=1)
    assert project.did == ["model", "note", "model"]
    project.write("Live()", ('"text":"both"', '"text":"all"'))
    file.write_text(trio_test('live_from="llm/2"', "assert replay.difference.name == 'llm/2'"))
    project.run("-o", "trio_mode=true", passed=1)
    assert project.did == ["model", "note", "model"]


SEVERAL = """
from trioagent import Allow, NeedApproval, Suspended
from weather import agent

class Ask:
    def check(self, call, context):
        return NeedApproval("a person decides") if call.name == "note" else Allow()

agent.gates = (Ask(),)

def test_weather(replay):
    state = replay(agent, "What is the weather?")
    assert isinstance(state, Suspended)
    RESUME
    assert replay(agent, "And again?").pending
"""
RESUME = "assert replay(agent, approvals=[state.pending[0].marker]).unwrap()"


def test_a_test_may_have_several_runs_and_go_on_with_a_suspended_one(project: Project) -> None:
    file = project.pytester.path / "test_weather.py"
    file.write_text(SEVERAL.replace("RESUME", RESUME))
    project.run(passed=1)
    assert project.did == [*RAN, "model", "look", "look", "model"]
    project.run(passed=1)
    assert project.did == []
    file.write_text(SEVERAL.replace("RESUME", ""))
    out = project.run(failed=1)
    assert "it was recorded and does not happen" in out
    file.write_text("\n".join(SEVERAL.replace("RESUME", RESUME).splitlines()[:-1]))
    assert "the runs run-2 are recorded and do not happen" in project.run(failed=1)


def test_a_parametrized_test_has_a_recording_for_each_of_its_cases(project: Project) -> None:
    (project.pytester.path / "test_weather.py").write_text(
        "import pytest\nfrom weather import agent\n"
        "@pytest.mark.parametrize('city', ['../a/b', 'c d'])\n"
        "def test_weather(replay, city):\n    assert replay(agent, city).unwrap()\n"
    )
    project.run(passed=2)
    project.run(passed=2)
    assert sorted(path.name for path in project.journal.parent.iterdir()) == [
        "test_weather.test_weather-..-a-b.jsonl",
        "test_weather.test_weather-c-d.jsonl",
    ]


def test_the_plugin_imports_nothing_of_the_package_before_a_test_asks(project: Project) -> None:
    (project.pytester.path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_sessionstart(session):\n"
        "    assert session.config.pluginmanager.hasplugin('trioagent')\n"
        "    assert not [m for m in sys.modules if m.split('.')[0] == 'trioagent']\n"
    )
    project.run_alone()
