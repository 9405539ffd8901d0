"""A decision of noisegate.verify over 1.3 million rows, beside pandas as in the paper and DuckDB's bare aggregate.

Run with `python -m benchmarks.verify [rows]`. The table is Adult, repeated up to the size of the paper's (DP-PQD,
arXiv 2309.08574, section 7.2.2), and so is the bundled synthetic copy. The sides of a decider are run in turn, and the
medians are compared. A decision of the gate is one call of `verify` on a new connection with a new ledger: it reads the
table and the copy, computes the error profile, draws, and writes the charge to disk. In brackets is what all of it but
the table and the charge takes: `explain => true`. pandas filters the table in memory once for every threshold, as the
paper's implementation does; neither loading it nor the answer on the copy is counted. DuckDB computes the aggregate
with the same condition from the same Parquet file without any privacy, of the table, or of table and copy.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from noisegate import connect

ROWS = 1_340_703
RUNS = 5
EPSILON, TAU, BETA, THETA = 0.25, 0.032, 0.05, 0.95
DATA = Path(__file__).resolve().parents[1] / "noisegate" / "data"
MARRIED = {"race": "White", "marital_status": "Married-civ-spouse", "native_country": "United-States"}
PRIVATE = {"sex": "Male", "race": "White", "workclass": "Private"}
PUBLISHED = {"LM_count": 0.312, "EM_count": 0.321, "LM_sum": 0.450, "R2T_sum": 4.022, "SVT_sum": 9.131}
PUBLISHED |= {"EM_med": 0.533, "Hist_med": 1.043}
"""Seconds, Table 3 of the paper: another machine, another table of the same number of rows."""


@dataclass(frozen=True)
class Asked:
    """An aggregate with a condition, and the bounds of its column."""

    aggregate: str
    column: str
    where: dict[str, str]
    low: int = 0
    high: int = 1

    def sql(self, table: str) -> str:
        condition = " AND ".join(f"{column} = '{value}'" for column, value in self.where.items())
        return f"SELECT {self.aggregate} FROM {table} WHERE {condition}"


COUNT = Asked("count(*)", "", MARRIED)
SUM = Asked("sum(capital_gain)", "capital_gain", MARRIED, 0, 99_999)
MEDIAN = Asked("median(age)", "age", PRIVATE, 17, 90)


# pandas, a filter for every threshold


def _matching(
    table: pd.DataFrame, asked: Asked, *, most: float | None = None, least: float | None = None
) -> pd.DataFrame:
    mask = np.logical_and.reduce([table[column] == value for column, value in asked.where.items()])
    if most is not None:
        mask &= table[asked.column] <= most
    if least is not None:
        mask &= table[asked.column] >= least
    return table[mask]


def _noise(scale: float) -> float:
    return float(np.random.laplace(0, scale))


def lm_count(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    return abs(len(_matching(table, asked)) + _noise(1 / EPSILON) - synthetic) < TAU * synthetic


def em_count(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    score = max(0.0, 1 - abs(len(_matching(table, asked)) - synthetic) / (2 * TAU * synthetic))
    odds = EPSILON * TAU * synthetic * (2 * score - 1)
    return bool(np.random.random() < 1 / (1 + math.exp(-max(-700.0, odds))))


def lm_sum(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    found = float(_matching(table, asked)[asked.column].sum())
    return abs(found + _noise(asked.high / EPSILON) - synthetic) < TAU * synthetic


def r2t_sum(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    races, best = math.ceil(math.log2(asked.high)), 0.0
    for j in range(1, races + 1):
        scale = 2**j * races / EPSILON
        found = _matching(table, asked, most=2**j)[asked.column].sum()
        best = max(best, found + _noise(scale) - scale * math.log(races / BETA))
    return abs(best - synthetic) < TAU * synthetic


def svt_sum(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    low, high = synthetic * (1 - TAU), synthetic * (1 + TAU)
    last, scale = _truncation(table, asked), 3 / EPSILON
    threshold = _noise(scale)
    for end, decision in ((high, False), (low + 1, True)):
        for j in range(1, last + 1):
            found = _matching(table, asked, most=2**j)[asked.column].sum()
            if found / 2**j + _noise(scale) >= end / 2**j + threshold:
                return decision
    return False


def _truncation(table: pd.DataFrame, asked: Asked) -> int:
    """Return the j of algorithm 4: the first 2^j below which, noisily, 95 % of the rows are."""
    scale, races = 9 / EPSILON, math.ceil(math.log2(asked.high))
    goal = THETA * (len(_matching(table, asked)) + _noise(scale)) + _noise(scale)
    return next((j for j in range(1, races) if len(_matching(table, asked, most=2**j)) + _noise(scale) >= goal), races)


def em_med(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    values = _matching(table, asked)[asked.column]
    domain = np.arange(asked.low, asked.high + 1)
    scores = np.array([-abs((values < value).sum() - len(values) / 2) for value in domain]) * EPSILON / 2
    weights = np.exp(scores - scores.max())
    return bool(abs(np.random.choice(domain, p=weights / weights.sum()) - synthetic) < TAU * synthetic)


def hist_med(table: pd.DataFrame, asked: Asked, synthetic: float) -> bool:
    half = math.ceil((len(_matching(table, asked)) + _noise(2 / EPSILON)) / 2)
    low = len(_matching(table, asked, most=synthetic * (1 - TAU))) + _noise(2 / EPSILON)
    high = len(_matching(table, asked, least=synthetic * (1 + TAU))) + _noise(2 / EPSILON)
    return low < half and high < half


Filtered = Callable[[pd.DataFrame, Asked, float], bool]
DECIDERS: dict[str, tuple[Asked, Filtered | None]] = {
    "LM_count": (COUNT, lm_count),
    "EM_count": (COUNT, em_count),
    "LM_sum": (SUM, lm_sum),
    "EM_sum": (SUM, None),
    "R2T_sum": (SUM, r2t_sum),
    "SVT_sum": (SUM, svt_sum),
    "EM_med": (MEDIAN, em_med),
    "EM_rank": (MEDIAN, None),
    "Hist_med": (MEDIAN, hist_med),
}
"""What is asked, and how pandas decides it; EM_sum and EM_rank are not in the paper."""


def make(folder: Path, rows: int) -> None:
    """Write the table and its copy, repeated up to that many rows, and a policy for both."""
    for name, source in (("people", "adult"), ("people_synth", "adult_synth")):
        duckdb.execute(
            f"COPY (SELECT a.* FROM range({-(-rows // 32_561)}), '{DATA / source}.parquet' AS a LIMIT {rows}) "
            f"TO '{folder / name}.parquet' (FORMAT parquet)"
        )
    text = (DATA / "adult.toml").read_text().replace("epsilon = 2.0", "epsilon = 100.0")
    for old, new in (("tables.adult", "tables.people"), ('"adult', '"people')):
        text = text.replace(old, new)
    (folder / "policy.toml").write_text(text)


def gated(folder: Path, name: str, asked: Asked, *, explain: bool = False) -> float:
    """Return the seconds of a decision, or of telling all about it beforehand."""
    for ledger in folder.glob("*.sqlite*"):
        ledger.unlink()
    options = f"epsilon => {EPSILON}, decider => '{name}', explain => {explain}"
    call = f"noisegate.verify($${asked.sql('people_synth')}$$, '{100 * TAU}%', {options})"
    with closing(connect(folder / "policy.toml", analyst="ann")) as connection:
        cursor = connection.cursor()
        start = time.perf_counter()
        cursor.execute(f"SELECT * FROM {call}")
        return time.perf_counter() - start


def bare(folder: Path, asked: Asked, *tables: str) -> float:
    """Return the seconds of DuckDB's own aggregates."""
    with closing(duckdb.connect()) as connection:
        start = time.perf_counter()
        for table in tables:
            connection.execute(asked.sql(f"'{folder / table}.parquet'")).fetchall()
        return time.perf_counter() - start


