"""A query on a synthetic table, and the same question about its original: what `noisegate.verify` is asked about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from planner.basics.errors import BadValue, Forbidden, NotGrouped, Refusal, TooLarge, Unsupported, WrongType
from planner.basics.limits import MAX_VERIFIED_GROUPS
from planner.basics.nodes import span
from planner.calls.call import Constant, Preparing, Ready, Row
from planner.plans import wording
from planner.plans.prepared import Prepared
from planner.policy.table import Table
from planner.questions import statistic as asking
from planner.questions.statistic import Asked
from planner.sources.measure import Exact
from planner.sql import names, statement
from planner.sql.aggregates import AggregateKind
from planner.sql.query import ALL, Aggregate

KINDS = (AggregateKind.COUNT, AggregateKind.SUM, AggregateKind.AVG, AggregateKind.QUANTILE)
RELATION = "__m0"
"""Name of the first noisy relation of a query."""

EXAMPLE = "for example: $$SELECT count(*) FROM people_synth WHERE age < 30$$"


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject:
    """A query on a synthetic table, and the same about its original."""

    copy: Table
    original: Table
    asked: Asked
    exact: Exact
    keys: Mapping[str, str]  # name and type of the group keys that are shown
    groups: Sequence[Row]  # their values
    span: tuple[int, int] | None  # of the aggregate
    limited: bool  # of the copy no more rows of a privacy unit count than of the original

    @property
    def compared(self) -> str | None:
        """Return in words which rows are compared; None if all of both tables are."""
        original, copy = self.original, self.copy.name
        if original.unit is None:
            return None
        most = f"at most {wording.number(original.max_rows_per_unit, 'row')} of each {original.unit}"
        if self.limited:
            return f"{most}, in {original.name} and in {copy} alike"
        return f"{most} in {original.name}, and all rows of {copy}, which has no column {original.unit}"


def subject(gate: Preparing, text: Constant, *, taken: Collection[str]) -> Subject:
    """Return what a query on a synthetic table asks; refuse what can't be verified, with its place in the statement.

    Args:
        taken: names that group keys can't have.
    """
    try:
        query = statement.read(text.value)
        if not isinstance(query, statement.Query):
            raise Forbidden("what is verified must be a SELECT", hint=EXAMPLE)
        with gate.prepared(query) as plain:  # as it is written: names of tables and columns are those of the copy
            if plain.call is not None:
                raise Unsupported("what is verified can't call a function in FROM", hint=EXAMPLE)
        tree, copy = _about_original(query, gate)
        mapped = statement.Query(tree, query.sql, None if query.key is None else f"verify\0{query.key}")
        with gate.prepared(mapped, groups=ALL) as ready:  # each is decided, whoever is in it
            return _subject(gate, ready, copy, taken)
    except Refusal as refused:
        refused.span = text.place(refused.span)
        raise


def _about_original(query: statement.Query, gate: Preparing) -> tuple[exp.Query, Table]:
    """Return the query with the original in the place of the one synthetic table that it reads."""
    tree = names.with_views(query.tree.copy(), gate.catalog)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.name.lower() not in own]
    copies = [t for t in tables if (found := gate.policy.tables.get(t.name.lower())) and found.synthetic_of is not None]
    known = [table.name for table in gate.policy.tables.values() if table.synthetic_of is not None]
    there = f"there are: {', '.join(known)}" if known else "declare one in the policy, with synthetic_of"
    if not copies:
        raise Unsupported(
            "the query does not read a synthetic table",
            hint=there,
            span=span(tables[0]) if tables else None,
        )
    if len(copies) > 1:
        raise Unsupported(
            "the query reads synthetic tables more than once", hint="read one, once", span=span(copies[1])
        )
    (node,) = copies
    copy = gate.policy.tables[node.name.lower()]
    assert copy.synthetic_of is not None
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(copy.name)))
    renamed = exp.to_identifier(copy.synthetic_of)
    renamed.meta.update(node.this.meta)
    node.set("this", renamed)
    return tree, copy


def _subject(gate: Preparing, ready: Ready, copy: Table, taken: Collection[str]) -> Subject:
    part = _part(ready)
    (aggregate,) = part.measured.aggregates
    outputs = _outputs(ready, aggregate, taken)
    if part.placement.group_counts[0] > MAX_VERIFIED_GROUPS or part.marginals is not None:
        raise TooLarge(
            f"a query of more than {MAX_VERIFIED_GROUPS} groups can't be verified", hint="group more coarsely"
        )
    found = _asked(part, aggregate, ready)
    if len(np.unique(found.question.cell)) < len(found.question.cell):
        raise Unsupported(
            "a query over a join in which a row has several matches can't be verified",
            hint="join on a key of the public table",
            span=aggregate.span,
        )
    placement = part.placement
    keys = {name: placement.key_types[key] for name, key in outputs}
    columns = ", ".join(f"k{key}" for _, key in outputs) or "1"
    rows = ready.bench.rows(f"SELECT {columns} FROM {placement.keys[0]} ORDER BY g")
    groups = rows if outputs else [()] * len(rows)
    exact = Exact.of(gate.sandbox.reader(copy.name))
    limited = gate.sandbox.is_limited(copy.name)
    return Subject(
        copy=copy,
        original=part.measured.table,
        asked=found,
        exact=exact,
        keys=keys,
        groups=groups,
        span=aggregate.span,
        limited=limited,
    )


def _part(ready: Ready) -> Prepared:
    """Return the one measured query; refuse all that is done with its answer afterwards."""
    post = ready.compiled.post
    if len(ready.parts) != 1 or not isinstance(post, exp.Select) or post.args["from_"].this.name != RELATION:
        raise Unsupported("what is verified must be one plain aggregate query", hint=EXAMPLE)
    for name in ("where", "qualify", "limit", "offset", "distinct"):
        if post.args.get(name):
            clause = "HAVING" if name == "where" else name.upper()
            raise Unsupported(f"{clause} can't be verified: it picks rows by their answers", hint="leave it out")
    (part,) = ready.parts
    aggregates = part.measured.aggregates
    if len(aggregates) != 1:
        raise Unsupported(
            f"one aggregate is verified at a time, this query has {len(aggregates)}",
            hint=EXAMPLE,
            span=aggregates[1].span if len(aggregates) > 1 else None,
        )
    if len(part.measured.sets) != 1:
        raise Unsupported("GROUPING SETS, ROLLUP and CUBE can't be verified", hint="verify one grouping at a time")
    return part


def _outputs(ready: Ready, aggregate: Aggregate, taken: Collection[str]) -> list[tuple[str, int]]:
    """Return name and number of every group key that is shown; the only other output is the aggregate."""
    found: list[tuple[str, int]] = []
    columns = zip(ready.compiled.names, ready.compiled.post.selects, strict=False)
    for name, projection in columns:
        node = projection.unalias().unnest()
        plain = isinstance(node, exp.Column) and node.table == RELATION
        if plain and node.name.startswith("a"):
            continue
        if not plain or not node.name.startswith("k"):
            raise Unsupported(
                "an output must be a group key or the aggregate itself",
                hint="verify the plain aggregate, and compute with it afterwards",
                span=aggregate.span if projection.find(exp.Column) else span(projection),
            )
        if name in taken or name in (other for other, _ in found):
            raise NotGrouped(
                f"the name {name} is taken by another column of the result", hint="give the group key an alias"
            )
        found.append((name, int(node.name[1:])))
    return found


def _asked(part: Prepared, aggregate: Aggregate, ready: Ready) -> Asked:
    if aggregate.kind not in KINDS:
        raise Unsupported(
            f"{aggregate.kind} can't be verified",
            hint="verify a count, a sum, an average, a median or another quantile",
            span=aggregate.span,
        )
    if aggregate.kind != AggregateKind.QUANTILE:
        if len({column for column, _ in part.linear[0][0].features}) > 1:
            raise Unsupported(
                f"{aggregate.kind} of several columns can't be verified",
                hint="verify the sum of one column at a time",
                span=aggregate.span,
            )
        return asking.summed(aggregate.kind, part.linear[0][0], centre=part.recipes[0].centre)
    ((_, _, question),) = part.labelled
    assert aggregate.p is not None
    if not 0 < aggregate.p < 1:
        raise BadValue(
            "a quantile's level must lie between 0 and 1, both excluded: the ends depend on a single person",
            hint="for example: percentile_disc(0.05) WITHIN GROUP (ORDER BY …)",
            span=aggregate.span,
        )
    ((_, kind),) = ready.bench.types(f"SELECT v FROM {question.values}")
    if not exp.DataType.build(kind, dialect="duckdb").is_type(*exp.DataType.NUMERIC_TYPES):
        raise WrongType("a quantile that is verified must be of numbers", hint="cast it", span=aggregate.span)
    values = [value for (value,) in ready.bench.rows(f"SELECT v FROM {question.values} ORDER BY i")]
    return asking.ranked(question, values)
