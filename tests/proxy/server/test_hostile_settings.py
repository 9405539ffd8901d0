"""Settings and numbers that somebody sends to do harm: refused, or kept as said; no charge grows by them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.plans.settings import names
from proxy.catalog.variables import VARIABLES
from proxy.limits import MAX_SETTINGS_TEXT
from proxy.server.shared import policy_catalog
from proxy.wire import messages as m
from tests.proxy.raw import RawClient, Reply, kinds, raw
from tests.proxy.servers import Running, running

LIMIT = 20.0


@pytest.fixture(scope="module")
def server(shared_adult_policy: Path) -> Iterator[Running]:
    with running(shared_adult_policy, catalog=policy_catalog, statement_timeout=LIMIT) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[RawClient]:
    with raw(server.port) as found:
        found.login()
        yield found
        assert "error:" not in server.log.getvalue()


def state(replies: list[Reply]) -> str:
    """Return the SQLSTATE of an answer; 00000 without an error."""
    assert replies, "the connection was ended"
    return next((reply.fields["C"] for reply in replies if reply.kind == "E"), "00000")


def cell(client: RawClient, sql: str) -> str | None:
    [row] = [reply for reply in client.ask(m.Query(sql)) if reply.kind == "D"]
    return None if row.cells[0] is None else row.cells[0].decode()


NONSENSE = [
    "''", "'x'", "-1", "0", "1", "1e308", "1e-308", "'NaN'", "'inf'", "'-inf'", "'²'", "'٣'", "'1_000'", "1e18", "1e-9",
    f"'{'9' * 5000}'", "9" * 5000, "'0.9999999999999999'", "'1e-9%'", "'%'", "'\u202e'", "'\t\n'", '"a ""name"""',
    "'it''s'",    "E'\\\\x00'", "$$a$$", "a, b, 'c'", "DEFAULT", "TRUE", "- 1", "+ + 1", f"'{'x' * 200_000}'", "'1us'",
    "'9999999999d'", "'🙂'", "NULL", "(1)", "1 2 3", "'1/3'", "0x10", "'5e-324'", "$9999999999999999999999", "$²",
]  # fmt: skip
ASKED = ("SELECT 1", "EXPLAIN SELECT sex, count(*) FROM adult GROUP BY sex", "EXPLAIN SELECT sum(age) FROM adult")


@pytest.mark.parametrize("form", ["SET {} = {}", "BEGIN; SET LOCAL {} TO {}; ROLLBACK"])
def test_nonsense_in_any_setting_is_refused_or_harmless(client: RawClient, form: str) -> None:
    for name, value in itertools.product([*VARIABLES, *names(), "noisegate.nope", "my.own"], NONSENSE):
        at_once = "; RESET ALL" if name.startswith("idle") else ""  # or the session ends, as it should
        found = state(client.ask(m.Query(form.format(name, value) + at_once)))
        assert found in ("00000", "22023", "42601", "42704", "42501", "0A000", "55P02", "54000", "42P02"), (name, value)
        if found == "00000" and (name.startswith("noisegate.") or name == "statement_timeout"):
            for sql in ASKED:
                assert state(client.ask(m.Query(sql))) in ("00000", "22023", "54000", "57014"), (name, value, sql)
        client.ask(m.Query("ROLLBACK; RESET ALL"))


DIGITS = ("²", "①", "٣", "9" * 5000, "1" * 30, "9999999999")
QUOTED = [
    f"SELECT '{{}}'::{kind}" for kind in ("regclass", "regtype", "regrole", "regnamespace", "regproc", "oid", "int")
]
NUMBERED = [
    "SELECT {}", "SELECT ${}", "SELECT 1 LIMIT {}", "SELECT '1'::varchar({})", "SELECT '1'::numeric({}, {})",
    "SELECT relname FROM pg_class ORDER BY {}", "SELECT sex, count(*) FROM adult GROUP BY {}", "FETCH {} FROM c",
    "EXPLAIN SELECT count(*) FROM adult WHERE age > {}", "EXPLAIN SELECT sex, count(*) FROM adult GROUP BY 1 LIMIT {}",
    "SELECT format_type({}, {})", "SELECT has_table_privilege('{}', 'adult', 'SELECT')",
    "SELECT pg_has_role('{}', 'USAGE')",
]  # fmt: skip


@pytest.mark.parametrize("digits", DIGITS, ids=[digits[:10] for digits in DIGITS])
def test_numbers_that_are_none_or_have_no_end_are_refused(client: RawClient, digits: str) -> None:
    """SELECT $9999999999 made a list of as many types, until memory ran out."""
    for text in (sql.replace("{}", digits) for sql in QUOTED + NUMBERED):
        batch = (m.Parse("", text), m.Describe(m.STATEMENT, ""), m.Bind("", "", (), (), ()), m.Execute("", 0), m.Sync())
        for replies in (client.ask(m.Query(text)), client.ask(*batch)):
            assert state(replies) != "XX000", text[:80]


@pytest.mark.parametrize(
    "function",
    ["set_config", "array_upper", "array_length", "current_setting", "pg_typeof", "generate_subscripts", "array_lower",
     "has_column_privilege", "_pg_expandarray", "array_remove", "array_to_string", "generate_series"],
)  # fmt: skip
def test_a_function_without_its_arguments_is_refused(client: RawClient, function: str) -> None:
    for arguments in ("", "'a'"):
        assert state(client.ask(m.Query(f"SELECT {function}({arguments})"))) != "XX000"


