"""What a cost budget promises: money is counted, checked before each call, and never guessed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.scripts import call, calling, saying
from trioagent import Agent, Answered, Budget, Halted, Price, PriceError, Usage, tool
from trioagent.errors import BudgetError, UsageMissingError
from trioagent.messages import AssistantMessage, Text, ToolCall
from trioagent.prices import cost_of, kept_prices, reply_cost
from trioagent.providers import FallbackProvider, Scripted

PRICES = {"m": Price(input=1_000_000, output=2_000_000)}


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def looking(number: int) -> AssistantMessage:
    return calling(call("look", id=f"c{number}"), usage=Usage(1, 1))


def spending(turns: int, **options: object) -> tuple[Agent, Scripted]:
    """An agent each of whose calls costs 3, and its model."""
    script = [*map(looking, range(turns)), saying("done", usage=Usage(1, 1))]
    model = Scripted(script, model="m")
    agent = Agent(model, tools=[look], prices=PRICES, **options)  # type: ignore[arg-type]
    return agent, model


# -- prices ---------------------------------------------------------------------------------------


def test_a_price_is_for_a_million_tokens_and_the_cache_has_its_own() -> None:
    usage = Usage(1000, 100, cache_read_tokens=500, cache_write_tokens=200)
    plain = Price(input=10, output=20)
    assert plain.cost(usage) == pytest.approx((1000 * 10 + 100 * 20) / 1e6)
    cached = Price(input=10, output=20, cache_read=1, cache_write=12)
    expected = (300 * 10 + 500 * 1 + 200 * 12 + 100 * 20) / 1e6
    assert cached.cost(usage) == pytest.approx(expected)


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_price_below_zero_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="from 0"):
        Price(input=bad, output=1)


def test_a_table_s_price_is_also_that_of_a_dated_name_and_of_no_other() -> None:
    table = {"gpt": Price(input=1e6, output=0), "gpt-mini": Price(input=2e6, output=0)}
    used = Usage(1, 0)
    assert cost_of(table, "gpt", used) == cost_of(table, "gpt-2026-01-31", used) == 1
    assert cost_of(table, "gpt-mini-20260131", used) == 2
    assert cost_of(table, "gpt-nano", used) is None


def test_the_kept_list_knows_models_of_the_vendors_and_says_where_it_does_not() -> None:
    cost = kept_prices()
    dear = cost("gpt-4o-2024-08-06", Usage(1000, 100))
    cheap = cost("gpt-4o-2024-08-06", Usage(1000, 100, cache_read_tokens=900))
    assert dear is not None and cheap is not None and 0 < cheap < dear
    assert cost("claude-sonnet-4-5", Usage(1000, 100)) is not None
    assert cost("no-such-model-anywhere", Usage(1, 1)) is None


def test_a_reply_is_priced_by_its_own_model_else_by_the_dearest_that_was_asked() -> None:
    table = {"a": Price(input=1e6, output=0), "b": Price(input=5e6, output=0)}
    cost = reply_cost(table, ("a", "b"))
    assert cost(AssistantMessage(usage=Usage(1, 0), model="a-2026-01-31")) == 1
    assert cost(AssistantMessage(usage=Usage(1, 0), model="another name")) == 5


WITHOUT = """
import sys
sys.modules["genai_prices"] = None  # as if it were not installed
from trioagent import Agent, Budget
from trioagent.providers import Scripted
Agent(Scripted([]))
try:
    Agent(Scripted([]), budget=Budget(max_cost=1))
except ImportError as exc:
    assert "trioagent[prices]" in str(exc), exc
else:
    raise SystemExit("no error")
"""


def test_the_price_list_is_needed_only_under_a_cost_budget_without_a_table() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], check=True)


# -- the budget -----------------------------------------------------------------------------------


async def test_the_cost_is_checked_before_each_model_call() -> None:
    agent, model = spending(5, budget=Budget(max_cost=6))
    state = await agent.run("go")
    assert isinstance(state, Halted)
    assert (state.reason, state.used, state.limit) == ("cost", 6, 6)
    assert len(model.requests) == 2
    with pytest.raises(BudgetError) as caught:
        state.unwrap()
    assert caught.value.resource == "cost"
    assert state.transcript[-1].text == "seen"  # what the last reply asked for was still done


async def test_an_answer_that_takes_the_run_past_its_cost_is_given() -> None:
    agent, _ = spending(1, budget=Budget(max_cost=4))
    assert isinstance(await agent.run("go"), Answered)


async def test_a_halted_run_goes_on_under_a_higher_limit_and_counts_what_was_spent() -> None:
    agent, _ = spending(3, budget=Budget(max_cost=6))
    state = await agent.run("go")
    more, model = spending(0, budget=Budget(max_cost=7))
    assert isinstance(await more.run(state.transcript), Answered)
    same, model = spending(0, budget=Budget(max_cost=6))
    assert isinstance(await same.run(state.transcript), Halted) and model.requests == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_cost": 3.0, "max_tokens": 2}, "tokens"),
        ({"max_cost": 3.0, "max_seconds": 1e-9}, "deadline"),
        ({"max_cost": 0.0, "max_seconds": 1e-9}, "cost"),
    ],
)
async def test_limits_are_checked_in_their_order(limits: dict[str, float], reason: str) -> None:
    agent, _ = spending(2, budget=Budget(**limits))  # type: ignore[arg-type]
    state = await agent.run("go")
    assert isinstance(state, Halted) and state.reason == reason


def test_a_model_without_a_price_is_an_error_before_any_call() -> None:
    model = Scripted(["hi"], model="unknown")
    with pytest.raises(PriceError, match="'unknown'"):
        Agent(model, prices=PRICES, budget=Budget(max_cost=1))
    both = FallbackProvider([Scripted([], model="m"), model])
    with pytest.raises(PriceError, match="'unknown'"):
        Agent(both, prices=PRICES, budget=Budget(max_cost=1))
    assert model.requests == []
    Agent(model, prices=PRICES)


@pytest.mark.parametrize("bad", [-0.5, float("nan")])
def test_a_limit_below_zero_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="max_cost"):
        Budget(max_cost=bad)


# -- replies without counts -----------------------------------------------------------------------

UNCOUNTED = AssistantMessage((ToolCall("c", "look"),), usage_missing=True)


@pytest.mark.parametrize("budget", [Budget(max_tokens=100), Budget(max_cost=100)])
async def test_wire_031_a_run_under_a_budget_goes_no_further_after_a_reply_without_counts(
    budget: Budget,
) -> None:
    model = Scripted([UNCOUNTED, "done"], model="m")
    agent = Agent(model, tools=[look], prices=PRICES, budget=budget)
    with pytest.raises(UsageMissingError) as caught:
        await agent.run("go")
    assert len(model.requests) == 1
    assert caught.value.transcript[-1] == UNCOUNTED  # and its call was not run
    free = Agent(Scripted(["done"]), tools=[look])
    assert isinstance(await free.run(caught.value.transcript), Answered)


async def test_wire_031_without_such_a_budget_and_for_an_answer_it_is_told_and_no_error() -> None:
    agent = Agent(Scripted([UNCOUNTED, "done"]), tools=[look], budget=Budget(max_tool_calls=9))
    assert isinstance(await agent.run("go"), Answered)
    answer = AssistantMessage((Text("hi"),), usage_missing=True)
    state = await Agent(Scripted([answer]), budget=Budget(max_tokens=9)).run("go")
    assert isinstance(state, Answered) and state.message.usage_missing
