"""The gate: one for each policy. It takes a statement the whole way and is the only caller of each step.

compile, place, recall, plan; then measure, commit, answer. Nothing leaves before its charge is durable.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from sqlglot import exp

from planner import answer, explain, statement, system
from planner.accounts import Caps, Charge, Draft, Release
from planner.compile import Catalog, Compiled, compile_query
from planner.costs import dearest, rho_of, to_units_down
from planner.errors import Forbidden, TooDear, UnknownAnalyst
from planner.explain import Explanation
from planner.ledger import Ledger
from planner.measure import Meter
from planner.plan import Plan, Planner
from planner.policy import Policy, budget_cap, load
from planner.result import Interval, OutputColumn, Result, single_column
from planner.sandbox import Sandbox, Workbench
from planner.settings import Settings
from planner.statement import Parameters

Step = Callable[[str], None]


class Gate:
    """Guards the tables of one policy; threads may share it."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self.policy, self.ledger = policy, ledger
        protected = {name: table for name, table in policy.tables.items() if table.kind == "protected"}
        self.meters = {name: Meter(table, ledger) for name, table in protected.items()}
        self.sandbox = Sandbox(policy)
        self.cap = budget_cap(policy)
        types = {name: self._types(name) for name in policy.tables}
        views = {name: self._view(sql) for name, sql in policy.views.items()}
        self.catalog = Catalog(protected, types | system.TYPES, views)

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

    def _types(self, name: str) -> dict[str, str]:
        table = self.policy.tables[name]
        if table.kind != "protected":
            return self.sandbox.schema(name)
        return {c.name: c.domain.duckdb_type if c.domain else "VARCHAR" for c in table.columns.values() if not c.hidden}

    @staticmethod
    def _view(sql: str) -> exp.Query:
        found = statement.read(sql)
        if not isinstance(found, statement.Query):
            raise Forbidden("a view must be a SELECT")
        return found.tree

    def session(self, analyst: str | None = None) -> Session:
        """Return a session of an analyst; None stands for the only one that there is."""
        names = list(self.policy.analysts)
        if analyst is None and len(names) == 1:
            analyst = names[0]
        if analyst is None or analyst not in self.policy.analysts:
            who = f"there is no analyst {analyst}" if analyst else "an analyst is needed"
            raise UnknownAnalyst(who, hint=f"the policy has: {', '.join(names)}")
        return Session(self, analyst)

    def caps(self, analyst: str) -> Caps:
        """Return what the whole population and this analyst may spend, in units."""
        share = self.policy.analysts[analyst].share
        return Caps(to_units_down(self.cap), to_units_down(self.cap * share))

    def refresh(self, table: str) -> int:
        """Start a new version of a table's data: history stays charged and stops being reused."""
        if table not in self.meters:
            raise Forbidden(f"there is no protected table {table}", hint=f"there are: {', '.join(self.meters)}")
        return self.meters[table].refresh()

    def close(self) -> None:
        for meter in self.meters.values():
            meter.close()
        self.ledger.close()


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
            with self.gate.sandbox.session() as bench:
                plan = self._plan(found, bench)
                for part in plan.parts:
                    answer.make_relation(part, answer.empty_releases(part.tasks), bench, z=self.settings.z)
                self._add_system(plan.compiled, bench)
                types = bench.types(_text(plan.compiled.post))
            return _columns(plan.compiled, [kind for _, kind in types])

    # The way of a query.

    def _plan(self, query: statement.Query, bench: Workbench) -> Plan:
        compiled = compile_query(query.tree, self.gate.catalog)
        self.gate.sandbox.check_functions(compiled.post)
        planner = Planner(self.gate.sandbox, bench, self.gate.ledger, self.gate.meters, self.settings)
        return planner.plan(compiled)

    def _explained(self, query: statement.Query) -> Explanation:
        with self.gate.sandbox.session() as bench:
            return self._explanation(self._plan(query, bench))

    def _explain(self, query: statement.Query, *, as_json: bool) -> Result:
        found = self._explained(query)
        lines = [json.dumps([found.as_json()], indent=2)] if as_json else list(found.lines)
        return single_column("QUERY PLAN", lines, tag="EXPLAIN")

    def _explanation(self, plan: Plan) -> Explanation:
        gate, caps = self.gate, self.gate.caps(self.analyst)
        charges = [Charge(gate.policy.tables[t.table].population, t.table, t.cost) for t in plan.paid if t.cost]
        quotes = gate.ledger.quote(charges, analyst=self.analyst)
        rho = sum((self._dearest(charges, table) for table in {charge.table for charge in charges}), Fraction(0))
        return explain.explanation(plan, settings=self.settings, rho=rho, quotes=quotes, caps=caps)

    @staticmethod
    def _dearest(charges: Sequence[Charge], table: str) -> Fraction:
        return rho_of(dearest(charge.cost for charge in charges if charge.table == table))

    def _query(self, query: statement.Query, step: Step) -> Result:
        with self.gate.sandbox.session() as bench:
            step("planning")
            plan = self._plan(query, bench)
            explanation = self._explanation(plan)
            self._check(explanation)
            releases = self._released(plan, query.sql, step)
            step("answering")
            for part in plan.parts:
                answer.make_relation(part, releases, bench, z=self.settings.z)
            self._add_system(plan.compiled, bench)
            rows, types = _rows(bench, _text(plan.compiled.post))
        columns = _columns(plan.compiled, types)
        visible, intervals = _split(rows, len(columns), plan.compiled.intervals)
        return Result(columns, visible, intervals, explanation.rho, f"SELECT {len(rows)}", explanation)

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

    def _released(self, plan: Plan, sql: str, step: Step) -> dict[str, tuple[Release, ...]]:
        """Return the releases behind every task, after making and paying for those that are missing."""
        drafts = []
        for task in plan.paid:
            step("measuring")
            table, meter = self.gate.policy.tables[task.table], self.gate.meters[task.table]
            version = meter.version()
            body = task.draw(meter)
            assert task.cost is not None
            drafts.append(
                Draft(
                    task.key,
                    task.digest,
                    table.population,
                    table.name,
                    version,
                    self.analyst,
                    sql,
                    task.kind,
                    body,
                    task.cost,
                )
            )
        step("charging")
        stored = self.gate.ledger.commit(drafts, caps=self.gate.caps(self.analyst)) if drafts else []
        new = {release.key: (release,) for release in stored}
        tasks = [task for part in plan.parts for task in part.tasks]
        return {task.key: (*task.history, *new.get(task.key, ())) for task in tasks}

    def _add_system(self, compiled: Compiled, bench: Workbench) -> None:
        """Make the system tables that a statement reads, as they are now."""
        for table in compiled.post.find_all(exp.Table):
            if table.db == system.SCHEMA:
                name = f"__system_{table.name}"
                system.make(table.name, name, self.gate, bench)
                alias = table.alias or table.name
                table.replace(exp.to_table(name).as_(alias))


def _text(post: exp.Query) -> str:
    return post.sql("duckdb")


def _rows(bench: Workbench, sql: str) -> tuple[list[tuple[Any, ...]], list[str]]:
    found = bench.run(sql)
    types = [str(entry[1]) for entry in found.description or ()]
    return found.fetchall(), types


def _columns(compiled: Compiled, types: list[str]) -> tuple[OutputColumn, ...]:
    return tuple(OutputColumn(name, kind) for name, kind in zip(compiled.names, types, strict=False))


def _split(
    rows: list[tuple[Any, ...]], width: int, measured: tuple[int, ...]
) -> tuple[list[tuple[Any, ...]], list[tuple[Interval | None, ...]]]:
    """Return the visible part of rows, and the intervals that stand behind it: low, high for each measured column."""
    place = {column: width + 2 * i for i, column in enumerate(measured)}
    intervals = [
        tuple(_interval(row[place[i]], row[place[i] + 1]) if i in place else None for i in range(width)) for row in rows
    ]
    return [row[:width] for row in rows], intervals


def _interval(low: Any, high: Any) -> Interval | None:
    if low is None or high is None or not (np.isfinite(float(low)) and np.isfinite(float(high))):
        return None
    return float(low), float(high)
