"""With noise switched off, inside these tests only, answers equal DuckDB run directly on the restricted data."""

import math
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sqlglot import exp

from mechanisms.noise import sampling
from planner.duck.workbench import Workbench
from planner.gate import Gate
from planner.plans import answer
from planner.plans.plan import Part
from planner.plans.presence import Notice
from planner.plans.result import Result
from planner.session import Session
from tests.planner.corpus import Case, Oracle, Row, cases, write_tables
from tests.tiers import sampled

CASES = cases()
ANSWERS = [case for case in CASES if "levels" not in case.notes and "runs" not in case.notes]
QUANTILES = [case for case in CASES if "levels" in case.notes]
OWN = [case for case in CASES if "runs" in case.notes]


def no_noise(size: int, *, bits: int) -> np.ndarray[Any, Any]:
    return np.zeros(size, dtype=np.int64)


def best_choice(exponents: np.ndarray[Any, Any], *, rate: Fraction) -> int:
    return int(np.argmin(exponents))


make_relation = answer.make_relation


def made_as_described(part: Part, new: Any, bench: Workbench, **named: Any) -> tuple[Notice, ...]:
    """Make the noisy relation, and compare its columns with those that were made before anything was planned."""
    described = bench.types(f"SELECT * FROM {part.measured.name}")
    found = make_relation(part, new, bench, **named)
    assert sorted(bench.types(f"SELECT * FROM {part.measured.name}")) == sorted(described)
    return found


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "rounded_gaussian", no_noise)
        patch.setattr(sampling, "exponential_choice", best_choice)
        patch.setattr(answer, "make_relation", made_as_described)
        found = Gate.open(write_tables(tmp_path_factory.mktemp("corpus")))
        yield found
        found.close()


@pytest.fixture(scope="module")
def oracle(gate: Gate) -> Oracle:
    return Oracle(gate.policy.path.parent)


@pytest.fixture
def session(gate: Gate) -> Session:
    """A session that asks for so much accuracy that every average of two or more rows is shown."""
    found = gate.session()
    found.execute("SET noisegate.error = 0.5")
    return found


# --- comparison --------------------------------------------------------------------------------------------


def same(left: Any, right: Any) -> bool:
    """Compare with a relative error of 1e-6; a sum of nothing, NULL in SQL, is released as a number near 0."""
    numbers = (int, float, Decimal)
    if right is None and isinstance(left, numbers):
        return math.isclose(float(left), 0, abs_tol=1e-6)
    if isinstance(left, numbers) and isinstance(right, numbers) and not isinstance(left, bool):
        return math.isclose(float(left), float(right), rel_tol=1e-6, abs_tol=1e-6)
    return left == right


