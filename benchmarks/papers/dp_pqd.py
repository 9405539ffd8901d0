"""Section 7 of "DP-PQD: Privately Detecting Per-Query Gaps In Synthetic Data" (arXiv 2309.08574), on Adult.

    python benchmarks/papers/dp_pqd.py [folder] [--runs 100]

12 COUNT, 9 SUM and 9 MEDIAN queries on the bundled table and on two synthetic copies of it (adult_synthetic.py says who
made them), tau and epsilon varied as in the paper. A figure is the probability that a decider is wrong about
|q(D) - q(D_s)| < tau: exact, and beside it the share of wrong decisions in as many runs as the paper has. Where our
decider differs from the published one, the published one is there as well, marked with *. The paper's own data
(IPUMS-CPS) need a licence and are not here; what follows from the answers that it prints is computed from them.
With a folder, all figures are written there as figures.csv, and the plots of Figures 5 to 10 as SVG. Those of the last
run are kept in dp_pqd/ beside this file, with what was printed as tables.txt.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import mean

import duckdb
import numpy as np
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.papers import svg
from benchmarks.papers.dp_pqd_published import BETA, PUBLISHED, Decisions
from mechanisms.deciders import claims, deciders
from mechanisms.deciders.claims import Claim, Histogram

HERE = Path(__file__).resolve().parent
TABLE = HERE.parents[1] / "noisegate" / "data" / "adult.parquet"
COPIES = {"MST": TABLE.with_name("adult_synth.parquet"), "PrivBayes": HERE / "data" / "adult_privbayes.parquet"}
BOUNDS = {"capital_gain": (0, 99_999), "capital_loss": (0, 5_000), "hours": (1, 99), "age": (17, 90)}
"""As in the policy, adult.toml."""

TAUS = tuple(Fraction(tau, 1000) for tau in (2, 8, 32, 128, 512))
EPSILONS = tuple(Fraction(1, parts) for parts in (16, 8, 4, 2, 1))
TAU, EPSILON = TAUS[2], EPSILONS[2]
TIE = 0.005
"""Errors nearer than this count as equal."""
WHAT = ("copy", "query", "kind", "truth", "synthetic")
COLOURS = {"LM": "#1f77b4", "EM": "#ff7f0e", "R2T": "#9467bd", "SVT": "#8c564b", "Hist": "#2ca02c"}
"""The paper's; what is not in the paper is grey, what is published and not ours is pale."""


@dataclass(frozen=True)
class Query:
    """One aggregate with a condition; the column of a COUNT is empty."""

    name: str
    kind: str
    column: str
    where: str


def _queries(start: int, kind: str, wheres: Iterable[tuple[str, str]]) -> list[Query]:
    return [Query(f"q{start + i}", kind, column, where) for i, (column, where) in enumerate(wheres)]


