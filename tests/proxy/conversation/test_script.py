"""The statements around questions are read as PostgreSQL reads them; what is no such statement is left to the gate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.errors import Forbidden, Refusal
from planner.sql.statement import spaced
from proxy.conversation.script import read_script
from proxy.conversation.statements import (
    Ask,
    Begin,
    CloseCursor,
    Copy,
    Deallocate,
    Declare,
    Discard,
    End,
    Fetch,
    Reset,
    Savepoint,
    SetTo,
    Show,
    Statement,
    Unlisten,
    query_of,
)

READ: dict[str, Statement] = {
    "SET noisegate.error = 25": SetTo("noisegate.error", "25"),
    "set noisegate.error to '2%'": SetTo("noisegate.error", "2%"),
    "SET LOCAL a.b TO DEFAULT": SetTo("a.b", None, local=True),
    "SET SESSION extra_float_digits = -3": SetTo("extra_float_digits", "-3"),
    "SET DateStyle = ISO, MDY": SetTo("datestyle", "ISO, MDY"),
    "SET TIME ZONE 'Europe/Bern'": SetTo("timezone", "Europe/Bern"),
    "SET NAMES 'UTF8'": SetTo("client_encoding", "UTF8"),
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": SetTo("default_transaction_read_only", "on"),
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY": SetTo("transaction_isolation", "repeatable read"),
    "SHOW transaction isolation level": Show("transaction_isolation"),
    "SHOW ALL": Show("all"),
    "SHOW noisegate.error": Show("noisegate.error"),
    "RESET ALL": Reset(None),
    "RESET TIME ZONE": Reset("timezone"),
    "BEGIN ISOLATION LEVEL SERIALIZABLE": Begin(modes=(SetTo("transaction_isolation", "serializable"),)),
    "START TRANSACTION READ WRITE": Begin("START TRANSACTION", (SetTo("transaction_read_only", "off"),)),
    "END": End(commit=True),
    "COMMIT AND CHAIN": End(commit=True, chain=True),
    "ABORT": End(commit=False),
    "ROLLBACK WORK AND NO CHAIN": End(commit=False),
    "SAVEPOINT one": Savepoint("SAVEPOINT", "one"),
    'RELEASE SAVEPOINT "One"': Savepoint("RELEASE", "One"),
    "ROLLBACK TO one": Savepoint("ROLLBACK", "one"),
    "FETCH c": Fetch("c"),
    "FETCH NEXT FROM c": Fetch("c"),
    "FETCH -3 IN c": Fetch("c", count=-3),
    "FETCH ALL IN c": Fetch("c", count=None),
    "FETCH BACKWARD 2 FROM c": Fetch("c", "backward", 2),
    "MOVE ABSOLUTE 5 IN c": Fetch("c", "absolute", 5, move=True),
    "FETCH LAST FROM c": Fetch("c", "absolute", -1),
    "CLOSE ALL": CloseCursor(None),
    'CLOSE "C"': CloseCursor("C"),
    "DEALLOCATE PREPARE p": Deallocate("p"),
    "DEALLOCATE ALL": Deallocate(None),
    "DISCARD ALL": Discard("ALL"),
    "UNLISTEN *": Unlisten(),
    "DECLARE c CURSOR FOR SELECT 1": Declare("c", Ask(" " * 21 + "SELECT 1")),
    'DECLARE "C" BINARY NO SCROLL CURSOR WITH HOLD FOR SELECT 1': Declare(
        "C", Ask(" " * 50 + "SELECT 1"), binary=True, hold=True, forward_only=True
    ),
    "COPY (SELECT ')') TO STDOUT": Copy(query=Ask("      SELECT ')'")),
    "COPY (SELECT 1) TO STDOUT WITH (FORMAT csv, HEADER, NULL 'x', FORCE_QUOTE (a, b))": Copy(
        query=Ask("      SELECT 1"), format="csv", delimiter=",", null="x", header=True, force_quote=("a", "b")
    ),
    "COPY (SELECT 1) TO STDOUT (FORMAT binary)": Copy(query=Ask("      SELECT 1"), format="binary"),
    "COPY (SELECT 1) TO STDOUT CSV HEADER DELIMITER ';'": Copy(
        query=Ask("      SELECT 1"), format="csv", delimiter=";", null="", header=True
    ),
    "SELECT count(*) FROM people": Ask("SELECT count(*) FROM people"),
    "/* why */ SELECT 1 -- not": Ask("          SELECT 1"),
    "DROP TABLE people": Ask("DROP TABLE people"),
}  # fmt: skip


@pytest.mark.parametrize("sql", READ)
def test_a_statement_is_read(sql: str) -> None:
    assert read_script(sql) == [READ[sql]]


def test_several_statements_keep_their_places_in_the_text() -> None:
    sql = "BEGIN; SELECT ';' ;; select 2; "
    first, second, third = read_script(sql)
    assert first == Begin()
    assert second == Ask("       SELECT ';'")
    assert third == Ask(" " * 21 + "select 2")


def test_nothing_but_blanks_and_comments_is_no_statement() -> None:
    assert read_script(" ; -- nothing\n ;") == []


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("COPY people TO STDOUT", "42501"),
        ("COPY (SELECT 1) TO '/tmp/x'", "42501"),
        ("COPY (SELECT 1) FROM STDIN", "42501"),
        ("COPY (SELECT 1) TO STDOUT (FORMAT xml)", "22023"),
        ("COPY (SELECT 1) TO STDOUT (DELIMITER 'ab')", "22023"),
        ("COPY (SELECT 1 TO STDOUT", "42601"),
        ("COPY (SELECT 1) TO STDOUT (COMPRESS)", "42601"),
        ("FETCH 1 FROM", "42601"),
        ("DECLARE c CURSOR", "42601"),
        ("DECLARE c QUICK CURSOR FOR SELECT 1", "42601"),
        ("SET", "42601"),
        ("SET x", "42601"),
        ("COMMIT PREPARED 'x'", "0A000"),
        ("ROLLBACK TO", "42601"),
        ("SELECT 'open", "42601"),
        ("DISCARD EVERYTHING", "42601"),
    ],
)
def test_what_is_wrong_is_refused(sql: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_script(sql)
    assert refused.value.sqlstate == sqlstate


def test_a_copy_of_a_table_is_pointed_at() -> None:
    with pytest.raises(Forbidden) as refused:
        read_script("SELECT 1; COPY people TO STDOUT")
    assert refused.value.span == (10, 13)


def test_the_question_inside_a_statement_is_found() -> None:
    assert query_of(READ["COPY (SELECT 1) TO STDOUT (FORMAT binary)"]) == Ask("      SELECT 1")
    assert query_of(Begin()) is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT $1,$2", "SELECT $1 ,$2"),
        ("x IN ($1,$2,$3)", "x IN ($1 ,$2 ,$3)"),
        ("SELECT '$1,$2', $3", "SELECT '$1,$2', $3"),
        ("SELECT $$a $1,$2$$, $3", "SELECT $$a $1,$2$$, $3"),
        ("SELECT $a$ '$1,$2 $a$, $3,$4", "SELECT $a$ '$1,$2 $a$, $3 ,$4"),
        ("SELECT a$1,b$2", "SELECT a$1,b$2"),
        ("SELECT 1 -- $1,$2\n, $3", "SELECT 1 -- $1,$2\n, $3"),
        ("SELECT E'\\'$1,$2', $3", "SELECT E'\\'$1,$2', $3"),
    ],
)
def test_a_blank_goes_only_behind_parameters_that_would_be_misread(sql: str, expected: str) -> None:
    text, places = spaced(sql)
    assert text == expected
    assert "".join(letter for i, letter in enumerate(text) if i not in places) == sql


@given(st.text(st.sampled_from("$12,ab '\"-/*\nE\\"), max_size=40))
def test_blanks_never_change_more_than_that(sql: str) -> None:
    text, places = spaced(sql)
    assert "".join(letter for i, letter in enumerate(text) if i not in places) == sql


@pytest.mark.parametrize("piece", ["1", "$1a", "$1 ", "E'", "$a$", "/*", "\\", "'"])
def test_a_long_text_takes_no_longer_than_its_length(piece: str) -> None:
    """A blow-up would not end within the life of a test run."""
    spaced("$" + piece * 100_000)
    spaced("E'$1,$2" + piece * 100_000 + "\\")


@given(st.text(max_size=60) | st.lists(st.sampled_from(" ".join(READ).split()), max_size=8).map(" ".join))
def test_any_text_is_statements_or_a_refusal(sql: str) -> None:
    try:
        read_script(sql)
    except Refusal as refusal:
        assert refusal.message  # noqa: PT017 - both ends are right
