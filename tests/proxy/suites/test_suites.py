"""The tests that asyncpg and psycopg2 have of their own, unmodified, against a running server.

What is left out, and why, is in selection.toml. psycopg 3 publishes its tests in no package, so they are not run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from proxy.server.shared import policy_catalog
from tests.proxy import town
from tests.proxy.clients.fetch import SUITES, suite_folder
from tests.proxy.servers import Running, running

SELECTION: dict[str, Any] = tomllib.loads(Path(__file__).with_name("selection.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(town.make(tmp_path_factory.mktemp("suites")), catalog=policy_catalog) as server:
        yield server


@pytest.fixture(params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """The name of a driver whose own tests were fetched."""
    name = str(request.param)
    if not suite_folder(name).exists():
        pytest.skip(f"the source package of {name} can't be had: python -m tests.proxy.clients.fetch")
    pytest.importorskip(name)
    return name


def left_out(suite: str) -> list[str]:
    """Return the tests that are left out of files that are run."""
    return [f"{file}::{test}" for file, tests in SELECTION[suite]["tests"].items() for test in tests]


def run(suite: str, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the chosen tests with pytest as they came, in a process and with settings of its own."""
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "ann", "PGDATABASE": "noisegate"}
    environment = {**os.environ, **where, "PGSSLMODE": "disable", "PSYCOPG2_TESTDB": "noisegate"}
    # The suite's own folder is the root, or pytest would take our settings from the folders above.
    alone = ["-c", os.devnull, "--rootdir=.", "-p", "no:cacheprovider", "-p", "no:xdist", "-q"]
    files = [f"tests/{file}" for file in SELECTION[suite]["run"]]
    without = [f"--deselect=tests/{test}" for test in left_out(suite)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *alone, *options, *without, *files],
        cwd=suite_folder(suite), env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def results(path: Path) -> Counter[str]:
    """Return how many of a run's tests passed, failed and were skipped."""
    cases = ElementTree.parse(path).iter("testcase")
    found: dict[str, str] = {}
    for case in cases:  # a subtest is a case of its own under its test's name
        name, ends = f"{case.get('classname')}::{case.get('name')}", {child.tag for child in case}
        found[name] = "failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"
    return Counter(found.values())


def test_the_drivers_own_tests_pass(suite: str, served: Running, tmp_path: Path) -> None:
    spent = served.gate.ledger.spent("default")
    done = run(suite, served.port, f"--junitxml={tmp_path / 'found.xml'}")
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-1_000:]
    assert results(tmp_path / "found.xml")["passed"] == SELECTION[suite]["passed"]
    assert served.gate.ledger.spent("default") == spent


def test_every_file_of_a_suite_is_run_or_left_out_for_a_reason(suite: str) -> None:
    files = {path.name for path in (suite_folder(suite) / "tests").glob("test_*.py")}
    chosen = SELECTION[suite]
    assert files == {*chosen["run"], *chosen["files"]}
    assert len(files) == len(chosen["run"]) + len(chosen["files"])
    assert {*chosen["files"].values(), *(why for tests in chosen["tests"].values() for why in tests.values())} <= set(
        SELECTION["reasons"]
    )


def test_what_is_left_out_exists(suite: str) -> None:
    """A test that was renamed would be run, and a reason without a test would be a lie."""
    files = (suite_folder(suite) / "tests").glob("*.py")  # a test may be inherited from another file's class
    texts = "".join(path.read_text(encoding="utf-8") for path in files)
    for test in left_out(suite):
        name = test.rpartition("::")[2]
        assert f"def {name}(" in texts, test
