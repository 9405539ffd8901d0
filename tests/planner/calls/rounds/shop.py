"""Rounds that are planned and never released: a table of a few columns, and queries with their accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from planner.calls.rounds import roster, rounds
from planner.calls.rounds.model import Joint, RoundQuery
from planner.calls.rounds.planner import Workshop
from planner.cells.workspace import Floats
from planner.gate import Gate
from planner.history.chart import Chart
from planner.plans.release import LinearTask
from planner.plans.task import Payable
from tests.planner.calls.rounds.questions import rows_on
from tests.planner.gates import open_gate

ROWS = "SELECT ['x', 'y', 'z'][1 + i % 3] AS g, (i % 4)::INTEGER AS h, (i % 6)::INTEGER AS m FROM range(300) AS r(i)"
COLUMNS = """g = { values = ["x", "y", "z"] }
h = { type = "integer", min = 0, max = 3 }
m = { type = "integer", min = 0, max = 5, role = "measure" }"""
ANALYSTS = "[analysts.ann]\nshare = 0.5\n[analysts.bob]\nshare = 0.3\n[analysts.cal]\nshare = 0.2\n"

ALL = "SELECT count(*) AS n FROM people"
BY_G = "SELECT g, count(*) AS n FROM people GROUP BY g"
BY_H = "SELECT h, count(*) AS n FROM people GROUP BY h"
LOW = "SELECT count(*) AS n FROM people WHERE h < 2"
CELLS = "SELECT g, h, count(*) AS n FROM people GROUP BY g, h"
SUMS = "SELECT g, sum(m) AS s FROM people GROUP BY g"
MEDIAN = "SELECT median(m) AS s FROM people"


def opened(folder: Path, *, table: str = "") -> Gate:
    return open_gate(folder, ROWS, columns=COLUMNS, rest=ANALYSTS, table=table)


def workshop(gate: Gate) -> Workshop:
    return rounds.workshop(gate.session("ann"))


def enlisted(gate: Gate, *queries: tuple[str, str, float]) -> list[RoundQuery]:
    """Return queries as a round has them: who asks what, with which error."""
    wishes = [(who, sql, roster.Accuracy(error, 0.95)) for who, sql, error in queries]
    entries = [
        roster.Entry(number=i + 1, round="r", analyst=who, sql=sql, wish=wish, created="")
        for i, (who, sql, wish) in enumerate(wishes)
    ]
    return [rounds.asked(gate, entry) for entry in entries]


def linear_rows(queries: Sequence[RoundQuery], chart: Chart) -> Floats:
    """Return what the queries ask, on the points of a chart."""
    return np.vstack([rows_on(chart, q) for query in queries for part in query.parts for q, _ in part.linear])


def released_rows(tasks: Sequence[Payable], chart: Chart) -> Floats:
    """Return what tasks release, in units of their noise, on the points of a chart."""
    found = [task.evidence for task in tasks if isinstance(task, Joint | LinearTask)]
    placed = [chart.place(each, each.rows) * np.repeat(each.weight, len(each.rows))[:, None] for each in found]
    return np.vstack(placed) if placed else np.zeros((0, chart.size))


def everywhere(gate: Gate, *, summed: bool = False) -> Chart:
    """Return the chart of all cells of g and h, and of the ends of m if it is summed."""
    [cells] = enlisted(gate, ("ann", CELLS, 10.0))
    return Chart(cells.parts[0].placement.workspace, (("m", 1),) if summed else ())