def same_row(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


def is_empty(value: Any) -> bool:
    return value is None or same(value, 0)


def is_measured(tree: exp.Expr) -> list[bool]:
    """Return for every output column whether it is made of aggregates."""
    return [projection.find(exp.AggFunc) is not None for projection in tree.selects]


def is_added_up(projection: exp.Expr) -> bool:
    """Return whether an output column is made of counts and sums only; nobody's average lies in its bounds."""
    return projection.find(exp.AggFunc) is not None and projection.find(exp.Avg) is None


def bucket(row: Row, measured: list[bool]) -> tuple[Any, ...]:
    keys = (value for value, skip in zip(row, measured, strict=True) if not skip)
    return tuple(round(float(key), 6) if isinstance(key, float | Decimal) else str(key) for key in keys)


def left_over(ours: list[Row], theirs: list[Row], measured: list[bool]) -> list[Row]:
    """Return our rows without those that the oracle has, too; fail if it has one that we have not."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in ours:
        found[bucket(row, measured)].append(row)
    for row in theirs:
        candidates = found[bucket(row, measured)]
        match = next((i for i, candidate in enumerate(candidates) if same_row(candidate, row)), None)
        assert match is not None, f"the oracle has {row}, the answer has {candidates}"
        candidates.pop(match)
    return [row for rows in found.values() for row in rows]


def plain(case: Case) -> str:
    return case.notes.get("plain", case.sql)


def answered(case: Case, session: Session) -> Result:
    """Return the answer, after a description and EXPLAIN, which promise what it looks like and spend nothing."""
    before = spent(session.gate)
    described = session.describe(case.sql, case.values)
    explained = session.execute(f"EXPLAIN {case.sql}", case.values)
    assert spent(session.gate) == before
    result = session.execute(case.sql, case.values)
    assert result.columns == described
    assert result.plan is None or explained.rows == [(line,) for line in result.plan.lines]
    assert result.plan is None or result.cost == result.plan.rho
    return result


def spent(gate: Gate) -> list[int]:
    return [gate.ledger.spent(population) for population in ("default", "shop")]


# --- tests -------------------------------------------------------------------------------------------------


def test_the_corpus_has_200_statements() -> None:
    assert len(ANSWERS) + len(QUANTILES) >= 200


@pytest.mark.parametrize("case", sampled(ANSWERS), ids=lambda case: case.id)
def test_the_answer_without_noise_is_the_oracles(case: Case, session: Session, oracle: Oracle) -> None:
    result = answered(case, session)
    tree = oracle.read(plain(case))
    theirs = oracle.run(tree, None if "plain" in case.notes else case.values)
    if "exact" in case.notes:
        assert len(result.rows) == len(theirs)
        if tree.args.get("order"):
            assert all(map(same_row, result.rows, theirs)), (result.rows, theirs)
    rest = left_over(result.rows, theirs, is_measured(tree))
    for row in rest:
        values = [value for value, measured in zip(row, is_measured(tree), strict=True) if measured]
        assert values, f"{row} is not in the oracle's answer"
        values = [value for value, part in zip(row, tree.selects, strict=True) if is_added_up(part)]
        assert all(map(is_empty, values)), f"{row} should be empty"
    check_columns(case, result)


@pytest.mark.parametrize("case", QUANTILES, ids=lambda case: case.id)
def test_a_quantile_has_the_rank_that_was_asked_for(case: Case, session: Session, oracle: Oracle) -> None:
    result = answered(case, session)
    tree = oracle.read(case.sql, lists_instead_of_quantiles)
    levels = [float(level) for level in case.listed("levels") or ()]
    lists = [i for i, projection in enumerate(tree.selects) if projection.find(exp.ArrayAgg)]
    assert len(lists) == len(levels)
    measured = is_measured(tree)
    ours = {bucket(row, measured): row for row in result.rows}
    for row in oracle.run(tree):
        answer = ours[bucket(row, measured)]
        for i, level in zip(lists, levels, strict=True):
            has_rank(answer[i], row[i] or [], level)
        for i, other in enumerate(measured):
            assert i in lists or not other or same(answer[i], row[i])
    check_columns(case, result)


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.id)
def test_what_only_the_gate_knows_is_answered(case: Case, session: Session) -> None:
    check_columns(case, answered(case, session))


def lists_instead_of_quantiles(tree: exp.Expr) -> exp.Expr:
    def change(node: exp.Expr) -> exp.Expr:
        argument = None
        if isinstance(node, exp.WithinGroup):
            argument = node.expression.expressions[0].this
        elif isinstance(node, exp.Median):
            argument = node.this
        elif isinstance(node, exp.Anonymous) and node.name.startswith("quantile"):
            argument = node.expressions[0]
        return node if argument is None else exp.ArrayAgg(this=argument)

    return tree.transform(change)


def has_rank(value: Any, values: list[Any], level: float) -> None:
    present = [other for other in values if other is not None]
    if present:
        below = sum(other < value for other in present)
        up_to = sum(other <= value for other in present)
        assert below <= level * len(present) <= up_to, f"{value} lies on ranks {below} to {up_to} of {len(present)}"


def check_columns(case: Case, result: Result) -> None:
    names, types, rows = case.listed("names"), case.listed("types"), case.notes.get("rows")
    assert names is None or [column.name for column in result.columns] == names
    assert types is None or [column.type for column in result.columns] == types
    assert rows is None or len(result.rows) == int(rows)
