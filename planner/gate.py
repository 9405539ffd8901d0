"""The gate: one for each policy. It takes a statement the whole way and is the only caller of each step.

compile, place, recall, plan; then measure, commit, answer. Nothing leaves before its charge is durable.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from mechanisms import interrupts
from planner import system
from planner.basics.cache import Kept, array_bytes
from planner.basics.errors import (
    BadValue,
    EvaluationFailed,
    Forbidden,
    Mistake,
    Refusal,
    SourceFailed,
    TooDear,
    TooLarge,
    UnknownAnalyst,
    Unsupported,
)
from planner.calls import call as functions
from planner.calls.choose import choose
from planner.calls.rounds import rounds
from planner.calls.verify import verify
from planner.cells.costs import rho_of, to_units_down
from planner.duck.bounds import UNWRITABLE, UNWRITABLE_HINT
from planner.duck.relations import SCHEMA
from planner.duck.sandbox import Sandbox, Workbench
from planner.history.recall import KEPT_BYTES, History
from planner.ledger.accounts import Caps, Charge, Draft, Release, total
from planner.ledger.ledger import Ledger
from planner.ledger.stores import Connection
from planner.plans import answer, explain
from planner.plans.explain import Explanation
from planner.plans.plan import Plan, Planner, Prepared, prepare
from planner.plans.result import Interval, OutputColumn, Result, single_column
from planner.plans.settings import Settings
from planner.policy.file import Policy, Table, budget_cap, load, refusal
from planner.sources.measure import Meter
from planner.sql import statement
from planner.sql.compile import compile_query
from planner.sql.null_on_error import forgiving
from planner.sql.query import Catalog, Compiled
from planner.sql.statement import Parameters

Step = Callable[[str], None]

KEPT_READY = 64 * 2**20
"""About how many bytes queries may take that stay compiled and placed for the next time."""

READY = 1_000_000
"""About how many bytes a small one of them takes, with its connection to the sandbox."""

FUNCTIONS = {function.name: function for function in (choose.FUNCTION, verify.FUNCTION, *rounds.FUNCTIONS)}
"""What can be called in FROM, as noisegate.name(…)."""


@dataclass(frozen=True, eq=False)
class Ready:
    """A query compiled and placed in a workbench of its own; nothing in it depends on settings or history."""

    compiled: Compiled
    parts: tuple[Prepared, ...]
    bench: Workbench
    call: functions.Call | None = None

    @cached_property
    def size(self) -> int:
        """About how many bytes it takes; what is in the sandbox is about as large as what is beside it."""
        return READY + 2 * array_bytes(self.parts)


class Gate:
    """Guards the tables of one policy; threads may share it."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self.policy, self.ledger = policy, ledger
        protected = {name: table for name, table in policy.tables.items() if table.kind == "protected"}
        self.meters = {name: Meter(table, ledger) for name, table in protected.items()}
        known = Kept[Any](KEPT_BYTES)
        self.histories = {name: History(table, ledger, known) for name, table in protected.items()}
        self.sandbox = Sandbox(policy)
        self.cap = budget_cap(policy)
        self._ready = Kept[Ready](KEPT_READY)
        self.planning_round = threading.Lock()  # the largest take a core and 1 or 2 GB
        self.catalog = catalog(policy, self.sandbox)

    @classmethod
    def open(cls, path: str | Path) -> Gate:
        """Return the gate of a policy file; raises if the policy, the ledger or a source can't be used."""
        found = load(Path(path))
        ledger = Ledger.open(found.ledger)
        try:
            return cls(found, ledger)
        except BaseException:
            ledger.close()
            raise

    def session(self, analyst: str | None = None) -> Session:
        """Return a session of an analyst; None stands for the only one that there is."""
        names = list(self.policy.analysts)
        if analyst is None and len(names) == 1:
            analyst = names[0]
        if analyst is None or analyst not in self.policy.analysts:
            who = f"there is no analyst {analyst}" if analyst else "an analyst is needed"
            raise UnknownAnalyst(who, hint=f"the policy has: {', '.join(names)}")
        return Session(self, analyst)

    @contextmanager
    def prepared(self, query: statement.Query) -> Iterator[Ready]:
        """Yield a query ready to be planned; kept for the next time it is asked, as EXPLAIN or to be answered."""
        try:
            with self._prepared(query) as ready:
                yield ready
        except RecursionError:
            raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None
        except SqlglotError:  # sqlglot 30.30 can't write initcap of initcap, which would grow threefold at each level
            raise Unsupported(UNWRITABLE, hint=UNWRITABLE_HINT) from None

    @contextmanager
    def _prepared(self, query: statement.Query) -> Iterator[Ready]:
        ready = self._ready.pop(query.key) if query.key is not None else None
        if ready is None:
            interrupts.check()
            tree, call = functions.taken(query.tree, FUNCTIONS)
            self.sandbox.check_functions(tree)
            call = None if call is None else call.typed(self)
            compiled = compile_query(tree, self.catalog if call is None else call.catalog(self.catalog))
            interrupts.check()
            self.sandbox.check_bounds(tree)
            self.sandbox.check_bounds(compiled.post)  # where names may stand for more
            if call is not None:
                call.check(compiled)
            bench = self.sandbox.workbench()
            parts = tuple(prepare(measured, self.sandbox, bench) for measured in compiled.measured)
            ready = Ready(compiled, parts, bench, call)
        yield ready
        if query.key is not None:
            self._ready.put(query.key, ready, ready.size)

    def caps(self, analyst: str) -> Caps:
        """Return what the whole population and this analyst may spend, in units."""
        accounts = {name: to_units_down(self.cap * found.share) for name, found in self.policy.analysts.items()}
        return Caps(to_units_down(self.cap), accounts[analyst], accounts)

    def move(self, share: str, *, source: str, target: str) -> None:
        """Move a part of the budget from one analyst's account to another's, durably; the sum stays what it was."""
        try:
            amount = Fraction(share)
        except (ValueError, ZeroDivisionError):
            amount = Fraction(0)
        if not 0 < amount <= 1:
            raise BadValue(f"a share lies between 0 and 1, got {share}", hint="for example: --move 0.1 ann bob")
        for name in (source, target):
            if name not in self.policy.analysts:
                raise UnknownAnalyst(
                    f"there is no analyst {name}", hint=f"there are: {', '.join(self.policy.analysts)}"
                )
        if source == target:
            raise BadValue(f"{source} can't move a share to themselves", hint="name two analysts")
        self.ledger.move(amount, source=source, target=target, caps=self.caps(source))

    def refresh(self, table: str) -> int:
        """Start a new version of a table's data: history stays charged, and is neither reused nor shared by cells."""
        return self._meter(table).refresh()

    def paid(self, table: str) -> tuple[str, Fraction]:
        """Return the population of a protected table, and what it has paid in rho: a refresh gives nothing of it back.

        A cell of the table's present data that has paid less than the dearest one loses that lead at a refresh.
        """
        population = self._meter(table).table.population
        return population, rho_of(self.ledger.spent(population))

    def _meter(self, table: str) -> Meter:
        if table not in self.meters:
            raise Forbidden(f"there is no protected table {table}", hint=f"there are: {', '.join(self.meters)}")
        return self.meters[table]

    def close(self) -> None:
        for meter in self.meters.values():
            meter.close()
        self.ledger.close()


