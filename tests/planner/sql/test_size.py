"""A statement that would grow without bound is refused before it is compiled; one that is merely long is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.basics.errors import TooLarge
from planner.gate import Gate
from planner.session import Session


@pytest.fixture
def session(shared_adult_policy: Path) -> Iterator[Session]:
    gate = Gate.open(shared_adult_policy)
    yield gate.session("ann")
    gate.close()


Form = Callable[[int], str]


def derived(levels: int) -> str:
    source = "adult"
    for level in range(levels):
        source = f"(SELECT {'age + age' if level == 0 else 'x + x'} AS x FROM {source}) AS t{level}"
    return f"SELECT count(*) FROM {source} WHERE x > 5"


def items(levels: int) -> str:
    more = [f"c{i + 1} AS (SELECT x + x AS x FROM c{i})" for i in range(levels)]
    return f"WITH {', '.join(['c0 (x) AS (SELECT age FROM adult)', *more])} SELECT count(*) FROM c{levels} WHERE x > 5"


def aliases(levels: int) -> str:
    more = [f"a{i} + a{i} AS a{i + 1}" for i in range(levels)]
    return f"SELECT {', '.join(['age AS a0', *more])}, count(*) FROM adult GROUP BY age"


def united(levels: int) -> str:
    source = "SELECT 1 AS x"
    for _ in range(levels):
        source = f"SELECT x + x AS x FROM ({source} UNION ALL SELECT 1) AS t"
    return source


@pytest.mark.parametrize("form", [derived, items, aliases, united])
@pytest.mark.parametrize("levels", [17, 60])
def test_a_statement_that_doubles_at_every_level_is_refused(session: Session, form: Form, levels: int) -> None:
    with pytest.raises(TooLarge, match="grows too large"):
        session.explain(form(levels))


@pytest.mark.parametrize("form", [derived, items, aliases, united])
def test_a_few_levels_are_answered(session: Session, form: Form) -> None:
    session.explain(form(5))


def test_a_long_statement_that_does_not_grow_is_answered(session: Session) -> None:
    session.explain(f"SELECT count(*) FROM adult WHERE age IN ({', '.join(str(i % 90) for i in range(4_000))})")


def test_a_refusal_points_at_where_it_grows(session: Session) -> None:
    with pytest.raises(TooLarge) as refused:
        session.explain(derived(17))
    assert refused.value.span is not None
