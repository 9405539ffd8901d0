"""Every claim of docs/guarantee.md names a module, a proof and a test, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "## What each claim rests on"


def claims() -> list[list[str]]:
    """Return the cells of every row of the table."""
    text = (ROOT / "docs" / "guarantee.md").read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_there_are_claims() -> None:
    assert len(claims()) > 20


@pytest.mark.parametrize("row", claims(), ids=lambda row: row[0][:40])
def test_a_claim_has_a_module_a_proof_and_a_test_that_exist(row: list[str]) -> None:
    _, modules, proof, tests = row
    assert proof
    for name in re.findall(r"`([^`]+)`", modules):
        assert (ROOT / name).exists(), name
    folder, found = ROOT, ""
    assert "`tests/" in tests
    for name in re.findall(r"`([^`]+)`", tests):
        if name.endswith(".py"):
            path = ROOT / name if "/" in name else folder / name
            folder, found = path.parent, path.read_text(encoding="utf-8")
        else:
            assert f"def {name}(" in found, name
