"""What a reply costs: from a table of one's own, or from the price list of ``genai-prices``.

Amounts are in the currency of the table, US dollars for the kept list, and prices are for a
million tokens.  Nothing here ever asks the network: the kept list is the one that came with the
installed version of ``genai-prices`` (the extra `prices`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from trioagent.errors import PriceError
from trioagent.messages import AssistantMessage, Usage
from trioagent.provider import Provider

_MILLION = 1_000_000
_DATED = re.compile(r"[-@:]?(?:\d{4}-\d{2}-\d{2}|\d{8}|latest)")


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a million tokens of a model cost.

    `cache_read` and `cache_write` are for the input tokens that were read from or written to the
    vendor's cache; ``None``: as `input`.  Reasoning is output.

    Raises:
        ValueError: a price below zero.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"the price {name} is from 0, not {value}")

    def cost(self, usage: Usage) -> float:
        """What `usage` costs."""
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        fresh = max(0, usage.input_tokens - read - written)
        cache_read = self.input if self.cache_read is None else self.cache_read
        cache_write = self.input if self.cache_write is None else self.cache_write
        total = fresh * self.input + read * cache_read + written * cache_write
        return (total + usage.output_tokens * self.output) / _MILLION


CostOf: TypeAlias = Callable[[str, Usage], float | None]
"""From a model's name and a usage to its cost; ``None`` where the model has no price."""

Prices: TypeAlias = Mapping[str, Price] | CostOf
"""A table by model, or a function.  A table's price of ``m`` is also that of ``m-2026-01-31``."""


def kept_prices(provider_id: str | None = None) -> CostOf:
    """The price list of the installed ``genai-prices``.

    Args:
        provider_id: whose prices, as the list names vendors, where one model is sold by several.

    Raises:
        ImportError: the extra `prices` is not installed.
    """
    try:
        import genai_prices
    except ModuleNotFoundError as exc:
        if exc.name != "genai_prices":
            raise
        raise ImportError(
            "prices are kept by genai-prices, the extra `prices`: pip install 'trioagent[prices]'; "
            "or give a table of your own"
        ) from exc
    lists: Any = genai_prices

    def cost(model: str, usage: Usage) -> float | None:
        used = lists.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        try:
            price = lists.calc_price(used, model_ref=model, provider_id=provider_id)
        except LookupError:
            return None
        return float(price.total_price)

    return cost


def cost_of(prices: Prices, model: str, usage: Usage) -> float | None:
    """What `usage` of `model` costs; ``None`` where it has no price."""
    if callable(prices):
        return prices(model, usage)
    price = prices.get(model)
    if price is None:
        dated = [name for name in prices if _is_dated(model, name)]
        price = prices[max(dated, key=len)] if dated else None
    return None if price is None else price.cost(usage)


def _is_dated(model: str, name: str) -> bool:
    return model.startswith(name) and bool(_DATED.fullmatch(model[len(name) :]))


def models_of(provider: Provider) -> tuple[str, ...]:
    """The models that may answer for `provider`, which may stand for several."""
    models: Iterable[str] = getattr(provider, "models", (provider.model,))
    return tuple(models)


def reply_cost(prices: Prices, models: Iterable[str]) -> Callable[[AssistantMessage], float]:
    """What a reply of one of `models` costs.

    A reply is priced by the model that it names; where that name has no price, by the dearest of
    `models`, since a budget must not be kept too late.

    Raises:
        PriceError: one of `models` has no price.
    """
    asked = tuple(models)
    one = Usage(1, 1)
    for model in asked:
        if cost_of(prices, model, one) is None:
            raise PriceError(model)

    def cost(message: AssistantMessage) -> float:
        named = cost_of(prices, message.model, message.usage) if message.model else None
        if named is not None:
            return named
        return max(cost_of(prices, model, message.usage) or 0.0 for model in asked)

    return cost
