"""docs/limits.md says the numbers that the code has."""

from __future__ import annotations

import ast
import re

from planner.basics import limits
from tests.house import ROOT

PAGE = " ".join((ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split())
SIZE = PAGE.partition("## Size ")[2]


def megabytes(size: int) -> str:
    return f"{size // 2**20} MB"


SENTENCES = [
    f"A question tells at most {limits.MAX_CELLS:,} cells apart",
    f"Up to {limits.MAX_MEASURES} measured columns in one question",
    f"are one problem up to {limits.MAX_JOINT:,} answers",
    f"A statement has at most {limits.MAX_TOKENS:,} words, numbers and signs",
    f"an answer at most {limits.MAX_ANSWER_ROWS:,} rows",
    f"up to {limits.MAX_SETS} grouping sets",
    f"{limits.SANDBOX_SECONDS:g} seconds for each of its expressions on public things",
    f"A query of up to {limits.MAX_VERIFIED_GROUPS} groups can be verified",
    f"a choice is among up to {limits.MAX_ANALYSES} analyses",
]
"""What the section about size says, with the numbers of the code."""

ELSEWHERE = [
    f"about {megabytes(limits.HISTORY_BYTES)} for what is known of the history",
    f"{megabytes(limits.READY_BYTES)} for questions that stay compiled",
    f"{limits.SANDBOX_MEMORY.replace('GB', ' GB')} at most for DuckDB while it works",
    f"has at most {limits.MAX_TEXT:,} characters",
    f"where that is more than {limits.MAX_POINTS:,} points, on what fits",
    f"itself has more than {limits.MAX_POINTS:,} points or {limits.MAX_ASKED} answers",
    f"up to {limits.MAX_ROUND_ROWS} answers on {limits.MAX_POINTS:,} points are one problem",
]


def test_the_page_says_the_numbers_of_the_code() -> None:
    assert not [sentence for sentence in SENTENCES if sentence not in SIZE]
    assert not [sentence for sentence in ELSEWHERE if sentence not in PAGE]


def test_no_number_of_the_section_about_size_is_unchecked() -> None:
    """But for examples: "97 cost as much as 96", and what takes some seconds."""
    checked = set(re.findall(r"\d[\d,]*", " ".join(SENTENCES)))
    found = {number.rstrip(",") for number in re.findall(r"\d[\d,]*", SIZE)}
    assert found - checked <= {"97", "96", "1,000"}


def test_every_limit_says_why_and_what_is_seen_beyond_it() -> None:
    body = ast.parse((ROOT / "planner" / "basics" / "limits.py").read_text(encoding="utf-8")).body[1:]
    assert [type(node) for node in body] == [ast.Assign, ast.Expr] * (len(body) // 2)
    for name, about in zip(body[::2], body[1::2], strict=True):
        assert len(ast.unparse(about)) > 60, ast.unparse(name)


CHOICES = {
    "MAX_BARS",  # of a proposed query
    "MAX_BRANCHES",  # beyond, another way to the same numbers
    "MAX_BITS",  # of the noise on one count: beyond, it is less exact than it could be
    "MOST_BURDEN",  # of a join, in parts of what measuring afresh costs
}
"""Numbers that are called as limits are, and refuse nothing."""


def test_no_other_module_of_the_planner_has_a_limit_of_its_own() -> None:
    own = re.compile(r"^((?:MAX|MOST|LONGEST)_[A-Z_]+)(?:, [A-Z_]+)* = [\d(]", flags=re.MULTILINE)
    modules = [path for path in (ROOT / "planner").rglob("*.py") if path.name != "limits.py"]
    assert {name for path in modules for name in own.findall(path.read_text(encoding="utf-8"))} == CHOICES