QUERIES = [
    *_queries(
        1,
        "COUNT",
        [
            ("", "sex = 'Male' AND education = 'Doctorate' AND marital_status = 'Separated'"),
            ("", "sex = 'Female' AND race = 'Other' AND income = '>50K'"),
            ("", "sex = 'Female' AND education = '5th-6th' AND marital_status = 'Never-married'"),
            ("", "race = 'Asian-Pac-Islander' AND marital_status = 'Divorced' AND income = '<=50K'"),
            ("", "sex = 'Female' AND race = 'Amer-Indian-Eskimo' AND workclass = 'Private'"),
            ("", "sex = 'Male' AND occupation = 'Tech-support' AND income = '>50K'"),
            ("", "sex = 'Female' AND occupation = 'Exec-managerial' AND marital_status = 'Divorced'"),
            ("", "sex = 'Male' AND relationship = 'Unmarried'"),  # figure 4 of the paper
            ("", "education = 'Bachelors' AND marital_status = 'Never-married' AND age < 30"),
            ("", "sex = 'Male' AND workclass = 'Private' AND hours > 50"),
            ("", "race = 'Black' AND native_country = 'United-States' AND income = '<=50K'"),
            ("", "race = 'White' AND marital_status = 'Married-civ-spouse' AND native_country = 'United-States'"),
        ],
    ),
    *_queries(
        13,
        "SUM",
        [
            ("capital_gain", "sex = 'Female' AND race = 'Black' AND income = '<=50K'"),
            ("capital_gain", "relationship = 'Not-in-family' AND workclass = 'Private' AND income = '<=50K'"),
            ("capital_gain", "race = 'White' AND education = 'Some-college' AND income = '<=50K'"),
            ("capital_gain", "sex = 'Male' AND education = 'HS-grad' AND income = '<=50K'"),
            ("capital_gain", "race = 'White' AND marital_status = 'Divorced' AND native_country = 'United-States'"),
            (
                "capital_gain",
                "race = 'White' AND marital_status = 'Married-civ-spouse' AND native_country = 'United-States'",
            ),
            ("capital_loss", "sex = 'Female' AND marital_status = 'Never-married' AND workclass = 'Private'"),
            ("hours", "sex = 'Female' AND education = 'Doctorate' AND income = '<=50K'"),
            ("hours", "sex = 'Male' AND workclass = 'Private' AND marital_status = 'Married-civ-spouse'"),
        ],
    ),
    *_queries(
        22,
        "MEDIAN",
        [
            ("age", "workclass = 'Private' AND education = 'Bachelors' AND income = '>50K'"),
            ("age", "sex = 'Male' AND race = 'Black' AND relationship = 'Husband'"),
            ("age", "sex = 'Female' AND occupation = 'Craft-repair' AND income = '<=50K'"),
            ("age", "sex = 'Female' AND education = 'Masters' AND marital_status = 'Never-married'"),
            ("age", "sex = 'Female' AND race = 'White' AND marital_status = 'Widowed'"),
            ("age", "sex = 'Male' AND occupation = 'Farming-fishing' AND income = '<=50K'"),
            ("age", "race = 'Asian-Pac-Islander' AND marital_status = 'Separated' AND income = '<=50K'"),
            ("age", "sex = 'Male' AND race = 'White' AND workclass = 'Private'"),
            ("age", "sex = 'Female' AND relationship = 'Own-child' AND workclass = 'Private'"),
        ],
    ),
]


@dataclass(frozen=True, eq=False)
class Case:
    """A query on the table and on one copy of it."""

    query: Query
    copy: str
    rows: Histogram
    synthetic: int

    @property
    def truth(self) -> int:
        return _aggregate(self.query.kind, self.rows)

    @property
    def largest(self) -> int:
        """The downward sensitivity of a sum: the largest value there is."""
        return int(self.rows.values[self.rows.counts > 0].max())

    def holds(self, tau: Fraction) -> bool:
        return Claim(self.synthetic, tau * self.synthetic).holds(self.truth)


@dataclass(frozen=True)
class Figure:
    """How often a decider is wrong in a case, at tau (a part of the synthetic answer) and epsilon."""

    case: Case
    decider: str
    tau: Fraction
    epsilon: Fraction
    exact: float
    simulated: float


def cases() -> list[Case]:
    """Return all queries on both copies."""
    found = []
    for copy, path in COPIES.items():
        for query in QUERIES:
            rows, synthetic = (_histogram(query, source) for source in (TABLE, path))
            found.append(Case(query, copy, rows, _aggregate(query.kind, synthetic)))
    return found


def _histogram(query: Query, path: Path) -> Histogram:
    column = query.column or "1"
    text = f"SELECT {column}, count(*) FROM '{path}' WHERE {query.where} GROUP BY 1 ORDER BY 1"
    rows = np.array(duckdb.execute(text).fetchall(), dtype=np.int64).reshape(-1, 2)
    return Histogram(rows[:, 0].copy(), rows[:, 1].copy())


def _aggregate(kind: str, rows: Histogram) -> int:
    match kind:
        case "COUNT":
            return rows.rows
        case "SUM":
            return rows.total
        case _:
            return rows.quantile(Fraction(1, 2))


# The experiment


