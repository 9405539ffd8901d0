"""A gate that runs as somebody who may not read or write its files: one clear sentence, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from planner.gate import Gate

NOBODY = 65_534
COUNT, NEW = "SELECT count(*) FROM adult", "SELECT sex, count(*) FROM adult GROUP BY sex"
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""Root that may do no more than its owner: to it, files of others are what root's files are to others."""

pytestmark = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv"
)


def tried(*arguments: str | Path) -> str:
    """Return what a command that must fail says; it has no HOME."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    command = [*WITHOUT_RIGHTS, sys.executable, "-m", "noisegate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def given_away(policy: Path, *, folder: int = 0o755, files: int = 0o644) -> list[str]:
    """Give the policy's folder and all in it to somebody else; return what is in it."""
    for path in (policy.parent, *policy.parent.iterdir()):
        os.chown(path, NOBODY, NOBODY)
        path.chmod(folder if path.is_dir() else files)
    return sorted(path.name for path in policy.parent.iterdir())


def left(policy: Path) -> list[str]:
    return sorted(path.name for path in policy.parent.iterdir())


def test_a_folder_that_can_not_be_written(adult_policy: Path) -> None:
    before = given_away(adult_policy)
    assert "the ledger adult.ledger.sqlite can't be read or written" in tried("query", adult_policy, COUNT)
    said = tried("serve", adult_policy, "--port", "0", "--trust")
    assert "the certificate adult.tls.key can't be written: permission denied" in said
    assert left(adult_policy) == before


@pytest.mark.parametrize("folder", [0o755, 0o777])
def test_a_ledger_that_can_be_read_but_not_written_charges_nothing(adult_policy: Path, folder: int) -> None:
    gate = Gate.open(adult_policy)
    gate.session("ann").execute(COUNT)
    spent = gate.ledger.spent("default")
    gate.close()
    before = given_away(adult_policy, folder=folder)
    said = tried("query", "--analyst", "ann", adult_policy, NEW)
    assert "can't be read or written: attempt to write a readonly database" in said
    assert "nothing was charged" in said
    assert left(adult_policy) == before
    gate = Gate.open(adult_policy)
    assert gate.ledger.spent("default") == spent
    gate.close()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adult.toml", "can't be read: permission denied"),
        ("adult.parquet", "the source of table adult can't be opened"),
        ("adult.ledger.sqlite", "the ledger adult.ledger.sqlite can't be read or written"),
        ("adult.ledger.sqlite.born", "adult.ledger.sqlite.born can't be read: Permission denied"),
    ],
)
def test_a_file_that_can_not_be_read(adult_policy: Path, name: str, words: str) -> None:
    Gate.open(adult_policy).close()
    before = given_away(adult_policy, folder=0o777, files=0o666)
    (adult_policy.parent / name).chmod(0)
    assert words in tried("query", "--analyst", "ann", adult_policy, COUNT)
    assert left(adult_policy) == before


def test_a_key_that_can_not_be_read(adult_policy: Path) -> None:
    for name in ("adult.tls.key", "adult.tls.crt"):
        (adult_policy.parent / name).touch()
    before = given_away(adult_policy, folder=0o777)
    (adult_policy.parent / "adult.tls.key").chmod(0o600)
    said = tried("serve", adult_policy, "--port", "0", "--trust")
    assert "the certificate adult.tls.crt with the key adult.tls.key can't be used: " in said
    assert "_ssl.c" not in said
    assert left(adult_policy) == before
