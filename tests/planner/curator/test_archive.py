"""Releases go out as a file and come back as the same answers; a file that was changed does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from planner.basics.errors import BadValue, LedgerFailed, PolicyRefusal, SourceFailed
from planner.curator import archive
from planner.gate import Gate
from planner.ledger.ledger import Ledger
from planner.policy.file import load
from tests.planner.gates import open_gate, source, write
from tests.proxy.postgres import Postgres, running

SELECT = "SELECT i % 60 + 20 AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM range(900) t(i)"
COLUMNS = 'age = { type = "integer", min = 20, max = 79 }\nsex = { values = ["F", "M"] }'
QUESTIONS = (
    "SELECT sex, count(*) AS n, avg(age) AS age FROM people GROUP BY sex ORDER BY sex",
    "SELECT count(*) FROM people WHERE age < 40",
    "SELECT median(age) FROM people",
    "SELECT count(DISTINCT age) FROM people WHERE sex = 'F'",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        yield found


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = open_gate(tmp_path / "original", SELECT, columns=COLUMNS)
    yield found
    found.close()


def asked(gate: Gate, *settings: str) -> list[object]:
    session = gate.session()
    for setting in settings:
        session.execute(setting)
    results = [session.execute(sql) for sql in QUESTIONS]
    return [(result.rows, result.intervals) for result in results]


def elsewhere(folder: Path, ledger: str = "copy.sqlite") -> Path:
    """Write the policy of a gate that does not have the table."""
    folder.mkdir()
    path = folder / "policy.toml"
    text = f'[budget]\nepsilon = 1000\ndelta = 1e-9\n[ledger]\nurl = "{ledger}"\n'
    path.write_text(
        f'{text}[tables.people]\nsource = "releases"\n[tables.people.columns]\n{COLUMNS}\n', encoding="utf-8"
    )
    return path


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_imported_releases_give_the_same_answers_to_the_digit_for_free_without_the_table(
    gate: Gate, tmp_path: Path, server: Postgres, kind: str
) -> None:
    asked(gate)
    first = asked(gate)  # now from all releases together, which the first ones were not
    last = len(gate.ledger.releases())
    asked(gate, "SET noisegate.error = 20")
    better = asked(gate, "SET noisegate.error = 20")
    second = len(gate.ledger.releases())
    gate.refresh("people")
    asked(gate)
    on_new_data = asked(gate)
    exported = archive.export(gate.ledger, tmp_path / "releases.parquet")
    assert exported.versions == {"people": 2}

    url = "copy.sqlite" if kind == "sqlite" else f"postgresql://noisegate@127.0.0.1:{server.port}/noisegate#archive"
    path = elsewhere(tmp_path / "elsewhere", url)
    assert archive.load(load(path).ledger, tmp_path / "releases.parquet", head=exported.head) == exported
    copy = Gate.open(path)
    try:
        assert copy.ledger.releases() == gate.ledger.releases()
        assert asked(copy, f"SET noisegate.as_of = {last}") == first
        assert asked(copy, f"SET noisegate.as_of = {second}", "SET noisegate.error = 20") == better
        assert asked(copy) == on_new_data
        assert copy.ledger.spent("default") == gate.ledger.spent("default")
        with pytest.raises(SourceFailed, match="table people is not here, only what was released about it"):
            copy.session().execute("SELECT count(*) FROM people WHERE age = 33")
        with pytest.raises(SourceFailed, match="table people is not here"):
            copy.refresh("people")
        again = archive.export(copy.ledger, tmp_path / "again.parquet")
        assert again == exported
    finally:
        copy.close()


def test_an_archive_never_charges_even_where_the_table_is(gate: Gate, tmp_path: Path) -> None:
    asked(gate)
    archive.export(gate.ledger, tmp_path / "releases.parquet")
    path = elsewhere(tmp_path / "elsewhere")
    write(path.with_name("people.parquet"), SELECT)
    path.write_text(path.read_text().replace('"releases"', f'"{source("parquet")}"'))
    archive.load(load(path).ledger, tmp_path / "releases.parquet")
    copy = Gate.open(path)
    try:
        assert asked(copy) == asked(gate)
        spent = copy.ledger.spent("default")
        with pytest.raises(LedgerFailed, match=r"copy\.sqlite is an archive: it charges nothing"):
            copy.session().execute("SELECT count(*) FROM people WHERE age = 33")
        assert copy.ledger.spent("default") == spent
    finally:
        copy.close()


@pytest.mark.parametrize(
    "change",
    [
        "SELECT * REPLACE (CASE id WHEN 2 THEN body || 'x'::BLOB ELSE body END AS body) FROM f",
        "SELECT * REPLACE (CASE id WHEN 1 THEN 'bob' ELSE analyst END AS analyst) FROM f",
        "SELECT * REPLACE (CASE id WHEN 2 THEN 'SELECT 2' ELSE sql END AS sql) FROM f",
        "SELECT * REPLACE (CASE id WHEN 1 THEN repeat('0', 64) ELSE hash END AS hash) FROM f",
        "SELECT * FROM f WHERE id <> 2",
        "SELECT * FROM f WHERE id < 3",
        "SELECT * REPLACE (id + 1 AS id) FROM f",
        "SELECT * FROM f UNION ALL SELECT * REPLACE (id + 100 AS id) FROM f",
    ],
)
def test_a_changed_file_is_refused_and_nothing_is_made(gate: Gate, tmp_path: Path, change: str) -> None:
    asked(gate)
    file, changed = tmp_path / "releases.parquet", tmp_path / "changed.parquet"
    archive.export(gate.ledger, file)
    with duckdb.connect() as connection:
        (meta,) = connection.execute("SELECT value FROM parquet_kv_metadata(?)", [str(file)]).fetchone() or (b"",)
        text = meta.decode().replace("'", "''")
        connection.execute(f"CREATE VIEW f AS FROM '{file}'")
        connection.execute(f"COPY ({change}) TO '{changed}' (FORMAT parquet, KV_METADATA {{noisegate: '{text}'}})")
    place = tmp_path / "copy.sqlite"
    with pytest.raises(BadValue, match=r"changed\.parquet was changed: the chain of hashes breaks after release"):
        archive.load(place, changed)
    assert not place.exists()


def test_a_file_that_was_made_anew_is_refused_by_its_last_hash(gate: Gate, tmp_path: Path) -> None:
    asked(gate)
    archive.export(gate.ledger, tmp_path / "releases.parquet")
    with pytest.raises(BadValue, match="ends with another hash than the one given"):
        archive.load(tmp_path / "copy.sqlite", tmp_path / "releases.parquet", head="0" * 64)


@pytest.mark.parametrize("what", ["nothing", "text", "another table"])
def test_what_is_no_export_is_refused(tmp_path: Path, what: str) -> None:
    file = tmp_path / "releases.parquet"
    if what == "text":
        file.write_text("no Parquet")
    elif what == "another table":
        write(file, SELECT)
    with pytest.raises(BadValue, match=r"releases\.parquet is not an export of releases"):
        archive.load(tmp_path / "copy.sqlite", file)


def test_releases_are_not_imported_over_others(gate: Gate, tmp_path: Path) -> None:
    asked(gate)
    archive.export(gate.ledger, tmp_path / "releases.parquet")
    place = load(gate.policy.path).ledger
    with pytest.raises(LedgerFailed, match="there is a ledger already"):
        archive.load(place, tmp_path / "releases.parquet")
    Ledger.open(tmp_path / "used.sqlite").close()
    with pytest.raises(LedgerFailed, match="there is a ledger already"):
        archive.load(tmp_path / "used.sqlite", tmp_path / "releases.parquet")


def test_an_export_holds_releases_and_nothing_else(gate: Gate, tmp_path: Path) -> None:
    asked(gate)
    fingerprint = gate.ledger.fingerprint("people")
    archive.export(gate.ledger, tmp_path / "releases.parquet")
    with duckdb.connect() as connection:
        names = [row[0] for row in connection.execute(f"DESCRIBE FROM '{tmp_path}/releases.parquet'").fetchall()]
        ((meta,),) = connection.execute(
            f"SELECT value FROM parquet_kv_metadata('{tmp_path}/releases.parquet')"
        ).fetchall()
    assert names == list(archive.COLUMNS)
    assert set(json.loads(meta)) == {"format", "identity", "releases", "head", "versions"}
    assert fingerprint is not None
    assert fingerprint.encode() not in (tmp_path / "releases.parquet").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["original", "releases.parquet"]


def test_only_a_protected_table_can_be_elsewhere(tmp_path: Path) -> None:
    path = elsewhere(tmp_path / "elsewhere")
    path.write_text(path.read_text() + '[tables.towns]\nsource = "releases"\npublic = true\n')
    with pytest.raises(PolicyRefusal, match="source must end in"):
        load(path)
