"""One question that tells apart whatever one of several questions does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_POINTS
from planner.cells.workspace import Workspace
from planner.history.chart import chart_size, finest_axes
from planner.questions.linear import Question

LESS = "group by less, or by fewer columns"


def union(questions: Sequence[Question]) -> Question:
    """Return a question that tells apart whatever one of the questions does."""
    table, axes = questions[0].workspace.table, finest_axes(questions, {})
    features = tuple(sorted({feature for question in questions for feature in question.features}))
    workspace = Workspace(table, tuple(axes[column] for column in sorted(axes)))
    if chart_size(axes, features) > MAX_POINTS:
        raise TooLarge(f"the analyses together tell {workspace.cells:,} cells apart, too many", hint=LESS)
    cells = np.arange(workspace.cells)
    none, E = np.zeros_like(cells), np.ones((1, 1, 1 + len(features)), dtype=np.int64).astype(object)
    low, high = workspace.ranges(features, cells)
    return Question(
        workspace=workspace,
        features=features,
        cell=cells,
        group=none,
        groups=1,
        pattern=none,
        low=low,
        high=high,
        E=E,
        units=np.ones(1),
        roles=("count",),
    )