def figures(case: Case, runs: int, rng: np.random.Generator) -> list[Figure]:
    """Return the figures of all deciders: tau varied at the default epsilon, epsilon at the default tau."""
    settings = [*((tau, EPSILON) for tau in TAUS), *((TAU, epsilon) for epsilon in EPSILONS if epsilon != EPSILON)]
    return [figure for tau, epsilon in settings for figure in _at(case, tau, epsilon, runs, rng)]


def _at(case: Case, tau: Fraction, epsilon: Fraction, runs: int, rng: np.random.Generator) -> Iterable[Figure]:
    claim = Claim(case.synthetic, tau * case.synthetic)
    holds = case.holds(tau)

    def figure(name: str, yes: float, decisions: Decisions) -> Figure:
        wrong = 1 - yes if holds else yes
        return Figure(case, name, tau, epsilon, min(1.0, max(0.0, wrong)), float(np.mean(decisions != holds)))

    ours = deciders.candidates(_asked(case, claim), epsilon=epsilon, delta=BETA)
    for name, decider in ours.items():
        statistics = _statistics(case, claim, decider.statistics)
        yield figure(name, decider.yes(statistics), decider.draw(statistics, runs))
        if published := PUBLISHED.get(f"{name}*"):
            theirs = published(case.rows, BOUNDS.get(case.query.column, (0, 1)), claim, float(epsilon))
            yield figure(f"{name}*", theirs.yes(), theirs.runs(runs, rng))


def _asked(case: Case, claim: Claim) -> deciders.Query:
    match case.query.kind:
        case "COUNT":
            return deciders.Query(kind="count", claim=claim)
        case "SUM":
            least, most = BOUNDS[case.query.column]
            return deciders.Query(kind="sum", claim=claim, least=least, most=most)
        case _:
            low, high = BOUNDS[case.query.column]
            return deciders.Query(kind="quantile", claim=claim, domain=tuple(range(low, high + 1)))


def _statistics(case: Case, claim: Claim, wanted: type) -> object:
    """Return what a decider looks at."""
    if wanted is claims.Buckets:
        return claims.buckets_of(case.rows, most=BOUNDS[case.query.column][1])
    if wanted is claims.Ranks:
        return claims.ranks_of(case.rows, claim)
    return case.rows if wanted is Histogram else case.truth


# Tables and plots


def print_table(found: Sequence[Figure], kind: str, copy: str) -> None:
    """Print the exact errors of one kind of query on one copy."""
    print(f"\n{kind} on {copy}: tau varied at epsilon = 1/4 | epsilon varied at tau = 3.2 %")
    columns = [f"{100 * float(tau):.1f}%" for tau in TAUS], [f"{float(epsilon):.4g}" for epsilon in EPSILONS]
    print(f"  {'':4s} {'q(D)':>9s} {'q(D_s)':>9s}  {'':10s}" + "  |".join(_cells(names) for names in columns))
    before = ""
    for (case, name), rows in _grouped(found, kind, copy).items():
        head = f"{case.query.name:4s} {case.truth:9d} {case.synthetic:9d}" if case.query.name != before else ""
        before = case.query.name
        errors = [[f"{row.exact:.3f}" for row in side] for side in _sides(rows)]
        print(f"  {head:24s}  {name:10s}" + "  |".join(_cells(side) for side in errors))


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"{text:>7s}" for text in texts)


def _grouped(found: Iterable[Figure], kind: str, copy: str) -> dict[tuple[Case, str], list[Figure]]:
    groups: dict[tuple[Case, str], list[Figure]] = {}
    for figure in found:
        if (figure.case.query.kind, figure.case.copy) == (kind, copy):
            groups.setdefault((figure.case, figure.decider), []).append(figure)
    return dict(sorted(groups.items(), key=lambda group: int(group[0][0].query.name[1:])))


def _sides(rows: Sequence[Figure]) -> tuple[list[Figure], list[Figure]]:
    """Return the rows with tau varied and those with epsilon varied, each in order."""
    by_tau = sorted((row for row in rows if row.epsilon == EPSILON), key=lambda row: row.tau)
    return by_tau, sorted((row for row in rows if row.tau == TAU), key=lambda row: row.epsilon)


