"""Post-processing that fails on no noisy number: what can't be worked out from one is NULL, as a division by zero is.

Noise makes a count negative, or a sum too large for a cast. Whoever paid for it gets the rest of the answer.
"""

from __future__ import annotations

from sqlglot import exp

from planner.basics.limits import MAX_ANSWER_ROWS

WRAPPED = (exp.Binary, exp.Func, exp.Neg, exp.Between, exp.In)
"""Expressions of one row that may be tried as a whole."""

NOT_WRAPPED = (exp.Dot, exp.Kwarg, exp.PropertyEQ, exp.Slice, exp.Query, exp.AggFunc, exp.Window)

APART = (exp.Query, exp.AggFunc, exp.Window, exp.Star)
"""What DuckDB refuses to try, together with what it stands in."""


def forgiving(post: exp.Query) -> exp.Query:
    """Return the query with every expression of noisy numbers tried: NULL in the rows in which it fails."""
    found = post.copy()
    for limit in list(found.find_all(exp.Limit, exp.Offset)):
        if not isinstance(limit.expression, exp.Literal):
            limit.set("expression", _possible(limit.expression))
    _children(found)
    return found


def _possible(count: exp.Expr) -> exp.Expr:
    """Return a number of rows that DuckDB can count to."""
    zero, most = exp.Literal.number(0), exp.Literal.number(MAX_ANSWER_ROWS)
    return exp.func(
        "least", exp.func("greatest", exp.Coalesce(this=count.copy(), expressions=[zero]), zero.copy()), most
    )


def _children(node: exp.Expr) -> None:
    for child in list(node.iter_expressions()):
        if isinstance(child, WRAPPED) and not isinstance(child, NOT_WRAPPED) and _is_plain(child):
            child.replace(exp.Anonymous(this="TRY", expressions=[child.copy()]))
            continue
        _children(child)
        if type(child) is exp.Cast:
            child.replace(exp.TryCast(**child.args))


def _is_plain(node: exp.Expr) -> bool:
    """Return whether an expression is about one row; constants are left as they are, unless they are cast."""
    return (node.find(exp.Column) is not None or isinstance(node, exp.Cast)) and node.find(*APART) is None
