"""A session takes a statement the whole way, and is the only caller of each step.

compile, place, recall, plan; then measure, commit, answer. Nothing leaves before its charge is durable.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from planner import system
from planner.basics.errors import EvaluationFailed, Forbidden, SourceFailed, TooDear, TooLarge
from planner.calls import call as functions
from planner.calls.call import Ready, Step
from planner.calls.price import PricedCall, priced
from planner.calls.price import paid as paid_call
from planner.duck.relations import SCHEMA, OutputColumn
from planner.duck.sandbox import Sandbox
from planner.ledger.accounts import Caps, Charge, Draft, Release, total
from planner.ledger.stores import Connection
from planner.plans import answer, explain
from planner.plans.explain import Explanation
from planner.plans.moment import Moment
from planner.plans.plan import Plan, Planner, rho_of_each
from planner.plans.result import Interval, Result, single_column
from planner.plans.settings import Settings
from planner.plans.task import Payable
from planner.policy.file import Policy
from planner.shared import Shared
from planner.sources.measure import Meter
from planner.sql import statement
from planner.sql.null_on_error import forgiving
from planner.sql.query import AUTO, Catalog
from planner.sql.statement import Parameters


class Session:
    """One analyst's connection: their settings, and the way of a statement through the gate."""

    def __init__(self, gate: Shared, analyst: str) -> None:
        self.gate, self.analyst = gate, analyst
        self.defaults = Settings.of(gate.policy)
        self.settings = self.defaults
        self._lock = threading.Lock()
        self._moment: Moment | None = None

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """Hold the session for one statement, which is about one moment."""
        with self._lock:
            try:
                yield
            finally:
                self._moment = None

    def execute(self, sql: str, parameters: Parameters = None, *, on_step: Step | None = None) -> Result:
        """Return the result of one statement; charge for what it newly releases, and for nothing else."""
        step = on_step or (lambda _: None)
        with self._statement():
            match statement.read(sql, parameters):
                case statement.Query() as query:
                    return self._query(query, step)
                case statement.Explain(query=query, json=as_json):
                    return self._explain(query, as_json=as_json)
                case statement.Set(name=name, value=value):
                    self.settings = self.settings.with_value(name, value, self.defaults)
                    return Result(tag="SET")
                case statement.Reset(name=name):
                    self.settings = self.settings.reset(name, self.defaults)
                    return Result(tag="RESET")
                case statement.Show(name=name):
                    return single_column(name, [self.settings.show(name)], tag="SHOW")
                case statement.Transaction(verb=verb):
                    return Result(tag=verb)

    def explain(self, sql: str, parameters: Parameters = None) -> Explanation:
        """Return what a query would cost and how accurate it would be; spend nothing, read nothing protected."""
        with self._statement():
            match statement.read(sql, parameters):
                case statement.Query() as query:
                    return self._explained(query)
                case statement.Explain(query=query):
                    return self._explained(query)
        raise Forbidden("only a SELECT can be explained", hint="for example: SELECT count(*) FROM …")

    def price(self, planned: functions.PlannedCall) -> PricedCall:
        """Return what a planned call would cost; spend nothing."""
        nothing = statement.read("SELECT 1")
        assert isinstance(nothing, statement.Query)
        with self._statement(), self.gate.prepared(nothing) as ready:
            return self._priced(ready, planned)

    def describe(self, sql: str, parameters: Parameters = None) -> tuple[OutputColumn, ...]:
        """Return the columns that a statement would give back; spend nothing."""
        with self._statement():
            found = statement.read(sql, parameters)
            if isinstance(found, statement.Show):
                return (OutputColumn(found.name, "VARCHAR"),)
            if isinstance(found, statement.Explain):
                return (OutputColumn("QUERY PLAN", "VARCHAR"),)
            if not isinstance(found, statement.Query):
                return ()
            with self._ready(found) as ready:
                return self._columns(ready)

    # What functions in FROM may ask: see planner.calls.call.Caller.

    @property
    def policy(self) -> Policy:
        return self.gate.policy

    @property
    def catalog(self) -> Catalog:
        return self.gate.catalog

    @property
    def sandbox(self) -> Sandbox:
        return self.gate.sandbox

    @property
    def planning_round(self) -> threading.Lock:
        return self.gate.planning_round

    def prepared(self, query: statement.Query, *, groups: str = AUTO) -> AbstractContextManager[Ready]:
        return self.gate.prepared(query, groups=groups)

    def planner(self, settings: Settings) -> Planner:
        return Planner(self.moment, settings)

    @property
    def moment(self) -> Moment:
        """What was true when the statement began; between statements, what is true now."""
        if self._moment is None and not self._lock.locked():
            return self.gate.moment()
        if self._moment is None:
            self._moment = self.gate.moment()
        return self._moment

    def caps(self, analyst: str) -> Caps:
        return self.gate.caps(analyst)

    def beside(self, *, write: bool) -> AbstractContextManager[Connection]:
        return self.gate.ledger.beside(write=write)

    # The way of a query.

    def _ready(self, query: statement.Query) -> AbstractContextManager[Ready]:
        return self.gate.prepared(query, groups=self.settings.groups)

    def _plan(self, ready: Ready) -> Plan:
        if not ready.parts:
            return Plan(ready.compiled, ())
        self._moment = self.gate.moment(ready.parts)
        return self.planner(self.settings).plan(ready.compiled, ready.parts)

    def _types(self, ready: Ready) -> list[dict[int, str]]:
        """Return the types of the whole numbers that each part measures."""
        rho = rho_of_each(self.settings, ready.parts)
        return [answer.whole_types(part, self.settings, rho=rho) for part in ready.parts]

    def _make_blank(self, ready: Ready) -> None:
        """Make the relations of what is measured, with every group and no number yet."""
        for part, whole in zip(ready.parts, self._types(ready), strict=True):
            answer.make_blank(part, ready.bench, z=self.settings.z, types=whole)

    def _columns(self, ready: Ready) -> tuple[OutputColumn, ...]:
        """Return the output columns, from relations that have the right types; nothing is planned for that.

        They are worked out once for the types of whole numbers that the settings lead to.
        """
        types_of_parts = self._types(ready)
        if (known := ready.columns.get(str(types_of_parts))) is not None:
            return known
        self._make_blank(ready)
        post = self._post(ready).sql("duckdb")
        types = ready.bench.types(post)
        if ready.compiled.post.find(exp.Subquery):
            ready.bench.rehearse(post)  # on zeros, but with every group: a scalar subquery of many rows fails here
        names = ready.compiled.names
        columns = tuple(OutputColumn(name, kind) for name, (_, kind) in zip(names, types, strict=False))
        if not ready.reads_ledger:
            ready.columns[str(types_of_parts)] = columns
        return columns

    def _rehearse(self, ready: Ready, plan: Plan) -> None:
        """Refuse what can't be post-processed whatever the noise, before it is paid for: a cast of a key, a huge join.

        It is run with every group there is, on one number, and if that fails, on others.
        """
        post, failures = self._post(ready).sql("duckdb"), []
        for number in answer.IMAGINED:
            try:
                for part in plan.parts:
                    answer.imagine(part, ready.bench, number)
                ready.bench.rows(post)
            except EvaluationFailed as failure:
                failures.append(failure)
            else:
                return
        raise failures[0]

    def _answered(self, ready: Ready, told: Sequence[functions.Row] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, once what it measured is durable: no noise may keep it from being told.

        Where an expression fails on a noisy number it is NULL. What fails nevertheless, such as an aggregate of noisy
        numbers that passes all limits, is stored, so that asking in another form costs nothing.
        """
        post = self._post(ready, told)
        try:
            return ready.bench.rows(post.sql("duckdb"))
        except EvaluationFailed as failure:
            if not ready.compiled.measured and ready.call is None:
                raise
            first = failure
        try:
            return ready.bench.rows(forgiving(post).sql("duckdb"))
        except (EvaluationFailed, TooLarge):
            raise EvaluationFailed(
                "the answer can't be worked out from the noisy numbers",
                hint="they are paid for and stored: asking for them in a simpler form is free",
            ) from first

    def _post(self, ready: Ready, told: Sequence[functions.Row] = ()) -> exp.Query:
        """Return the post-processing, after making the system tables that it reads, and what a call told."""
        post = ready.compiled.post.copy()
        for table in list(post.find_all(exp.Table)):
            if table.db == SCHEMA:
                name = f"__system_{table.name}"
                if ready.call is not None and table.name == functions.RESULT:
                    ready.call.make(name, told, ready.bench)
                else:
                    system.make(table.name, name, self.gate.books, ready.bench)
                named = exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
                table.replace(exp.Table(this=exp.to_identifier(name), alias=table.args.get("alias") or named))
        return post

    def _explained(self, query: statement.Query) -> Explanation:
        with self._ready(query) as ready:
            if ready.call is not None:
                return self._priced(ready, ready.call.planned(self))
            return self._explanation(self._plan(ready))

    def _explain(self, query: statement.Query, *, as_json: bool) -> Result:
        found = self._explained(query)
        lines = [json.dumps([found.as_json()], indent=2)] if as_json else list(found.lines)
        return single_column("QUERY PLAN", lines, tag="EXPLAIN")

    def _explanation(self, plan: Plan) -> Explanation:
        gate, caps = self.gate, self.gate.caps(self.analyst)
        charges = [
            Charge(population=gate.policy.tables[t.table].population, table=t.table, version=t.version, cost=t.cost)
            for t in plan.paid
            if t.cost
        ]
        populations = [part.measured.table.population for part in plan.parts]
        quotes = self.moment.quote(charges, populations=populations, analyst=self.analyst) if populations else []
        return explain.explanation(plan, settings=self.settings, rho=total(charges), quotes=quotes, caps=caps)

    def _query(self, query: statement.Query, step: Step) -> Result:
        step("planning")
        with self._ready(query) as ready:
            columns = self._columns(ready)  # what can't be post-processed is refused before it is paid for
            if _is_empty(ready.compiled.post):
                return Result(columns=columns, tag="SELECT 0")
            if ready.call is not None:
                return self._called(ready, ready.call, columns, query.sql, step)
            plan = self._plan(ready)
            explanation = self._explanation(plan)
            self._check(explanation)
            if plan.paid:
                self._make_blank(ready)
                self._rehearse(ready, plan)
            new, charged = self.release(plan.paid, query.sql, step)
            step("answering")
            said = [
                answer.make_relation(part, new, ready.bench, settings=self.settings, types=types)
                for part, types in zip(plan.parts, self._types(ready), strict=True)
            ]
            rows = _dated(self._answered(ready), columns)
        visible, intervals = _split(rows, len(columns), ready.compiled.intervals)
        return Result(
            columns=columns,
            rows=visible,
            intervals=intervals,
            cost=charged,
            tag=f"SELECT {len(rows)}",
            plan=explanation,
            notices=tuple(dict.fromkeys(notice for notices in said for notice in notices)),
        )

    def _called(
        self, ready: Ready, call: functions.Call, columns: tuple[OutputColumn, ...], sql: str, step: Step
    ) -> Result:
        """Return the rows of a statement that calls a function: planned, priced and checked, and only then run."""
        planned = call.planned(self)
        price = self._priced(ready, planned)
        self._check(price)
        told = planned.run(sql, step)
        step("answering")
        rows = _dated(self._answered(ready, told.rows), columns)
        visible, intervals = _split(rows, len(columns), ())
        after = self.moment.after(self.gate.ledger)
        paid = paid_call(price, told, after.quote([], populations=planned.populations, analyst=self.analyst))
        return Result(
            columns=columns, rows=visible, intervals=intervals, cost=told.cost, tag=f"SELECT {len(rows)}", plan=paid
        )

    def _priced(self, ready: Ready, planned: functions.PlannedCall) -> PricedCall:
        """Return the most that a call may charge, whichever way it goes."""
        ways = planned.alternatives or ((),)
        quotes = [
            quote
            for charges in ways
            for quote in self.moment.quote(charges, populations=planned.populations, analyst=self.analyst)
        ]
        found = explain.explanation(
            Plan(ready.compiled, ()),
            settings=self.settings,
            rho=max(total(charges) for charges in ways),
            quotes=quotes,
            caps=self.gate.caps(self.analyst),
        )
        return priced(found, planned, least=min(total(charges) for charges in ways))

    def _check(self, explanation: Explanation) -> None:
        """Refuse before the data is read, if a cap would be passed as things stand."""
        limit = self.settings.max_rho
        if limit is not None and explanation.rho > limit:
            raise TooDear(
                f"the query costs rho={float(explanation.rho):.6g}, more than noisegate.max_rho={float(limit):.6g}",
                hint="raise noisegate.max_rho, or ask for a larger noisegate.error",
            )
        for quote in explanation.quotes:
            quote.check(self.gate.caps(self.analyst))

    def release(
        self,
        tasks: Sequence[Payable],
        sql: str,
        step: Step,
        *,
        payers: Mapping[str, str] = MappingProxyType({}),
        once: Callable[[Connection], None] | None = None,
    ) -> tuple[list[Release], Fraction]:
        """Return what is newly released, durable, and what it cost: all drawn first, then one commit.

        `payers` says who pays for the tasks with these keys, where that is not who asks; `once` as in Ledger.commit.
        """
        drafts, meters = [], dict[str, Meter]()
        for task in tasks:
            step("measuring")
            assert task.cost is not None
            table, edition = self.gate.policy.tables[task.table], self.moment.edition(task.table)
            if edition.version != task.version:
                raise SourceFailed(f"table {task.table} was refreshed while the query was planned", hint="ask again")
            meter = meters.setdefault(task.table, self.gate.meters[task.table].at(edition))
            drafts.append(
                Draft(
                    key=task.key,
                    question=task.digest,
                    population=table.population,
                    table=table.name,
                    version=task.version,
                    analyst=payers.get(task.key, self.analyst),
                    sql=sql,
                    kind=task.kind.value,
                    body=task.draw(meter),
                    cost=task.cost,
                )
            )
        if not drafts:
            return [], Fraction(0)
        step("charging")
        readings = [reading for meter in meters.values() for reading in meter.readings]
        new = self.gate.ledger.commit(drafts, caps=self.gate.caps(self.analyst), once=once, readings=readings)
        return new, total(release.charge for release in new if not release.replayed)


def _is_empty(post: exp.Query) -> bool:
    """Return whether a query asks for its columns only: LIMIT 0, as tools do."""
    limit = post.args.get("limit")
    return isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal) and limit.expression.name == "0"


def _split(
    rows: list[tuple[Any, ...]], width: int, measured: tuple[int, ...]
) -> tuple[list[tuple[Any, ...]], list[tuple[Interval | None, ...]]]:
    """Return the visible part of rows, and the intervals that stand behind it: low, high for each measured column."""
    if not measured:
        return [row[:width] for row in rows], [(None,) * width] * len(rows)
    places = [(column, width + 2 * i) for i, column in enumerate(measured)]
    intervals = []
    for row in rows:
        found: list[Interval | None] = [None] * width
        for column, place in places:
            found[column] = _interval(row[place], row[place + 1])
        intervals.append(tuple(found))
    return [row[:width] for row in rows], intervals


def _dated(rows: list[tuple[Any, ...]], columns: Sequence[OutputColumn]) -> list[tuple[Any, ...]]:
    """Return rows with NULL for dates outside the years 1 to 9999, which DuckDB gives as text and no client reads."""
    places = [place for place, column in enumerate(columns) if column.type.startswith(("DATE", "TIMESTAMP"))]
    for i, row in enumerate(rows) if places else ():
        if any(isinstance(row[place], str) for place in places):
            rows[i] = tuple(None if p in places and isinstance(value, str) else value for p, value in enumerate(row))
    return rows


def _interval(low: Any, high: Any) -> Interval | None:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return float(low), float(high)
