"""The price of a call in FROM: before it is run, at best and at worst; once it is paid, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from planner.calls.call import CallResult, PlannedCall
from planner.cells.costs import rho_of
from planner.ledger.accounts import Quote
from planner.plans.explain import Explanation
from planner.plans.wording import line, price, used


@dataclass(frozen=True, eq=False)
class PricedCall(Explanation):
    """The price of a call: `rho` is the most that it may charge, `least` what it charges at best."""

    planned: PlannedCall | None = None
    least: Fraction = Fraction(0)

    @property
    def path(self) -> str:
        assert self.planned is not None
        return self.planned.path

    @cached_property
    def errors(self) -> dict[str, float | None]:
        return {}

    @property
    def repeatable(self) -> bool:
        assert self.planned is not None
        return not self.planned.keeps

    @property
    def tables(self) -> frozenset[str] | None:
        return None

    @property
    def releases(self) -> tuple[int, ...]:
        assert self.planned is not None
        return self.planned.releases

    @cached_property
    def known(self) -> float:
        return float(self.path == "free")

    @cached_property
    def ways(self) -> dict[str, float]:
        return {}

    def as_json(self) -> dict[str, Any]:
        assert self.planned is not None
        return super().as_json() | {"rho_at_best": float(self.least)} | dict(self.planned.details)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        assert self.planned is not None
        cost = "nothing: already known" if not self.rho else f"ρ {float(self.rho):.3g} on the dearest cell"
        if len(self.planned.alternatives) > 1 and self.rho:
            worst = price(self.rho, self.budget)
            best = price(self.least, self.budget) if self.least else "nothing"
            cost = worst if self.least == self.rho else f"{best} at best, {worst} at worst"
        if self.path == "exact":
            cost = "nothing: no protected table is read"
        return (
            *self.planned.lines,
            line("cost", cost),
            line("budget", used(self.rho_before, self.rho_after, self.budget)),
            line("your account", used(self.account_before, self.account_after, self.account)),
        )


def priced(found: Explanation, planned: PlannedCall, *, least: Fraction) -> PricedCall:
    """Return the explanation of a call, from one of a statement that measures nothing."""
    same = {each.name: getattr(found, each.name) for each in fields(Explanation)}
    return PricedCall(**same, planned=planned, least=least)


def paid(price: PricedCall, told: CallResult, now: Sequence[Quote]) -> PricedCall:
    """Return the price once it is paid: what was spent before, and what is now."""
    before = {quote.population: quote for quote in price.quotes}
    quotes = tuple(
        replace(quote, spent=before[quote.population].spent, account_spent=before[quote.population].account_spent)
        for quote in now
    )
    after = max(quotes, key=lambda quote: quote.after)
    assert price.planned is not None
    planned = price.planned if told.cost or price.path == "exact" else replace(price.planned, path="free")
    return replace(
        price,
        rho=told.cost,
        least=told.cost,
        rho_after=rho_of(after.after),
        account_after=rho_of(after.account_after),
        quotes=quotes,
        planned=planned,
    )
