"""The functions of the schema noisegate as methods of a connection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction

from planner.calls.choose import choose
from planner.calls.rounds import rounds
from planner.calls.verify import verify
from planner.calls.verify.decisions import AUTO
from planner.plans.result import Result
from proxy.errors import translated


class Calls(ABC):
    """What a connection can do beyond PEP 249; `_call` is left to it."""

    @abstractmethod
    def _call(self, function: str, *positional: object, **named: object) -> Result:
        """Return what a function of the schema noisegate gives back."""

    def choose(
        self,
        sqls: Sequence[str],
        *,
        snr: float = choose.SNR,
        fraction: float = choose.FRACTION,
        rho: float | Fraction | None = None,
        rule: str | None = None,
        deviations: float = choose.DEVIATIONS,
        stop: bool = True,
        weights: Sequence[float] | None = None,
        look: bool = False,
        take: int | None = None,
    ) -> choose.Choice:
        """Return which of several analyses the data support; pays for the one that is taken and for nothing else.

        The same as SELECT * FROM noisegate.choose(…). Afterwards the plain SELECT of that analysis is free.

        Args:
            sqls: the analyses, each a SELECT of counts, sums or averages of the same table.
            snr: the signal-to-noise ratio that groups should have.
            fraction: in which part of the groups.
            rho: the cost of each analysis; None for what the session's settings give a plain SELECT.
            rule: "nested" or "general"; None for nested where each analysis follows from the next finer one.
            deviations: how many standard deviations a ratio must be clear of `snr`; 0 goes by the estimate.
            stop: take nothing if no analysis can be good enough; False takes the best of them even so.
            weights: general rule; what each analysis is worth to you.
            look: tell how good each would be and what it would still cost, and take nothing.
            take: the index of an analysis to take, counted from 0, whatever a rule would say.
        """
        options = {"deviations": deviations, "stop": stop, "weights": weights, "look": look}
        number = None if take is None else take + 1  # in SQL they are counted from 1
        result = self._call("choose", sqls, snr=snr, fraction=fraction, rho=rho, rule=rule, **options, take=number)
        return choose.Choice.of(result.rows, result.cost)

    def verify(
        self,
        sql: str,
        *,
        tau: float | str,
        epsilon: float,
        decider: str = AUTO,
        delta: float = verify.DELTA,
        explain: bool = False,
    ) -> verify.Verification:
        """Return whether the answer of a query on a synthetic table is within tau of the true one, group by group.

        The same as SELECT * FROM noisegate.verify(…). The same decision asked again is free, and the same.

        Args:
            sql: a SELECT of one count, sum, average or quantile of a synthetic table, plain or by groups.
            tau: how far the truth may be away: a number, or a text such as "5%" for a part of the synthetic answer.
            epsilon: how much each decision may tell of a person.
            decider: by which mechanism: "LM", "EM", "R2T", "SVT" or "HIST", or in full, such as "EM_count"; "auto" for
                the one that tells the smallest gaps.
            delta: the error at which `effective_tau` is told.
            explain: tell everything but the decision, and spend nothing.
        """
        result = self._call("verify", sql, tau=tau, epsilon=epsilon, decider=decider, delta=delta, explain=explain)
        return verify.Verification.of([column.name for column in result.columns], result.rows, result.cost)

    def enlist(
        self,
        name: str,
        sql: str,
        *,
        error: float | None = None,
        importance: float | None = None,
        sum_error: float | None = None,
        confidence: float | None = None,
    ) -> int:
        """Put a query into a round, and return its number; spends nothing. The same as noisegate.enlist(…).

        Args:
            name: of the round, the same for everyone.
            sql: a SELECT of aggregates.
            error: the half-width that a count should have; None for the session's.
            importance: in place of an error: 4 asks for half of the session's error.
            sum_error: the half-width that a sum should have, in its own unit.
            confidence: of the intervals whose half-widths these are; None for the session's.
        """
        wanted = {"error": error, "importance": importance, "sum_error": sum_error, "confidence": confidence}
        return int(self._call("enlist", name, sql, **wanted).rows[0][1])

    def withdraw(self, name: str, query: int | None = None) -> list[int]:
        """Take one of the queries that you enlisted out of a round, or all of them; return their numbers."""
        return [int(row[1]) for row in self._call("withdraw", name, query=query).rows]

    def release(
        self,
        name: str,
        *,
        mechanism: str | None = None,
        rho: float | Fraction | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> rounds.Publication:
        """Release a round: all its queries, planned together and charged at once. The same as noisegate.release(…).

        Afterwards the plain SELECTs are free for everyone. `explain` tells the price before.

        Args:
            name: of the round.
            mechanism: "waterfilling", "independent", "identity", "utilitarian" or "weighted_utilitarian".
            rho: what to spend, with the least common factor on all errors; None to meet every target.
            weights: of the analysts who take part; None for their shares of the budget.
        """
        with translated():
            listed = None if weights is None else rounds.listed(weights)
        result = self._call("release", name, mechanism=mechanism, rho=rho, weights=listed)
        return rounds.Publication.of(result.rows, result.cost)