def write_all(found: Sequence[Figure], folder: Path) -> None:
    """Write figures.csv and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "figures.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*WHAT, "decider", "tau", "epsilon", "exact", "simulated"])
        for row in found:
            case, query = row.case, row.case.query
            what = [case.copy, query.name, query.kind, case.truth, case.synthetic]
            writer.writerow([*what, row.decider, float(row.tau), float(row.epsilon), f"{row.exact:.6g}", row.simulated])
    for copy in COPIES:
        for kind in ("COUNT", "SUM", "MEDIAN"):
            for side, symbol in enumerate(("tau", "epsilon")):
                title = f"{kind} on {copy}: probability of a wrong decision as {symbol} varies (dots: simulated)"
                svg.write(folder / f"{kind}_{copy}_{symbol}.svg".lower(), title, _panels(found, kind, copy, side))


def _panels(found: Sequence[Figure], kind: str, copy: str, side: int) -> list[svg.Panel]:
    lines: dict[Case, list[svg.Line]] = {}
    for (case, name), rows in _grouped(found, kind, copy).items():
        shown = _sides(rows)[side]
        line = svg.Line(name, _colour(name), [row.exact for row in shown], [row.simulated for row in shown])
        lines.setdefault(case, []).append(line)
    places = ([f"{100 * float(tau):.1f}%" for tau in TAUS], [f"{float(epsilon):.4g}" for epsilon in EPSILONS])[side]
    return [svg.Panel(_title(case), places, drawn, None if side else _mark(case)) for case, drawn in lines.items()]


def _title(case: Case) -> str:
    return f"{case.query.name}: {case.truth} / {case.synthetic}"


def _mark(case: Case) -> int | None:
    """Return the place of the smallest tau for which the claim holds."""
    return next((place for place, tau in enumerate(TAUS) if case.holds(tau)), None)


def _colour(name: str) -> str:
    if name in ("EM_sum", "EM_rank"):
        return "#7f7f7f"
    return COLOURS[name.split("_")[0]] + ("66" if name.endswith("*") else "")


# What Table 4 says


def print_conclusions(found: Sequence[Figure]) -> None:
    """Print the paper's conclusions, each with what these figures say."""
    print("\nTable 4 and section 7.2.3, against these figures (both copies; better or worse: by more than 0.005)")
    _print_counts([row for row in found if row.case.query.kind == "COUNT"])
    _print_sums([row for row in found if row.case.query.kind == "SUM"])
    _print_medians([row for row in found if row.case.query.kind == "MEDIAN"])
    _print_monotony(found)


@dataclass(frozen=True)
class Duel:
    """One decider beside another over some settings."""

    wins: int
    losses: int
    ties: int
    means: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"better in {self.wins}, worse in {self.losses}, equal in {self.ties} settings; "
            f"mean error {self.means[0]:.3f}, the other's {self.means[1]:.3f}"
        )

    @property
    def verdict(self) -> str:
        """Return what the number of settings and the mean errors say together."""
        signs = {self.wins > self.losses, self.means[0] < self.means[1] - TIE}
        return "mixed" if len(signs) == 2 else "confirmed" if signs == {True} else "contradicted"


def duel(found: Iterable[Figure], one: str, other: str) -> Duel:
    """Compare two deciders setting by setting."""
    errors: dict[tuple[Case, Fraction, Fraction], dict[str, float]] = {}
    for row in found:
        errors.setdefault((row.case, row.tau, row.epsilon), {})[row.decider] = row.exact
    pairs = [(by[one], by[other]) for by in errors.values()]
    wins, losses = sum(a < b - TIE for a, b in pairs), sum(b < a - TIE for a, b in pairs)
    return Duel(wins, losses, len(pairs) - wins - losses, (mean(a for a, _ in pairs), mean(b for _, b in pairs)))


def _say(claimed: str, found: Sequence[Figure], *duels: tuple[str, str]) -> None:
    """Print a claim of the paper that the first decider of each pair is better, and how each pair did."""
    print(f"  {claimed}")
    for one, other in duels:
        result = duel(found, one, other)
        print(f"    {result.verdict if 'not in' not in claimed else '':13s} {one} beside {other}: {result}")


