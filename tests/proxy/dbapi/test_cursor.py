"""A cursor asks one question at a time and gives out its rows as PEP 249 says."""

from pathlib import Path

import pytest

import noisegate
from tests.proxy.dbapi.questions import BY_SEX, COUNT, spent


def test_a_new_cursor_has_no_answer(cursor: noisegate.Cursor, connection: noisegate.Connection) -> None:
    assert cursor.connection is connection
    assert cursor.description is None
    assert cursor.rowcount == -1
    assert cursor.rownumber is None
    assert cursor.lastrowid is None
    assert cursor.arraysize == 1
    assert cursor.intervals == []
    assert cursor.cost == 0
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall):
        with pytest.raises(noisegate.Error, match="no answer to fetch"):
            fetch()


def test_the_description_has_seven_items_a_column(cursor: noisegate.Cursor) -> None:
    cursor.execute(BY_SEX)
    assert cursor.description is not None
    assert [len(column) for column in cursor.description] == [7, 7]
    assert [column[0] for column in cursor.description] == ["sex", "n"]
    assert [column[1] for column in cursor.description] == [noisegate.STRING, noisegate.NUMBER]


def test_a_decimal_column_tells_its_precision_and_scale(cursor: noisegate.Cursor) -> None:
    cursor.execute("SELECT CAST(1.5 AS DECIMAL(10, 2)) AS d")
    assert (cursor.description or [])[0] == ("d", "DECIMAL(10,2)", None, None, 10, 2, None)


def test_a_statement_without_rows_leaves_no_description(cursor: noisegate.Cursor) -> None:
    cursor.execute(BY_SEX)
    cursor.execute("SET noisegate.confidence = 0.95")
    assert cursor.description is None
    assert cursor.rowcount == -1
    with pytest.raises(noisegate.ProgrammingError, match="no answer to fetch"):
        cursor.fetchall()


def test_fetching_row_by_row_ends_with_none(cursor: noisegate.Cursor) -> None:
    cursor.execute(BY_SEX)
    assert cursor.rowcount == 2
    assert [cursor.rownumber, (cursor.fetchone() or "")[0]] == [0, "Female"]
    assert [cursor.rownumber, (cursor.fetchone() or "")[0]] == [1, "Male"]
    assert cursor.fetchone() is None
    assert cursor.fetchmany() == []
    assert cursor.fetchall() == []
    assert cursor.rowcount == 2


def test_fetchmany_takes_arraysize_or_what_it_is_told(cursor: noisegate.Cursor) -> None:
    cursor.execute("SELECT race, count(*) FROM adult GROUP BY race")
    assert len(cursor.fetchmany()) == 1
    cursor.arraysize = 3
    assert len(cursor.fetchmany()) == 3
    assert len(cursor.fetchmany(size=10)) == 1
    assert cursor.fetchmany(0) == []


def test_fetchall_takes_the_rest(cursor: noisegate.Cursor) -> None:
    cursor.execute(BY_SEX)
    cursor.fetchone()
    assert [row[0] for row in cursor.fetchall()] == ["Male"]


def test_rows_are_tuples_and_iteration_fetches_them(cursor: noisegate.Cursor) -> None:
    rows = list(cursor.execute(BY_SEX))
    assert all(type(row) is tuple for row in rows)
    assert [row[0] for row in rows] == ["Female", "Male"]
    assert next(cursor, None) is None


def test_executing_again_forgets_the_last_answer(cursor: noisegate.Cursor) -> None:
    cursor.execute(BY_SEX)
    cursor.execute(COUNT)
    assert cursor.rowcount == 1
    assert len(cursor.fetchall()) == len(cursor.intervals) == 1


def test_a_refused_question_leaves_no_old_answer_behind(cursor: noisegate.Cursor) -> None:
    cursor.execute(COUNT)
    with pytest.raises(noisegate.ProgrammingError):
        cursor.execute("SELECT * FROM adult")
    assert cursor.description is None
    assert cursor.intervals == []
    assert cursor.cost == 0


def test_intervals_have_the_shape_of_the_rows(cursor: noisegate.Cursor) -> None:
    rows = cursor.execute(BY_SEX).fetchall()
    assert [len(bounds) for bounds in cursor.intervals] == [len(row) for row in rows]
    for (_, n), (of_key, of_count) in zip(rows, cursor.intervals, strict=True):
        assert of_key is None
        assert of_count is not None
        assert of_count[0] < n < of_count[1]


def test_the_identical_question_costs_nothing_and_has_the_same_answer(adult_policy: Path) -> None:
    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="bob") as bob,
    ):
        first, second = ann.cursor().execute(BY_SEX), bob.cursor().execute(BY_SEX)
        assert first.cost > 0
        assert second.cost == 0
        assert first.fetchall() == second.fetchall()
        assert first.cost == spent(ann)


def test_executemany_gives_the_rows_of_all_questions(cursor: noisegate.Cursor) -> None:
    cursor.executemany("SELECT ? AS v, count(*) FROM adult WHERE sex = ?", [("f", "Female"), ("m", "Male")])
    assert cursor.rowcount == 2
    assert [row[0] for row in cursor.fetchall()] == ["f", "m"]
    assert len(cursor.intervals) == 2
    cursor.executemany(COUNT, [])
    assert cursor.description is None


def test_sizes_may_be_set_and_mean_nothing(cursor: noisegate.Cursor) -> None:
    cursor.setinputsizes([25, None])
    cursor.setoutputsize(1000)
    cursor.setoutputsize(2000, 0)
    assert cursor.execute(BY_SEX).rowcount == 2


def test_settings_belong_to_their_connection(adult_policy: Path) -> None:
    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="ann") as other,
    ):
        ann.cursor().execute("SET noisegate.error = 25")
        [(own,)] = ann.cursor().execute("SHOW noisegate.error")
        [(others,)] = other.cursor().execute("SHOW noisegate.error")
        assert float(own) == 25
        assert float(others) == 50
