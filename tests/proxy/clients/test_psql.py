"""psql: answers as the DB-API has them, and its own look at the catalog as at a real PostgreSQL's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.questions import QUESTIONS, Question
from tests.proxy.postgres import Postgres, binaries
from tests.proxy.servers import Running

COMMANDS = [
    r"\d", r"\d+", r"\dt", r"\dt+", r"\dt *.*", r"\dv", r"\d people", r"\d+ people", r"\d regions", r"\d adults",
    r"\d noisegate.*", r"\d pe*", r"\dS pg_class", r"\l", r"\dn", r"\dn+", r"\du", r"\du+", r"\df", r"\df+", r"\da",
    r"\df pg_catalog.upper", r"\dfS count", r"\dT", r"\dTS int*", r"\do", r"\dD", r"\dd", r"\di", r"\ds", r"\dm",
    r"\dE", r"\dp", r"\dp people", r"\ddp", r"\dC", r"\dc", r"\dx", r"\db", r"\dF", r"\dFd", r"\dy", r"\des",
    r"\det", r"\dew", r"\drds", r"\dL", r"\dA", r"\dP", r"\dRp", r"\dRs", r"\dX", r"\encoding", r"\dt pub*.p*",
    r"\d nothing", r'\d "People"', r"\dconfig search_path",
]  # fmt: skip
"""Left out: what tells of the server itself (sizes, versions, definitions of views)."""

MARK = "== next =="

PSQLS = {"of the wheel": binaries("psql"), "of the machine": shutil.which("psql")}


@pytest.fixture(scope="module", params=PSQLS)
def psql(request: pytest.FixtureRequest) -> str:
    found = PSQLS[request.param]
    if found is None:
        pytest.skip(f"there is no psql {request.param}")
    return str(found)


def run(psql: str, dsn: str, *commands: str, options: tuple[str, ...] = ()) -> str:
    """Return what psql writes, errors included; without reading anybody's ~/.psqlrc."""
    arguments = [argument for command in commands for argument in ("-c", command)]
    environment = {**os.environ, "PGCONNECT_TIMEOUT": "20", "PAGER": "", "PGCLIENTENCODING": "UTF8"}
    done = subprocess.run(
        [psql, "-X", *options, dsn, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout + done.stderr


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    return "" if value is None else str(value).removesuffix(".0") if isinstance(value, float) else str(value)


@pytest.mark.parametrize("question", [q for q in QUESTIONS if not q.parameters], ids=lambda question: question.name)
def test_an_answer_is_the_one_of_the_dbapi(
    question: Question, psql: str, served: Running, expected: dict[str, Rows]
) -> None:
    shown = run(psql, served.dsn(), question.sql, options=("-At", "-F", "\t"))
    assert shown.splitlines() == ["\t".join(map(as_text, row)) for row in expected[question.name]]


@pytest.mark.parametrize("question", [q for q in QUESTIONS if q.parameters], ids=lambda question: question.name)
def test_values_can_be_bound(question: Question, served: Running, expected: dict[str, Rows]) -> None:
    psql = str(binaries("psql"))  # \bind is younger than the psql of some machines
    values = " ".join(f"'{as_text(value)}'" for value in question.parameters)
    done = subprocess.run(
        [psql, "-X", "-At", "-F", "\t", served.dsn()],
        input=f"{question.sql} \\bind {values} \\g\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["\t".join(map(as_text, row)) for row in expected[question.name]], done.stderr


@pytest.fixture(scope="module")
def looked(psql: str, served: Running, postgres: Postgres) -> list[tuple[str, str]]:
    """Return what each command shows here and there, asked over one connection each."""
    script = f"\n\\echo {MARK}\n".join(COMMANDS)
    shown = [
        subprocess.run([psql, "-Xq", dsn], input=script, capture_output=True, text=True, check=False).stdout.split(MARK)
        for dsn in (served.dsn(), postgres.dsn)
    ]
    return list(zip(*shown, strict=True))


@pytest.mark.parametrize("index", range(len(COMMANDS)), ids=COMMANDS)
def test_a_look_at_the_catalog_shows_what_postgresql_shows(index: int, looked: list[tuple[str, str]]) -> None:
    ours, theirs = looked[index]
    assert ours == theirs


def test_what_is_not_there_is_not_found(psql: str, served: Running) -> None:
    assert "Did not find any relation" in run(psql, served.dsn(), r"\d nothing")


def test_a_view_is_shown_with_its_definition(served: Running) -> None:
    assert "WHERE" in run(str(binaries("psql")), served.dsn(), r"\sv adults")


def test_an_error_points_at_its_place(psql: str, served: Running) -> None:
    shown = run(psql, served.dsn(), "SELECT * FROM people LIMIT 5", options=("-v", "VERBOSITY=verbose"))
    assert shown.startswith("ERROR:  42501: ")
    assert "LINE 1: SELECT * FROM people LIMIT 5" in shown
    assert "HINT:  " in shown


def test_copy_writes_a_file(psql: str, served: Running, tmp_path: Path, expected: dict[str, Rows]) -> None:
    target = tmp_path / "out.csv"
    run(psql, served.dsn(), rf"\copy ({QUESTIONS[0].sql}) TO '{target}' CSV")
    assert target.read_text().splitlines() == [f"{sex},{n}" for sex, n in expected["counts"]]
