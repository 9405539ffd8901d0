"""A protected table that Spark reads: what is checked, what is never told, and what is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from planner.basics.errors import PolicyRefusal, SourceFailed
from planner.cells.workspace import Axis
from planner.curator.check import check
from planner.curator.proposal import propose
from planner.gate import Gate
from planner.policy.domain import Domain
from planner.sources.source import open_source
from tests.planner.engines import grid, spark_source, table
from tests.planner.gates import policy, switch_noise_off

COLUMNS = """
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
sex = { values = ["F", "M"] }
"""
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
QUESTION = "SELECT sex, count(*) AS n, sum(age) AS years FROM people GROUP BY sex ORDER BY sex"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two Parquet files, with 300 people."""
    found = tmp_path / "some people"
    found.mkdir()
    for part in (0, 1):
        write(found / f"part-{part}.parquet", f"range({150 * part}, {150 * part + 150})")
    return found


def write(file: Path, rows: str) -> None:
    people = f"SELECT i % 100 AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM {rows} AS r(i)"
    duckdb.execute(f"COPY ({people}) TO '{file}'")


def make(folder: Path, name: str, columns: str = COLUMNS) -> Path:
    return policy(folder.parent, f'[tables.people]\nsource = "{spark_source(name)}"\n{columns}')


def test_answers_come_from_spark_until_a_file_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_noise_off(monkeypatch)
    with closing(Gate.open(make(folder, f"parquet.`{folder}`"))) as gate:
        rows = gate.session().execute(QUESTION).rows
        assert [tuple(map(str, row)) for row in rows] == [("F", "100", "4950"), ("M", "200", "9900")]
        write(folder / "part-2.parquet", "range(3)")
        with pytest.raises(SourceFailed, match="changed since it was first read"):
            gate.session().execute(QUESTION + " LIMIT 1")
        gate.refresh("people")
        rows = gate.session().execute(QUESTION).rows
        assert [tuple(map(str, row)) for row in rows] == [("F", "101", "4950"), ("M", "202", "9903")]


def test_init_and_check_read_the_schema(folder: Path) -> None:
    name = f"parquet.`{folder}`"
    assert 'age = { type = "integer" }' in propose(spark_source(name))
    wrong = COLUMNS + 'town = { values = ["Ghent"] }'
    with pytest.raises(PolicyRefusal, match=r"columns\.town: the source has no such column"):
        check(make(folder, name, wrong))
    wrong = COLUMNS.replace("sex = {", 'sex = { type = "text",').replace(
        'type = "integer", min = 0, max = 110', "values = [true]"
    )
    with pytest.raises(PolicyRefusal, match="is integer in the source, which can't be read as boolean"):
        check(make(folder, name, wrong))
    with pytest.raises(SourceFailed, match="can't be read"):
        Gate.open(make(folder, "parquet.`/nowhere`"))


@pytest.fixture
def spark(folder: Path) -> Iterator[Any]:
    """Return a session, and make sure that nothing of a test stays in the catalog."""
    spark_source("")
    from planner.sources.spark import session

    found = session("local[1]")
    yield found
    for kind, name in (("VIEW", "shown"), ("TABLE", "words"), ("TABLE", "parted")):
        found.sql(f"DROP {kind} IF EXISTS {name}")


def test_a_table_of_the_catalog_is_compared_by_its_bytes(spark: Any, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE words (word STRING COLLATE UTF8_LCASE, code CHAR(3)) USING parquet LOCATION '{tmp_path / 'w'}'"
    )
    spark.sql("INSERT INTO words VALUES ('F', 'a'), ('f', 'a '), ('f', 'b')")
    domains = {"word": Domain(type="text", values=("F", "f")), "code": Domain(type="text", values=("a  ", "b  "))}
    with closing(open_source(table(spark_source("default.words"), domains))) as source:
        for column, counts in (("word", [1, 2]), ("code", [2, 1])):
            atoms = np.arange(2)
            tally = source.tally([Axis(column, domains[column], atoms, atoms)], [])
            assert [
                n for _, n in sorted(zip(tally.codes[:, 0].tolist(), tally.sums[:, 0].tolist(), strict=True))
            ] == counts


def test_a_view_is_refused(spark: Any, folder: Path) -> None:
    spark.sql(f"CREATE VIEW shown AS SELECT * FROM parquet.`{folder}`")
    with pytest.raises(SourceFailed, match="is a view"):
        Gate.open(make(folder, "default.shown"))


