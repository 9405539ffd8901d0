"""Where a measured query lives: the atoms its expressions distinguish, and what each means on every cell.

Conditions, group keys and arguments are never interpreted here. DuckDB evaluates them on the public domain:
first each maximal piece that touches one column, on all values of that column, to find which values the query
can tell apart (atoms); then everything at once, on one representative of every combination of atoms (cells).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from sqlglot import exp

from planner.basics.errors import EvaluationFailed, Forbidden, TooLarge
from planner.basics.limits import MAX_CELLS
from planner.basics.nodes import span
from planner.cells.workload import Placement
from planner.cells.workspace import Axis, Workspace
from planner.duck.quoting import quoted
from planner.duck.workbench import Workbench
from planner.policy.domain import Domain
from planner.sql.query import BASE, Measured


class Domains(Protocol):
    """What has the cells of public domains as tables: the sandbox."""

    def domain(self, domain: Domain, *, name: str, presence: bool = False) -> str:
        """Return the name of a table (i, v) with every cell of a public domain."""

    def check_functions(self, tree: exp.Expr) -> None:
        """Raise if `tree` calls something that is not a plain, repeatable function of its arguments."""


class Placer:
    """Places the pieces of one measured query in one workbench."""

    def __init__(self, measured: Measured, sandbox: Domains, bench: Workbench) -> None:
        self.measured, self.sandbox, self.bench = measured, sandbox, bench
        self.count = 0

    def place(self, asked: Sequence[exp.Expr], *, split: Sequence[exp.Expr] = ()) -> Placement:
        """Return where the query lives when `asked` has to be known on every cell.

        `split` names expressions that must be constant on each atom without being asked for.
        """
        for node in (*asked, *split):
            self.sandbox.check_functions(node)
        workspace = self._workspace([*self._frame(), *asked, *split])
        return self._evaluate(workspace, asked)

    def _frame(self) -> Iterator[exp.Expr]:
        """Yield what every placement of this query has to know: conditions, joins and group keys."""
        yield from self.measured.where
        yield from self.measured.keys
        yield from self.measured.joins

    # First: atoms.

    def _workspace(self, nodes: Sequence[exp.Expr]) -> Workspace:
        pieces: dict[str, list[exp.Expr]] = {}
        for node in nodes:
            for piece in _pieces(node):
                column = next(_base_columns(piece))
                self._domain(column)
                pieces.setdefault(column.name, []).append(piece)
        axes = tuple(self._axis(column, found) for column, found in sorted(pieces.items()))
        workspace = Workspace(self.measured.table, axes)
        if workspace.cells > MAX_CELLS:
            sizes = " × ".join(f"{axis.column} {axis.size}" for axis in axes)
            raise TooLarge(
                f"the query distinguishes {workspace.cells:,} cells ({sizes}), the limit is {MAX_CELLS:,}",
                hint="group more coarsely, for example by ranges, or ask about fewer columns at a time",
            )
        return workspace

    def _domain(self, column: exp.Column) -> Domain:
        domain = self.measured.table.columns[column.name].domain
        if domain is None:
            raise Forbidden(
                f"column {column.name} has no public domain",
                hint="only COUNT(DISTINCT …) can be asked of the privacy unit",
                span=span(column),
            )
        return domain

    def _axis(self, column: str, pieces: Sequence[exp.Expr]) -> Axis:
        domain = self.measured.table.columns[column].domain
        assert domain is not None
        if not domain.enumerable:
            return self._presence(column, domain, pieces)
        table = self.sandbox.domain(domain, name=column)
        source = f"(SELECT i AS __i, v AS {quoted(column)} FROM {table}) AS {quoted(BASE)}"
        texts = dict.fromkeys(piece.sql("duckdb") for piece in pieces)
        query = f"SELECT min(__i) OVER (PARTITION BY {', '.join(texts)}) AS a FROM {source} ORDER BY __i"
        try:
            first = np.asarray(self.bench.arrays(query)["a"], dtype=np.int64)
        except EvaluationFailed:
            # A piece may fail on values that the whole expression never sends it (CASE guards it): tell all
            # values apart, and let the evaluation of the whole expression decide.
            first = np.arange(domain.cells, dtype=np.int64)
        found, atoms = np.unique(first, return_inverse=True)
        return Axis(column, domain, atoms.astype(np.int64), found)

    def _presence(self, column: str, domain: Domain, pieces: Sequence[exp.Expr]) -> Axis:
        """Return the axis of a column that is too large to write out: it can only be tested for NULL."""
        for piece in pieces:
            test = piece.this if isinstance(piece, exp.Not) else piece
            if not (isinstance(test, exp.Is) and isinstance(test.expression, exp.Null) and _is_column(test.this)):
                raise TooLarge(
                    f"column {column} has {domain.cells:,} values, too many for a condition or a group",
                    hint="it can be summed and averaged as it is; a coarser step in the policy makes it groupable",
                    span=span(piece),
                )
        ends = np.arange(1 + domain.nullable, dtype=np.int64)
        return Axis(column, domain, ends, ends, presence=True)

    # Second: everything on the cells.

    def _evaluate(self, workspace: Workspace, asked: Sequence[exp.Expr]) -> Placement:
        measured, relation = self.measured, f"{self.measured.name}_t{self.count}"
        self.count += 1
        query = exp.select(exp.column("__cell", table=BASE)).from_(self._cells(workspace, relation))
        named = [*((f"k{i}", key) for i, key in enumerate(measured.keys)), *((f"v{i}", v) for i, v in enumerate(asked))]
        query = query.select(*(exp.alias_(exp.Paren(this=node.copy()), name) for name, node in named), copy=False)
        for join in measured.joins:
            query.append("joins", join.copy())
        if measured.where:
            query = query.where(*(exp.Paren(this=node.copy()) for node in measured.where))
        self.bench.run(f"CREATE TEMP TABLE {relation} AS {query.sql('duckdb')} ORDER BY ALL")
        ranks = [f", {_rank(keys)} AS g{s}" for s, keys in enumerate(measured.sets)]
        columns = "".join(f", v{i}" for i in range(len(asked)))
        arrays = self.bench.arrays(f"SELECT __cell{columns}{''.join(ranks)} FROM {relation} ORDER BY rowid")
        cell = np.asarray(arrays["__cell"], dtype=np.int64)
        if len(cell) > MAX_CELLS:
            raise TooLarge(
                f"the query and its public joins make {len(cell):,} combinations, the limit is {MAX_CELLS:,}",
                hint="join on a key, or with fewer rows of the public table",
            )
        groups = tuple(np.asarray(arrays[f"g{s}"], dtype=np.int64) for s in range(len(measured.sets)))
        counts = tuple(
            1 if not keys else int(g.max(initial=-1)) + 1 for keys, g in zip(measured.sets, groups, strict=True)
        )
        types = dict(self.bench.types(f"SELECT * FROM {relation}"))
        return Placement(
            workspace=workspace,
            cell=cell,
            groups=groups,
            group_counts=counts,
            values=tuple(arrays[f"v{i}"] for i in range(len(asked))),
            keys=tuple(self._keys(relation, s, keys) for s, keys in enumerate(measured.sets)),
            key_types=tuple(types[f"k{i}"] for i in range(len(measured.keys))),
            relation=relation,
        )

    def _keys(self, relation: str, number: int, keys: tuple[int, ...]) -> str:
        name = f"{relation}_g{number}"
        if not keys:
            self.bench.run(f"CREATE TEMP TABLE {name} AS SELECT 0::BIGINT AS g")
            return name
        columns = ", ".join(f"k{key}" for key in keys)
        inner = f"SELECT DISTINCT {columns} FROM {relation}"
        self.bench.run(f"CREATE TEMP TABLE {name} AS SELECT {_rank(keys)} AS g, {columns} FROM ({inner})")
        return name

    def _cells(self, workspace: Workspace, relation: str) -> exp.Expr:
        """Return the relation of all cells: __cell and one representative value of each column."""
        number, columns, sources = ["0"], [], []
        for i, (axis, stride) in enumerate(zip(workspace.axes, workspace.strides, strict=True)):
            atoms = f"{relation}_a{i}"
            domain = self.sandbox.domain(axis.domain, name=axis.column, presence=axis.presence)
            self.bench.register(atoms, {"a": np.arange(axis.size), "i": axis.first})
            number.append(f"x{i}.a * {stride}")
            columns.append(f", d{i}.v AS {quoted(axis.column)}")
            sources.append(f"({atoms} AS x{i} JOIN {domain} AS d{i} ON x{i}.i = d{i}.i)")
        inside = f"SELECT CAST({' + '.join(number)} AS BIGINT) AS __cell{''.join(columns)}"
        if sources:
            inside += f" FROM {' CROSS JOIN '.join(sources)}"
        self.bench.run(f"CREATE TEMP VIEW {relation}_cells AS {inside}")
        return exp.to_table(f"{relation}_cells").as_(BASE, quoted=True)


def _rank(keys: Sequence[int]) -> str:
    """Return the SQL that numbers the groups of one grouping set from 0, in the order of their keys."""
    if not keys:
        return "CAST(0 AS BIGINT)"
    return f"CAST(dense_rank() OVER (ORDER BY {', '.join(f'k{key}' for key in keys)}) - 1 AS BIGINT)"


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), exp.Column)


def _base_columns(node: exp.Expr) -> Iterator[exp.Column]:
    return (column for column in node.find_all(exp.Column) if column.table == BASE)


def _pieces(root: exp.Expr) -> list[exp.Expr]:
    """Return the largest parts of `root` that touch one base column and nothing else that varies.

    The whole is a function of these parts, so cells on which all of them agree are alike. A part that holds a
    public column (of a join or a correlated subquery) varies with it, and is taken apart further.
    """
    columns: dict[int, frozenset[str]] = {}  # of each node, by its id; OTHER stands for every public column
    for node in reversed(list(root.walk(bfs=False))):
        below = [columns[id(child)] for child in node.iter_expressions()]
        own = {node.name if node.table == BASE else OTHER} if isinstance(node, exp.Column) else ()
        columns[id(node)] = frozenset(own).union(*below)
    found, stack = [], [root]
    while stack:
        node = stack.pop()
        whole = len(columns[id(node)]) == 1 and not isinstance(node, exp.Join | exp.Tuple)
        if not columns[id(node)] - {OTHER}:
            continue
        if whole or isinstance(node, exp.Column):
            found.append(node)
        else:
            stack.extend(reversed(list(node.iter_expressions())))
    return found


OTHER = ""
"""Stands for the public columns among those that an expression touches."""
