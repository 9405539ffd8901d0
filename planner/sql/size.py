"""How large a query becomes when every name is replaced by what it stands for, found without replacing any.

`SELECT x + x AS x FROM (SELECT x + x AS x FROM …)` doubles at every level: a few hundred characters would be compiled
into gigabytes. What is too large is refused before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import exp

from planner.basics.errors import TooLarge
from planner.basics.limits import ALWAYS_ALLOWED, MAX_GROWTH
from planner.basics.nodes import span

Sizes = Mapping[str, int]
"""By the name of a column in lower case: how many parts its expression has, in terms of base columns."""


def check_size(tree: exp.Query) -> None:
    """Raise TooLarge if the query grows too much when columns of inner queries are replaced by their expressions."""
    written = sum(1 for _ in tree.walk())
    _Measure(ALWAYS_ALLOWED + MAX_GROWTH * written).outputs(tree, {})


class _Measure:
    """Adds up the sizes of all expressions of one statement, each query of which is looked at once."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def outputs(self, query: exp.Expr, named: Mapping[str, Sizes]) -> dict[str, int]:
        """Return the sizes of a query's columns, given those of the items of WITH around it."""
        if isinstance(query, exp.Subquery):
            return self.outputs(query.this, named)
        if not isinstance(query, exp.Query):
            return {}
        for cte in query.ctes:
            named = {**named, cte.alias.lower(): _renamed(self.outputs(cte.this, named), cte)}
        if isinstance(query, exp.SetOperation):
            left, right = self.outputs(query.left, named), self.outputs(query.right, named)
            return {name: max(size, *right.values(), 0) for name, size in left.items()}
        columns: dict[str, int] = {}
        for source in _sources(query):
            columns |= self._source(source, named)
        return self._select(query, columns, named)

    def _source(self, source: exp.Expr, named: Mapping[str, Sizes]) -> Sizes:
        if isinstance(source, exp.Table):
            return _renamed(named.get(source.name.lower(), {}), source)
        return _renamed(self.outputs(source, named), source)

    def _select(self, query: exp.Query, columns: dict[str, int], named: Mapping[str, Sizes]) -> dict[str, int]:
        found: dict[str, int] = {}
        for projection in query.selects:
            if projection.is_star:
                found |= columns
                continue
            name, size = projection.alias_or_name.lower(), self._size(projection, columns, named)
            found[name] = size
            columns = {name: size, **columns}  # later ones may mean this one by its alias
        for part in ("where", "group", "having", "order", "qualify", "joins"):
            for node in _listed(query.args.get(part)):
                self._size(node.args.get("on", node) if isinstance(node, exp.Join) else node, columns, named)
        return found

    def _size(self, node: exp.Expr | None, columns: Sizes, named: Mapping[str, Sizes]) -> int:
        """Return the size of an expression, and take it from what is left."""
        size = 0
        for part in _parts(node):
            if isinstance(part, exp.Query):
                self.outputs(part, named)
            size += columns.get(part.name.lower(), 1) if isinstance(part, exp.Column) else 1
        self.left -= size
        if self.left < 0:
            raise TooLarge(
                "the statement grows too large when columns of inner queries are replaced by their expressions",
                hint="use a column less often, or fewer levels of queries",
                span=span(node) if node is not None else None,
            )
        return size


def _parts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield an expression part by part; of a query in it only the query."""
    return iter(()) if node is None else node.walk(prune=lambda part: isinstance(part, exp.Query))


def _sources(query: exp.Expr) -> Iterator[exp.Expr]:
    from_ = query.args.get("from_")
    if from_ is not None:
        yield from_.this
    for join in query.args.get("joins") or ():
        yield join.this


def _listed(part: object) -> Iterable[exp.Expr]:
    if isinstance(part, exp.Expr):
        return [part]
    return part if isinstance(part, list) else ()


def _renamed(sizes: Sizes, source: exp.Expr) -> Sizes:
    """Return the sizes under the names that an alias gives to the columns: AS t (a, b)."""
    alias = source.args.get("alias")
    names = [column.name.lower() for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
    return dict(zip(names, sizes.values(), strict=False)) | dict(list(sizes.items())[len(names) :]) if names else sizes