def test_the_text_of_an_error_stays_inside(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = open_source(table(spark_source(f"parquet.`{folder}`"), {"age": grid("integer", 0, 110, 1)}))
    with pytest.raises(SourceFailed) as refused, source.current():  # type: ignore[attr-defined]
        source.fetch(f"SELECT CAST(concat('hunter', age) AS INT) FROM parquet.`{folder}`")  # type: ignore[attr-defined]
    assert refused.value.message == "the source of table people can't be read"
    assert refused.value.__suppress_context__
    assert "hunter" not in "".join(capfd.readouterr())


def test_what_takes_too_long_is_cancelled(folder: Path) -> None:
    source = open_source(table(spark_source(f"parquet.`{folder}`"), {"age": grid("integer", 0, 110, 1)}, timeout=0.5))
    with pytest.raises(SourceFailed, match=r"took longer than 0\.5 seconds"), source.current():  # type: ignore[attr-defined]
        source.fetch("SELECT count(*) FROM range(100000000000) WHERE id % 7 = 3")  # type: ignore[attr-defined]


# --- catalogs and sessions ---------------------------------------------------------------------------------


def total(source: Any) -> int:
    return int(source.tally([], []).sums[0, 0])


def test_a_managed_table_in_partitions_is_read_until_one_of_them_changes(spark: Any, folder: Path) -> None:
    rows = spark.read.parquet(str(folder))
    rows.write.partitionBy("sex").saveAsTable("parted", path=str(folder.parent / "parted"))
    domains = {"age": grid("integer", 0, 110, 1), "sex": Domain(type="text", values=("F", "M"))}
    with closing(open_source(table(spark_source("spark_catalog.default.parted"), domains))) as source:
        before = source.fingerprint()
        assert total(source) == 300
        assert source.fingerprint() == before
        spark.sql("INSERT INTO parted PARTITION (sex = 'F') VALUES (30)")
        assert source.fingerprint() != before
        assert total(source) == 301


def test_what_is_known_of_rows_is_forgotten_with_them(spark: Any, folder: Path) -> None:
    """At first all rows count; then some are outside the domain of another column, then units have too many."""
    rows = spark.read.parquet(str(folder))
    rows.write.partitionBy("sex").saveAsTable("changing", path=str(folder.parent / "changing"))
    domains = {"age": grid("integer", 0, 110, 1), "sex": Domain(type="text", values=("F", "M"))}
    place = spark_source("spark_catalog.default.changing")
    limited = table(place, domains, unit="age", max_rows_per_unit=4, row_key="sex")
    with closing(open_source(table(place, domains))) as source, closing(open_source(limited)) as units:
        for values, counts in ((None, (300, 300)), ("PARTITION (sex = 'x') VALUES (30)", (300, 300))):
            if values:
                spark.sql(f"INSERT INTO changing {values}")
            assert [held_total(each) for each in (source, units, units)] == [*counts, counts[1]]
        spark.sql("INSERT INTO changing PARTITION (sex = 'F') VALUES (30), (30), (NULL)")
        assert [held_total(each) for each in (source, units, units)] == [302, 301, 301]


def held_total(source: Any) -> int:
    with source.reading():
        return total(source)


def test_a_table_whose_changes_could_not_be_noticed_is_refused(folder: Path) -> None:
    """A catalog that was set in the session of this process: a database, so Spark can list no files of it."""
    from pyspark.sql import SparkSession

    spark_source("")
    running = SparkSession.active()
    running._jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder.parent / "derby.log"))  # type: ignore[union-attr]
    catalog = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    for key, value in (("", catalog), (".url", "jdbc:derby:memory:clinic;create=true"), (".driver", DERBY)):
        running.conf.set(f"spark.sql.catalog.derby{key}", value)
    running.sql("CREATE TABLE derby.APP.people (age INT)")
    with pytest.raises(SourceFailed, match="its changes could not be noticed"):
        open_source(table("spark:#derby.APP.people", {"age": grid("integer", 0, 110, 1)}))
    with pytest.raises(SourceFailed, match="can't be read"):
        open_source(table("spark:#derby.APP.nobody", {"age": grid("integer", 0, 110, 1)}))


def test_the_session_of_this_process_is_used_in_every_thread(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark_source("")
    running = SparkSession.active()
    running.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    place = table(f"spark:#parquet.`{folder}`", {"age": grid("integer", 0, 110, 1)})
    with ThreadPoolExecutor(1) as other:
        source: Any = other.submit(open_source, place).result()
        assert other.submit(total, source).result() == 300
    assert source._session.sparkContext is running.sparkContext
    assert source._session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert running.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    running.conf.unset("spark.sql.session.timeZone")


def test_spark_connect_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = table(spark_source(f"parquet.`{folder}`"), {"age": grid("integer", 0, 110, 1)})
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(SourceFailed, match="can't use Spark Connect"):
        open_source(place)
