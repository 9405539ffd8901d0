"""What all sessions of a gate share: the policy, the ledger, the tables with what is known of them, and queries."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from mechanisms import interrupts
from planner import system
from planner.basics.cache import BoundedCache
from planner.basics.errors import Forbidden, Mistake, Refusal, TooLarge, Unsupported
from planner.basics.limits import HISTORY_BYTES, READY_BYTES
from planner.calls.call import Function, Ready, extract_call
from planner.cells.costs import to_units_down
from planner.duck.bounds import UNWRITABLE, UNWRITABLE_HINT
from planner.duck.sandbox import Sandbox
from planner.history.recall import History
from planner.ledger.accounts import Caps
from planner.ledger.ledger import Ledger
from planner.plans.moment import Moment
from planner.plans.prepared import Prepared, prepare
from planner.policy.file import Policy, budget_cap, refusal
from planner.policy.table import Table
from planner.sources.measure import Meter
from planner.sql import statement
from planner.sql.compile import compile_query
from planner.sql.query import AUTO, Catalog
from planner.system import Books


class Shared:
    """All that is needed to answer about the tables of one policy; threads may share it."""

    def __init__(self, policy: Policy, ledger: Ledger, functions: Mapping[str, Function]) -> None:
        self.policy, self.ledger, self.functions = policy, ledger, functions
        protected = {name: table for name, table in policy.tables.items() if table.kind == "protected"}
        self.meters = {name: Meter(table, ledger) for name, table in protected.items()}
        known = BoundedCache[Any](HISTORY_BYTES)
        self.histories = {name: History(table, ledger.content, known) for name, table in protected.items()}
        self.books = Books(policy, ledger)
        self.sandbox = Sandbox(policy.tables)
        self.cap = budget_cap(policy)
        self._ready = BoundedCache[Ready](READY_BYTES)
        self.planning_round = threading.Lock()  # the largest take a core and 1 or 2 GB
        self.catalog = catalog(policy, self.sandbox)

    @contextmanager
    def prepared(self, query: statement.Query, *, groups: str = AUTO) -> Iterator[Ready]:
        """Yield a query ready to be planned; kept for the next time it is asked, as EXPLAIN or to be answered.

        Args:
            groups: which groups of the domain count.
        """
        try:
            with self._prepared(query, groups) as ready:
                yield ready
        except RecursionError:
            raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None
        except SqlglotError:  # sqlglot 30.30 can't write initcap of initcap, which would grow threefold at each level
            raise Unsupported(UNWRITABLE, hint=UNWRITABLE_HINT) from None

    @contextmanager
    def _prepared(self, query: statement.Query, groups: str) -> Iterator[Ready]:
        key = None if query.key is None else f"{groups}\0{query.key}"
        ready = self._ready.pop(key) if key is not None else None
        if ready is None:
            interrupts.check()
            tree, call = extract_call(query.tree, self.functions)
            self.sandbox.check_functions(tree)
            call = None if call is None else call.typed(self)
            catalog = self.catalog if call is None else call.catalog(self.catalog)
            compiled = compile_query(tree, catalog, groups=groups)
            interrupts.check()
            self.sandbox.check_bounds(tree)
            self.sandbox.check_bounds(compiled.post)  # where names may stand for more
            if call is not None:
                call.check(compiled)
            bench = self.sandbox.workbench()
            parts = tuple(prepare(measured, self.sandbox, bench) for measured in compiled.measured)
            ready = Ready(compiled, parts, bench, call)
        yield ready
        if key is not None:
            self._ready.put(key, ready, ready.size)

    def moment(self, parts: Sequence[Prepared] = ()) -> Moment:
        """Return what is true now, from one reading of the ledger: about all that some queries need, and more later."""
        tables = dict.fromkeys(part.measured.table.name for part in parts)
        snapshot = self.ledger.snapshot(
            tables={name: self.histories[name].last for name in tables},
            questions=list(dict.fromkeys(pair for part in parts for pair in part.looked_up)),
        )
        return Moment(snapshot, self.meters, self.histories)

    def caps(self, analyst: str) -> Caps:
        """Return what the whole population and this analyst may spend, in units."""
        accounts = {name: to_units_down(self.cap * found.share) for name, found in self.policy.analysts.items()}
        return Caps(to_units_down(self.cap), accounts[analyst], accounts)


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
