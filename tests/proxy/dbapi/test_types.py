"""The module has the globals, type objects and constructors of PEP 249."""

import datetime as dt
import subprocess
import sys

import pytest

import noisegate
from proxy import dbapi


def test_the_globals_of_pep_249_are_there() -> None:
    assert noisegate.apilevel == "2.0"
    assert noisegate.threadsafety == 2
    assert noisegate.paramstyle == "qmark"


def test_everything_that_is_exported_exists() -> None:
    assert [name for name in noisegate.__all__ if not hasattr(noisegate, name)] == []


def test_the_exceptions_form_the_tree_of_pep_249() -> None:
    assert issubclass(noisegate.Warning, Exception)
    assert issubclass(noisegate.Error, Exception)
    assert issubclass(noisegate.InterfaceError, noisegate.Error)
    assert issubclass(noisegate.DatabaseError, noisegate.Error)
    assert not issubclass(noisegate.InterfaceError, noisegate.DatabaseError)
    for name in ("DataError", "OperationalError", "IntegrityError", "InternalError", "ProgrammingError"):
        assert issubclass(getattr(noisegate, name), noisegate.DatabaseError)
    assert issubclass(noisegate.NotSupportedError, noisegate.DatabaseError)


@pytest.mark.parametrize("name", [name for name in noisegate.__all__ if name.endswith("Error") or name == "Warning"])
def test_the_exceptions_are_attributes_of_a_connection(name: str) -> None:
    assert getattr(noisegate.Connection, name) is getattr(noisegate, name)


def test_the_constructors_of_pep_249_make_values_of_the_standard_library() -> None:
    assert noisegate.Date(2002, 12, 25) == dt.date(2002, 12, 25)
    assert noisegate.Time(13, 45, 30) == dt.time(13, 45, 30)
    assert noisegate.Timestamp(2002, 12, 25, 13, 45, 30) == dt.datetime(2002, 12, 25, 13, 45, 30)
    assert noisegate.Binary(b"\x00'") == b"\x00'"


def test_ticks_are_local_time() -> None:
    moment = dt.datetime(2002, 12, 25, 13, 45, 30)
    ticks = moment.timestamp()
    assert noisegate.DateFromTicks(ticks) == moment.date()
    assert noisegate.TimeFromTicks(ticks) == moment.time()
    assert noisegate.TimestampFromTicks(ticks) == moment


@pytest.mark.parametrize(
    ("code", "equal"),
    [
        ("BIGINT", noisegate.NUMBER),
        ("DOUBLE", noisegate.NUMBER),
        ("DECIMAL(18,3)", noisegate.NUMBER),
        ("BOOLEAN", noisegate.NUMBER),
        ("VARCHAR", noisegate.STRING),
        ("UUID", noisegate.STRING),
        ("INTEGER[]", noisegate.STRING),
        ("STRUCT(a INTEGER)", noisegate.STRING),
        ("DATE", noisegate.DATETIME),
        ("TIMESTAMP", noisegate.DATETIME),
        ("TIMESTAMP WITH TIME ZONE", noisegate.DATETIME),
        ("BLOB", noisegate.BINARY),
    ],
)
def test_a_type_code_equals_exactly_one_type_object(code: str, equal: dbapi.TypeObject) -> None:
    kinds = (noisegate.STRING, noisegate.BINARY, noisegate.NUMBER, noisegate.DATETIME, noisegate.ROWID)
    assert [kind for kind in kinds if code == kind] == [equal]
    assert [kind for kind in kinds if kind == code] == [equal]
    assert len(set(kinds)) == len(kinds)


def test_an_import_loads_neither_the_planner_nor_what_it_computes_with() -> None:
    code = (
        "import sys, noisegate; heavy = {'numpy', 'scipy', 'duckdb', 'sqlglot', 'planner.session'}; "
        "assert not heavy & {*sys.modules}; noisegate.connect; assert heavy <= {*sys.modules}; "
        "assert noisegate.Cursor.__module__ == 'noisegate'; assert not hasattr(noisegate, 'disconnect')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