def catalog(policy: Policy, sandbox: Sandbox) -> Catalog:
    """Return what names mean under a policy; raise PolicyRefusal for views that do not compile."""
    protected = {name: table for name, table in policy.tables.items() if table.kind == "protected"}
    public = {name: sandbox.schema(name) for name in policy.tables if name not in protected}
    types = {name: _visible_types(table) for name, table in protected.items()} | public | system.TYPES
    found, mistakes = Catalog(protected, types, {}), []
    for name, sql in policy.views.items():
        try:
            found = replace(found, views={**found.views, name: _view(sql)})
            compile_query(exp.select("count(*)").from_(name), found)
        except Refusal as refused:
            mistakes.append(Mistake(None, f"views.{name}", refused.message))
    if mistakes:
        raise refusal(policy.path, mistakes)
    return found


def _visible_types(table: Table) -> dict[str, str]:
    visible = [column for column in table.columns.values() if not column.hidden]
    return {column.name: column.domain.duckdb_type if column.domain else "VARCHAR" for column in visible}


def _view(sql: str) -> exp.Query:
    """Return the tree of a view, without places: they would point into the text of whoever asks."""
    found = statement.read(sql)
    if not isinstance(found, statement.Query):
        raise Forbidden("a view must be a SELECT")
    for node in found.tree.walk():
        node.meta.clear()
    return found.tree