def main(rows: int = ROWS) -> None:
    """Print a line for each decider."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, rows)
        table = pd.read_parquet(folder / "people.parquet")
        print(
            f"{rows:,} rows, epsilon {EPSILON}, tau {100 * TAU} %, median of {RUNS} runs each, milliseconds a decision"
        )
        print(
            f"  {'':9s}pandas (paper)    DuckDB: table, both    gate (explain)   pandas/gate   gate/DuckDB: table, both"
        )
        for decider, (asked, filtered) in DECIDERS.items():
            print_line(folder, table, decider, asked, filtered)


def print_line(folder: Path, table: pd.DataFrame, name: str, asked: Asked, filtered: Filtered | None) -> None:
    """Print the medians of all sides of one decider, run in turn."""
    synthetic = duckdb.execute(asked.sql(f"'{folder / 'people_synth'}.parquet'")).fetchall()[0][0]
    times: list[tuple[float, ...]] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        if filtered is not None:
            filtered(table, asked, float(synthetic))
        spent = time.perf_counter() - start if filtered is not None else math.nan
        one, both = bare(folder, asked, "people"), bare(folder, asked, "people", "people_synth")
        times.append((spent, one, both, gated(folder, name, asked), gated(folder, name, asked, explain=True)))
    frame, one, both, ours, told = (1000 * statistics.median(side) for side in zip(*times, strict=True))
    paper = f"({1000 * PUBLISHED[name]:5.0f})" if name in PUBLISHED else ""
    print(
        f"  {name:9s}{frame:6.0f} {paper:8s}{one:16.0f} {both:6.0f} {ours:7.0f} ({told:5.0f}) {frame / ours:11.1f} x"
        f"{ours / one:18.2f} x {ours / both:5.2f} x"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