# --- settings that say what may be spent ---------------------------------------------------------------------

QUESTION = "SELECT workclass, count(*) FROM adult GROUP BY workclass"
CAPPED = "54P01"


@pytest.mark.parametrize(
    "parameters",
    [
        {"noisegate.max_rho": "1e-9"},
        {"Noisegate.MAX_RHO": "1e-9"},
        {"options": "-c noisegate.max_rho=1e-9"},
        {"options": "--NOISEGATE.max-rho=1e-9"},
    ],
)
def test_a_cap_from_the_startup_message_holds_in_any_spelling(server: Running, parameters: dict[str, str]) -> None:
    with raw(server.port) as client:
        client.login(**parameters)
        assert cell(client, "SHOW noisegate.max_rho") == "1e-09"
        assert state(client.ask(m.Query(QUESTION))) == CAPPED


def test_a_cap_set_after_a_local_setting_outlives_the_transaction(client: RawClient) -> None:
    client.ask(m.Query("BEGIN; SET LOCAL application_name = 'x'; SET noisegate.max_rho = 1e-9; COMMIT"))
    assert cell(client, "SHOW noisegate.max_rho") == "1e-09"
    assert cell(client, "SHOW application_name") == ""
    assert state(client.ask(m.Query(QUESTION))) == CAPPED


@pytest.mark.parametrize(
    ("statements", "error"),
    [
        ("BEGIN; SET LOCAL noisegate.error = 1; SET noisegate.error = 2; COMMIT", "2"),
        ("BEGIN; SET noisegate.error = 2; SET LOCAL noisegate.error = 1; COMMIT", "2"),
        ("BEGIN; SET LOCAL noisegate.error = 1; SAVEPOINT s; SET noisegate.error = 2; ROLLBACK TO s; COMMIT", "7"),
        ("BEGIN; SAVEPOINT s; SET LOCAL noisegate.error = 1; ROLLBACK TO s; SET noisegate.error = 2; COMMIT", "2"),
        ("BEGIN; SET LOCAL noisegate.error = 1; SET noisegate.error = 2; ROLLBACK", "7"),
        ("BEGIN; SET noisegate.error = 2; SET LOCAL application_name = x; RESET noisegate.error; COMMIT", "25"),
    ],
)
def test_settings_come_and_go_with_transactions_as_in_postgresql(
    client: RawClient, statements: str, error: str
) -> None:
    default = cell(client, "SHOW noisegate.error")
    client.ask(m.Query("SET noisegate.error = 7"))
    client.ask(m.Query(statements))
    assert cell(client, "SHOW noisegate.error") == (default if "RESET" in statements else error)


@pytest.mark.parametrize("name", ["'noisegate.max_rho'", "'NoiseGate.rho'", "'statement_timeout'", "lower('X')", "$1"])
def test_set_config_does_not_pretend_to_set_what_counts(client: RawClient, name: str) -> None:
    before = cell(client, "SHOW noisegate.max_rho"), cell(client, "SHOW statement_timeout")
    assert state(client.ask(m.Query(f"SELECT set_config({name}, '5', false)"))) in ("0A000", "42601")
    assert (cell(client, "SHOW noisegate.max_rho"), cell(client, "SHOW statement_timeout")) == before
    assert cell(client, "SELECT set_config('search_path', '', false)") == ""


@pytest.mark.parametrize("parameters", [{}, {"statement_timeout": "0"}, {"options": "-c statement_timeout=24d"}])
def test_nobody_lifts_the_time_limit_of_the_policy(adult_policy: Path, parameters: dict[str, str]) -> None:
    endless = "SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"
    with running(adult_policy, statement_timeout=0.2) as server, raw(server.port) as client:
        client.login(**parameters)
        for sql in ("", "SET statement_timeout = 0; ", "BEGIN; SET LOCAL statement_timeout = '1h'; "):
            assert state(client.ask(m.Query(sql))) == "00000"
            assert state(client.ask(m.Query(endless))) == "57014"


def test_nobody_becomes_another_analyst_by_a_setting(server: Running) -> None:
    for name in ("role", "ROLE", "session_authorization", "Session_Authorization", "is_superuser", "USER"):
        with raw(server.port) as client:
            assert state(client.login(**{name: "bob"})) in ("42501", "55P02", "42704")
    with raw(server.port) as client:
        client.login()
        for sql in ("SET ROLE bob", "SET SESSION AUTHORIZATION 'bob'", "SET session_authorization = bob"):
            assert state(client.ask(m.Query(sql))) == "42501"
        assert cell(client, "SELECT current_user") == cell(client, "SELECT session_user") == "ann"


def test_what_is_remembered_of_settings_is_bounded(client: RawClient, server: Running) -> None:
    value = "x" * (MAX_SETTINGS_TEXT // 10)
    found = [state(client.ask(m.Query(f"SET my.v{number} = '{value}'"))) for number in range(20)]
    assert found == ["00000"] * 9 + ["54000"] * 11
    assert state(client.ask(m.Query("RESET my.v0"))) == state(client.ask(m.Query(f"SET my.w = '{value}'"))) == "00000"
    assert kinds(client.ask(m.Query("SHOW ALL"))).endswith("CZ")
