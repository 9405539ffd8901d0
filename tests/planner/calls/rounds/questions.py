"""Small questions made by hand, for the parts of the planner of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import cvxpy as cp
import numpy as np

from planner.calls.rounds.batches import Linear
from planner.cells.workspace import Axis, Floats, Workspace
from planner.history.chart import Chart, Evidence, made_evidence
from planner.history.marginals import MarginalQuestion
from planner.policy.file import load
from planner.policy.table import Table
from planner.questions.linear import Measurement, Question, row_counts

POLICY = """[budget]
epsilon = 1.0
delta = 1e-9
[tables.t]
source = "t.parquet"
{rest}
[tables.t.columns]
a = {{ type = "integer", min = 0, max = 3 }}
b = {{ type = "integer", min = 0, max = 2 }}
c = {{ type = "integer", min = 0, max = 199 }}
m = {{ type = "integer", min = 0, max = 5, role = "measure" }}
"""

A, B, C = (list(range(size)) for size in (4, 3, 200))
"""Every value of a column as an atom of its own."""


def table(folder: Path, *, rest: str = "") -> Table:
    """Return a table of small columns; `rest` holds its other entries."""
    path = folder / "noisegate.toml"
    (folder / "t.parquet").touch()
    path.write_text(POLICY.format(rest=rest), encoding="utf-8")
    return load(path).tables["t"]


def axis(found: Table, column: str, labels: Sequence[int]) -> Axis:
    """Return a column cut into the atoms that the labels say."""
    domain = found.columns[column].domain
    assert domain is not None
    _, first, atoms = np.unique(labels, return_index=True, return_inverse=True)
    return Axis(column, domain, atoms.astype(np.int64), first.astype(np.int64))


def workspace(found: Table, cuts: Mapping[str, Sequence[int]]) -> Workspace:
    return Workspace(found, tuple(axis(found, column, cuts[column]) for column in sorted(cuts)))


def counts(found: Table, cuts: Mapping[str, Sequence[int]]) -> Question:
    """Return SELECT count(*) GROUP BY these columns, each cut into atoms."""
    where = workspace(found, cuts)
    return row_counts(where, np.arange(where.cells), np.arange(where.cells), groups=where.cells)


def one_count(found: Table, cuts: Mapping[str, Sequence[int]], cells: Sequence[int]) -> Question:
    """Return SELECT count(*) WHERE a row is in one of these cells."""
    return row_counts(workspace(found, cuts), np.array(cells), np.zeros(len(cells), dtype=np.int64), groups=1)


def sums(found: Table, cuts: Mapping[str, Sequence[int]]) -> Question:
    """Return SELECT sum(m) GROUP BY these columns."""
    where = workspace(found, cuts)
    cells, features = np.arange(where.cells), (("m", 1),)
    low, high = where.ranges(features, cells)
    E = np.array([[[0, 1]]], dtype=object)
    return Question(
        workspace=where,
        features=features,
        cell=cells,
        group=cells,
        groups=where.cells,
        pattern=np.zeros_like(cells),
        low=low,
        high=high,
        E=E,
        units=np.ones(1),
        roles=("sum",),
    )


def whole(found: Table, cuts: Mapping[str, Sequence[int]]) -> MarginalQuestion:
    """Return the marginal of these columns as a question about a whole marginal."""
    where = workspace(found, cuts)
    return MarginalQuestion(where, (tuple(range(len(where.axes))),), (np.arange(where.cells),))


def asked(question: Question, variance: float, *, query: int = 0, marginal: MarginalQuestion | None = None) -> Linear:
    """Return a question within a query, all of whose answers should have a variance."""
    return Linear(query, question, marginal, np.full(question.groups * len(question.units), variance))


def rows_on(chart: Chart, question: Question) -> Floats:
    """Return what is asked as rows on the points of a chart."""
    return chart.place(question, question.E.astype(float) * question.units[:, None, None])


def released(question: Question, K: Sequence[Sequence[int]], *, bits: int = 0, number: int = 1) -> Evidence:
    """Return the release of rows K of a question with noise of standard deviation 2^bits, as if all were zero."""
    measurement = Measurement(np.array(K, dtype=object), bits)
    found = made_evidence(question, measurement, np.zeros((question.groups, len(K))))
    object.__setattr__(found, "id", number)
    return found


def least_cost(W: Floats, c: Floats, known: Floats) -> float:
    """Return what the dearest cell pays at least, beyond known rows, if row j is to have variance c_j: by cvxpy."""
    d = W.shape[1]
    R = cp.Variable((d, d), PSD=True)
    K = known.T @ known
    blocks = [cp.bmat([[K + R, w[:, None]], [w[None, :], np.array([[v]])]]) >> 0 for w, v in zip(W, c, strict=True)]
    return float(cp.Problem(cp.Minimize(cp.max(cp.diag(R))), blocks).solve(solver="CLARABEL"))