def _split(found: Sequence[Figure]) -> tuple[list[Figure], list[Figure]]:
    """Return the settings in which the claim holds, and the others."""
    inside = [row for row in found if row.case.holds(row.tau)]
    return inside, [row for row in found if not row.case.holds(row.tau)]


def _print_counts(found: Sequence[Figure]) -> None:
    inside, outside = _split(found)
    _say("COUNT, q(D) outside I: LM_count is superior", outside, ("LM_count", "EM_count*"), ("LM_count", "EM_count"))
    _say("COUNT, q(D) in I: LM_count is superior", inside, ("LM_count", "EM_count"))
    level = next(step / 1000 for step in range(1, 5000) if _laplace_can_win(step / 1000))
    print(f"    by the closed forms LM_count is better at no gap inside I if epsilon tau < {level:.3f};")
    print("    above that, at all gaps but those near 0 and near tau")
    print("  COUNT, q(D) = q(D_s): EM_count has the smaller error")
    print("    confirmed     always: 1 / (1 + exp(epsilon tau)) is below exp(-epsilon tau)")
    laplace, logistic = (math.log(ratio) / float(EPSILON) for ratio in (20, 19))
    print("  COUNT: LM_count has the smaller effectiveness threshold")
    print(
        f"    contradicted  at delta = 0.05, epsilon = 1/4 LM_count needs {laplace:.2f} (not {math.log(10) / 0.25:.2f} "
        f"as published: there it is wrong with probability 0.1), EM_count {logistic:.2f}"
    )


def _laplace_can_win(product: float) -> bool:
    """Return whether LM_count is better than EM_count at some gap inside I, given epsilon tau."""
    gaps = np.linspace(0, product, 1001)
    return bool(np.any(np.exp(-product) * np.cosh(gaps) < 1 / (1 + np.exp(product - gaps))))


def _print_sums(found: Sequence[Figure]) -> None:
    small = [row for row in found if 8 * row.case.largest <= BOUNDS[row.case.query.column][1]]
    large = [row for row in found if row not in small]
    races = ("R2T_sum*", "R2T_sum", "SVT_sum")
    _say("SUM, DS at most GS/8: choose SVT_sum or R2T_sum", small, *((name, "LM_sum") for name in races))
    for name, rows in zip(("in I", "outside I"), _split(small), strict=True):
        _say(f"the same, q(D) {name}", rows, *((name, "LM_sum") for name in races))
    usual = [row for row in large if row.epsilon >= EPSILON]
    _say("SUM, otherwise LM_sum (epsilon at least 1/4)", usual, *(("LM_sum", name) for name in races))
    low = [row for row in large if row.epsilon < EPSILON]
    _say("SUM, otherwise not LM_sum if epsilon is small (below 1/4)", low, *((name, "LM_sum") for name in races))
    inside, outside = _split(found)
    _say("SUM, in I: LM_sum is best, SVT_sum second", inside, ("LM_sum", "SVT_sum"), ("SVT_sum", "R2T_sum*"))
    _say("SUM, outside I: R2T_sum and SVT_sum are better", outside, ("R2T_sum*", "LM_sum"), ("SVT_sum", "LM_sum"))
    _say("SUM, in I, not in the paper", inside, ("R2T_sum", "LM_sum"), ("R2T_sum", "R2T_sum*"), ("EM_sum", "LM_sum"))


def _print_medians(found: Sequence[Figure]) -> None:
    _say("MEDIAN: Hist_med has the smaller error, as published", found, ("Hist_med*", "EM_med*"))
    _say("MEDIAN: the same of ours", found, ("Hist_med", "EM_med"))
    for name, rows in zip(("in I", "outside I"), _split(found), strict=True):
        _say(f"MEDIAN: both, q(D) {name}", rows, ("Hist_med*", "EM_med*"), ("Hist_med", "EM_med"))
    ours = ("EM_med", "EM_med*"), ("Hist_med", "Hist_med*"), ("EM_rank", "Hist_med")
    _say("MEDIAN, not in the paper", found, *ours)