class Session:
    """One analyst's connection: their settings, and the way of a statement through the gate."""

    def __init__(self, gate: Gate, analyst: str) -> None:
        self.gate, self.analyst = gate, analyst
        self.defaults = Settings.of(gate.policy)
        self.settings = self.defaults
        self._lock = threading.Lock()

    def execute(self, sql: str, parameters: Parameters = None, *, on_step: Step | None = None) -> Result:
        """Return the result of one statement; charge for what it newly releases, and for nothing else."""
        step = on_step or (lambda _: None)
        with self._lock:
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
        with self._lock:
            match statement.read(sql, parameters):
                case statement.Query() as query:
                    return self._explained(query)
                case statement.Explain(query=query):
                    return self._explained(query)
        raise Forbidden("only a SELECT can be explained", hint="for example: SELECT count(*) FROM …")

    def price(self, planned: functions.Planned) -> functions.Priced:
        """Return what a planned call would cost; spend nothing."""
        nothing = statement.read("SELECT 1")
        assert isinstance(nothing, statement.Query)
        with self._lock, self.gate.prepared(nothing) as ready:
            return self._priced(ready, planned)

    def describe(self, sql: str, parameters: Parameters = None) -> tuple[OutputColumn, ...]:
        """Return the columns that a statement would give back; spend nothing."""
        with self._lock:
            found = statement.read(sql, parameters)
            if isinstance(found, statement.Show):
                return (OutputColumn(found.name, "VARCHAR"),)
            if isinstance(found, statement.Explain):
                return (OutputColumn("QUERY PLAN", "VARCHAR"),)
            if not isinstance(found, statement.Query):
                return ()
            with self.gate.prepared(found) as ready:
                return self._columns(ready, self._plan(ready))

    # The way of a query.

    def _plan(self, ready: Ready) -> Plan:
        planner = Planner(self.gate.ledger, self.gate.meters, self.gate.histories, self.settings)
        return planner.plan(ready.compiled, ready.parts)

    def _columns(self, ready: Ready, plan: Plan) -> tuple[OutputColumn, ...]:
        """Return the output columns, from relations that have the right types and no rows yet."""
        for part in plan.parts:
            answer.make_relation(part, None, ready.bench, z=self.settings.z)
        post = self._post(ready).sql("duckdb")
        types = ready.bench.types(post)
        if ready.compiled.post.find(exp.Subquery):
            ready.bench.rehearse(post)  # on zeros, but with every group: a scalar subquery of many rows fails here
        names = ready.compiled.names
        return tuple(OutputColumn(name, kind) for name, (_, kind) in zip(names, types, strict=False))

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
                    system.make(table.name, name, self.gate, ready.bench)
                named = exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
                table.replace(exp.Table(this=exp.to_identifier(name), alias=table.args.get("alias") or named))
        return post

    def _explained(self, query: statement.Query) -> Explanation:
        with self.gate.prepared(query) as ready:
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
            Charge(gate.policy.tables[t.table].population, t.table, t.version, t.cost) for t in plan.paid if t.cost
        ]
        populations = [part.measured.table.population for part in plan.parts]
        quotes = gate.ledger.quote(charges, populations=populations, analyst=self.analyst)
        return explain.explanation(plan, settings=self.settings, rho=total(charges), quotes=quotes, caps=caps)

    def _query(self, query: statement.Query, step: Step) -> Result:
        step("planning")
        with self.gate.prepared(query) as ready:
            plan = self._plan(ready)
            columns = self._columns(ready, plan)  # what can't be post-processed is refused before it is paid for
            if _is_empty(ready.compiled.post):
                return Result(columns, tag="SELECT 0")
            if ready.call is not None:
                return self._called(ready, ready.call, columns, query.sql, step)
            explanation = self._explanation(plan)
            self._check(explanation)
            if plan.paid:
                self._rehearse(ready, plan)
            new, charged = self.release(plan.paid, query.sql, step)
            step("answering")
            for part in plan.parts:
                answer.make_relation(part, new, ready.bench, z=self.settings.z)
            rows = _dated(self._answered(ready), columns)
        visible, intervals = _split(rows, len(columns), ready.compiled.intervals)
        return Result(columns, visible, intervals, charged, f"SELECT {len(rows)}", explanation)

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
        paid = functions.paid(
            price, told, self.gate.ledger.quote([], populations=planned.populations, analyst=self.analyst)
        )
        return Result(columns, visible, intervals, told.cost, f"SELECT {len(rows)}", paid)

    def _priced(self, ready: Ready, planned: functions.Planned) -> functions.Priced:
        """Return the most that a call may charge, whichever way it goes."""
        ways = planned.alternatives or ((),)
        quotes = [
            quote
            for charges in ways
            for quote in self.gate.ledger.quote(charges, populations=planned.populations, analyst=self.analyst)
        ]
        found = explain.explanation(
            Plan(ready.compiled, ()),
            settings=self.settings,
            rho=max(total(charges) for charges in ways),
            quotes=quotes,
            caps=self.gate.caps(self.analyst),
        )
        return functions.priced(found, planned, least=min(total(charges) for charges in ways))

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
        tasks: Sequence[functions.Payable],
        sql: str,
        step: Step,
        *,
        payers: Mapping[str, str] = MappingProxyType({}),
        once: Callable[[Connection], None] | None = None,
    ) -> tuple[list[Release], Fraction]:
        """Return what is newly released, durable, and what it cost: all drawn first, then one commit.

        `payers` says who pays for the tasks with these keys, where that is not who asks; `once` as in Ledger.commit.
        """
        drafts = []
        for task in tasks:
            step("measuring")
            assert task.cost is not None
            table, meter = self.gate.policy.tables[task.table], self.gate.meters[task.table]
            if meter.version() != task.version:
                raise SourceFailed(f"table {task.table} was refreshed while the query was planned", hint="ask again")
            payer = payers.get(task.key, self.analyst)
            draft = (table.population, table.name, task.version, payer, sql, task.kind, task.draw(meter))
            drafts.append(Draft(task.key, task.digest, *draft, task.cost))
        if not drafts:
            return [], Fraction(0)
        step("charging")
        new = self.gate.ledger.commit(drafts, caps=self.gate.caps(self.analyst), once=once)
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
