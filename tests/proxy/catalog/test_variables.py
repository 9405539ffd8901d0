"""Settings of PostgreSQL's hold what clients set, refuse what would not be true, and go back to what they were."""

from __future__ import annotations

import pytest

from planner.basics.errors import Refusal
from proxy.catalog.variables import NOTICES, VARIABLES, Variables, shown_name


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("extra_float_digits", "3", "3"),
        ("client_encoding", "utf-8", "UTF8"),
        ("DateStyle", "iso", "ISO, MDY"),
        ("datestyle", "ISO, DMY", "ISO, DMY"),
        ("statement_timeout", "1500", "1500ms"),
        ("statement_timeout", "60s", "1min"),
        ("idle_session_timeout", "2h", "2h"),
        ("lock_timeout", "0", "0"),
        ("standard_conforming_strings", "ON", "on"),
        (NOTICES, "true", "on"),
        ("application_name", "psql", "psql"),
        ("my.own", "anything", "anything"),
    ],
)
def test_a_value_is_kept_as_postgresql_shows_it(name: str, value: str, shown: str) -> None:
    assert Variables().with_value(name, value).show(name) == shown


@pytest.mark.parametrize(
    ("name", "value", "sqlstate"),
    [
        ("client_encoding", "LATIN1", "22023"),
        ("DateStyle", "German", "22023"),
        ("standard_conforming_strings", "off", "22023"),
        ("IntervalStyle", "iso_8601", "22023"),
        ("server_version", "9", "55P02"),
        ("is_superuser", "on", "55P02"),
        ("role", "bob", "42501"),
        ("session_authorization", "bob", "42501"),
        ("extra_float_digits", "99", "22023"),
        ("statement_timeout", "soon", "22023"),
        ("jit", "maybe", "22023"),
        ("no_such_setting", "1", "42704"),
    ],
)
def test_a_value_that_would_not_be_true_is_refused(name: str, value: str, sqlstate: str) -> None:
    with pytest.raises(Refusal) as refused:
        Variables().with_value(name, value)
    assert refused.value.sqlstate == sqlstate


def test_reset_goes_back_to_what_the_client_started_with() -> None:
    variables = Variables().started_with("application_name", "etl").with_value("application_name", "other")
    assert variables.show("application_name") == "other"
    assert variables.reset("application_name").show("application_name") == "etl"
    assert variables.reset(None).show("application_name") == "etl"
    assert variables.with_value("application_name", None).show("application_name") == "etl"


def test_every_default_is_shown_and_durations_are_seconds() -> None:
    variables = Variables()
    assert all(isinstance(variables.show(name), str) for name in variables)
    assert variables.with_value("statement_timeout", "1500").seconds("statement_timeout") == 1.5
    assert variables.seconds("statement_timeout") == 0


def test_every_default_passes_its_own_check_unless_it_is_fixed() -> None:
    for name, variable in VARIABLES.items():
        try:
            shown = Variables().with_value(name, variable.default).show(name)
        except Refusal as refusal:
            assert refusal.sqlstate in ("42501", "55P02"), name  # noqa: PT017 - fixed ones refuse even this
        else:
            assert shown == variable.default


def test_what_clients_must_know_is_reported() -> None:
    reported = Variables().reported()
    assert {"server_version", "client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings"} <= set(
        reported
    )


def test_names_are_shown_as_postgresql_writes_them() -> None:
    assert shown_name("timezone") == "TimeZone"
    assert shown_name("my.own") == "my.own"


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match='unrecognized configuration parameter "nope"'):
        Variables().show("nope")