def _print_monotony(found: Sequence[Figure]) -> None:
    rising: dict[str, list[bool]] = {}
    for copy in COPIES:
        for kind in ("COUNT", "SUM", "MEDIAN"):
            for (_, name), rows in _grouped(found, kind, copy).items():
                errors = [row.exact for row in _sides(rows)[1]]
                rising.setdefault(name, []).append(any(b > a + TIE for a, b in pairwise(errors)))
    print("  the error may rise with epsilon")
    print(
        "    confirmed     "
        + ", ".join(f"{name} {sum(some)}/{len(some)}" for name, some in rising.items() if any(some))
    )


# What follows from the paper's printed answers

PRINTED = {"q1": (34, 34), "q5": (1560, 1606), "q13": (6_915_340, 6_942_866), "q16": (123_543_040, 128_497_757)}
PRINTED |= {"q20": (685_635_093, 690_711_885)}
EXPECTED = {
    "q1": (0.983, 0.934, 0.762, 0.337, 0.013),
    "q5": (0, 0, 0.130, 0, 0),
    "q13": (0.973, 0.946, 0.895, 0.801, 0.642),
    "q16": (0.289, 0.353, 0.323, 0.215, 0.093),
    "q20": (0.076, 0.008, 0, 0, 0),
}
"""By the Laplace distribution: LM_count as tau varies, LM_sum (GS = 500,000) as epsilon varies."""


def print_printed(runs: int) -> None:
    """Print the error of LM_count and LM_sum on the paper's IPUMS-CPS queries, whose answers it prints."""
    print("\nThe paper's own queries (IPUMS-CPS), from the answers printed in its Table 2: exact, [by hand], simulated")
    for name, (truth, synthetic) in PRINTED.items():
        is_sum = int(name[1:]) > 12
        settings = [(TAU, epsilon) for epsilon in EPSILONS] if is_sum else [(tau, EPSILON) for tau in TAUS]
        cells = []
        for (tau, epsilon), by_hand in zip(settings, EXPECTED[name], strict=True):
            claim = Claim(synthetic, tau * synthetic)
            query = (
                deciders.Query(kind="sum", claim=claim, most=500_000)
                if is_sum
                else deciders.Query(kind="count", claim=claim)
            )
            decider = deciders.candidates(query, epsilon=epsilon)["LM_sum" if is_sum else "LM_count"]
            yes, holds = decider.yes(truth), claim.holds(truth)
            wrong = float(np.mean(decider.draw(truth, runs) != holds))
            cells.append(f"{1 - yes if holds else yes:.3f} [{by_hand:.3f}] {wrong:.3f}")
        print(f"  {name:4s} {'LM_sum, epsilon' if is_sum else 'LM_count, tau':16s}" + "   ".join(cells))


def print_agreement(found: Sequence[Figure], runs: int) -> None:
    """Print how far the simulation is from the exact errors."""
    chances = []
    for row in found:
        wrong = round(row.simulated * runs)
        tails = binom.cdf(wrong, runs, row.exact), binom.sf(wrong - 1, runs, row.exact)
        chances.append(min(1.0, 2 * min(tails)))
    print(
        f"\nSimulated ({runs} runs) beside exact, {len(found):,} figures: mean absolute difference "
        f"{mean(abs(row.simulated - row.exact) for row in found):.4f}; two-sided binomial p below 0.001 for "
        f"{sum(chance < 0.001 for chance in chances)} of them (below {len(found) / 1000:.1f} are expected), "
        f"the smallest {min(chances):.2g}"
    )


def main(folder: Path | None = None, runs: int = 100) -> None:
    """Print everything, and write the figures into the folder."""
    rng = np.random.default_rng(0)
    found = [figure for case in cases() for figure in figures(case, runs, rng)]
    for copy in COPIES:
        for kind in ("COUNT", "SUM", "MEDIAN"):
            print_table(found, kind, copy)
    print_agreement(found, runs)
    print_conclusions(found)
    print_printed(runs)
    if folder is not None:
        write_all(found, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    main(options.folder, options.runs)
