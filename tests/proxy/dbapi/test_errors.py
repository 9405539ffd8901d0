"""Every refusal becomes an exception of PEP 249 with its state, hint and place."""

import inspect
import pickle

import pytest

import noisegate
from planner.basics import errors as refusals
from planner.basics.errors import Refusal
from proxy.errors import UNEXPECTED, from_refusal, pointer, translated
from tests.proxy.dbapi.questions import COUNT, spent


def refusal_classes() -> list[type[Refusal]]:
    found = [kind for _, kind in inspect.getmembers(refusals, inspect.isclass) if issubclass(kind, Refusal)]
    return [kind for kind in found if kind is not Refusal]


@pytest.mark.parametrize("kind", refusal_classes())
def test_every_refusal_has_a_class_of_pep_249(kind: type[Refusal]) -> None:
    error = from_refusal(kind("no"))
    assert type(error) not in (noisegate.Error, noisegate.DatabaseError, noisegate.InternalError)
    assert error.sqlstate == kind.sqlstate


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (refusals.SyntaxRefusal, noisegate.ProgrammingError),
        (refusals.Forbidden, noisegate.ProgrammingError),
        (refusals.Unsupported, noisegate.NotSupportedError),
        (refusals.BadValue, noisegate.DataError),
        (refusals.TooLarge, noisegate.OperationalError),
        (refusals.BudgetExceeded, noisegate.OperationalError),
        (refusals.LedgerFailed, noisegate.OperationalError),
        (Refusal, noisegate.InternalError),
    ],
)
def test_a_refusal_becomes_the_class_of_its_sqlstate(refusal: type[Refusal], kind: type[Exception]) -> None:
    assert type(from_refusal(refusal("no"))) is kind


def test_an_error_tells_state_hint_and_place(cursor: noisegate.Cursor) -> None:
    sql = "SELECT count(*) FROM nobody"
    with pytest.raises(noisegate.ProgrammingError) as caught:
        cursor.execute(sql)
    error = caught.value
    assert error.sqlstate == "42P01"
    assert error.span is not None
    assert sql[error.span[0] : error.span[1] + 1] == "nobody"
    assert error.position == sql.index("nobody") + 1
    assert isinstance(error.__cause__, refusals.UnknownTable)
    notes = "\n".join(error.__notes__)
    assert f"LINE 1: {sql}\n{' ' * (8 + sql.index('nobody'))}^^^^^^" in notes
    if error.hint:
        assert f"hint: {error.hint}" in notes


def test_single_rows_are_refused_and_nothing_is_spent(connection: noisegate.Connection) -> None:
    before = spent(connection)
    with pytest.raises(noisegate.ProgrammingError) as caught:
        connection.cursor().execute("SELECT * FROM adult LIMIT 5")
    assert caught.value.sqlstate == "42501"
    assert spent(connection) == before


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(from_refusal(refusals.BadValue("no", hint="yes", span=(1, 2)))))
    assert (type(error), str(error), error.hint, error.position) == (noisegate.DataError, "no", "yes", 2)


def test_an_exception_of_ours_becomes_an_internal_error_without_its_text(
    connection: noisegate.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("x = [1, 2, 3]")

    monkeypatch.setattr(connection._session, "execute", broken)
    with pytest.raises(noisegate.InternalError) as caught:
        connection.cursor().execute(COUNT)
    assert str(caught.value) == UNEXPECTED
    assert caught.value.sqlstate == "XX000"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_interrupt_is_not_an_error_of_the_gate() -> None:
    with pytest.raises(KeyboardInterrupt), translated():
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("sql", "span", "lines"),
    [
        ("SELECT 1", None, []),
        (None, (0, 1), []),
        ("SELECT 1", (8, 9), []),
        ("SELECT 1", (7, 7), ["LINE 1: SELECT 1", "               ^"]),
        ("SELECT\n\tabc,\n1", (8, 10), ["LINE 2:  abc,", "         ^^^"]),
        ("SELECT a\nb", (7, 9), ["LINE 1: SELECT a", "               ^"]),
        ("SELECT '中' x", (11, 11), ["LINE 1: SELECT '中' x", "                    ^"]),
        ("\x1b[2J x", (5, 5), ["LINE 1: \\x1b[2J x", "                ^"]),
    ],
)
def test_the_pointer_stands_below_the_piece(sql: str | None, span: tuple[int, int] | None, lines: list[str]) -> None:
    assert pointer(sql, span) == lines
