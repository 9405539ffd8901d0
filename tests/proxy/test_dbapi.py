"""The module is PEP 249 in full, binds parameters as values, and may be shared by threads as it declares."""

import datetime as dt
import inspect
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import noisegate
from planner.basics import errors as refusals
from planner.basics.errors import Refusal
from proxy import dbapi
from proxy.errors import UNEXPECTED, from_refusal, pointer, translated

COUNT = "SELECT count(*) FROM adult"
BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
PEOPLE = 32_561


@pytest.fixture(scope="module")
def connection(shared_adult_policy: Path) -> Iterator[noisegate.Connection]:
    with noisegate.connect(shared_adult_policy, analyst="ann") as connection:
        yield connection


@pytest.fixture
def cursor(connection: noisegate.Connection) -> Iterator[noisegate.Cursor]:
    with connection.cursor() as cursor:
        yield cursor


def spent(connection: noisegate.Connection) -> Fraction:
    cursor = connection.cursor().execute("SELECT rho_spent FROM noisegate.budget")
    [(rho,)] = cursor.fetchall()
    return Fraction(rho)


# --- the module --------------------------------------------------------------------------------------------


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


# --- connections -------------------------------------------------------------------------------------------


def test_with_closes_the_connection_and_its_cursors(adult_policy: Path) -> None:
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        cursor = connection.cursor()
    closed: list[Callable[[], object]] = [
        connection.cursor,
        connection.commit,
        connection.rollback,
        connection.__enter__,
        lambda: connection.explain(COUNT),
        lambda: cursor.execute(COUNT),
        lambda: cursor.executemany(COUNT, [()]),
        cursor.fetchone,
        cursor.fetchmany,
        cursor.fetchall,
        lambda: next(cursor),
        lambda: cursor.setinputsizes([]),
        lambda: cursor.setoutputsize(1),
    ]
    for use in closed:
        with pytest.raises(noisegate.InterfaceError, match="the connection is closed"):
            use()
    connection.close()  # a second time does no harm
    cursor.close()


def test_a_closed_cursor_is_refused_and_its_connection_is_not(connection: noisegate.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW noisegate.error")
    for use in (cursor.fetchone, cursor.fetchall, lambda: cursor.execute(COUNT), cursor.__enter__):
        with pytest.raises(noisegate.InterfaceError, match="the cursor is closed"):
            use()
    cursor.close()
    connection.cursor().execute("SHOW noisegate.error")


def test_commit_and_rollback_do_nothing(connection: noisegate.Connection) -> None:
    connection.cursor().execute(COUNT)
    before = spent(connection)
    connection.commit()
    connection.rollback()
    assert spent(connection) == before


def test_explain_spends_nothing_and_names_the_price(adult_policy: Path) -> None:
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        plan = connection.explain("SELECT count(*) FROM adult WHERE age = ?", [30])
        assert spent(connection) == 0
        cursor = connection.cursor().execute("SELECT count(*) FROM adult WHERE age = ?", [30])
        assert 0 < plan.rho == cursor.cost
        assert plan.path == "direct"
        assert list(plan.errors) == [column[0] for column in cursor.description or []]
        assert connection.explain("SELECT count(*) FROM adult WHERE age = ?", [30]).rho == 0


def test_connections_to_one_policy_share_a_gate_until_the_last_is_closed(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = [], []
    gate_open, gate_close = dbapi.Gate.open, dbapi.Gate.close

    def open_gate(path: Path) -> dbapi.Gate:
        opened.append(path)
        return gate_open(path)

    def close_gate(gate: dbapi.Gate) -> None:
        closed.append(gate)
        gate_close(gate)

    monkeypatch.setattr(dbapi.Gate, "open", open_gate)
    monkeypatch.setattr(dbapi.Gate, "close", close_gate)
    ann = noisegate.connect(adult_policy, analyst="ann")
    with noisegate.connect(adult_policy.parent / "." / adult_policy.name, analyst="bob"):
        assert len(opened) == 1
    assert closed == []
    ann.close()
    ann.close()
    assert len(closed) == 1
    noisegate.connect(adult_policy, analyst="ann").close()
    assert (len(opened), len(closed)) == (2, 2)


def test_a_failed_login_keeps_no_gate(adult_policy: Path) -> None:
    with pytest.raises(noisegate.OperationalError) as caught:
        noisegate.connect(adult_policy, analyst="mallory")
    assert caught.value.sqlstate == "28000"
    assert [path for _, path, _ in dbapi._gates._open if path == adult_policy.resolve()] == []


def test_the_analyst_may_be_left_out_only_where_there_is_one(policy_with: Callable[[str, str], Path]) -> None:
    policy = policy_with("[analysts.bob]\nshare = 0.4\n", "")
    with noisegate.connect(policy) as connection:
        connection.cursor().execute("SHOW noisegate.error")


def test_several_analysts_must_be_told_apart(adult_policy: Path) -> None:
    with pytest.raises(noisegate.OperationalError) as caught:
        noisegate.connect(adult_policy)
    assert caught.value.sqlstate == "28000"


def test_a_policy_with_mistakes_is_refused_with_all_of_them(policy_with: Callable[[str, str], Path]) -> None:
    policy = policy_with("epsilon = 2.0", "epsilon = -2.0\nfoo = 1")
    with pytest.raises(noisegate.ProgrammingError) as caught:
        noisegate.connect(policy, analyst="ann")
    assert caught.value.sqlstate == "F0000"
    assert len(str(caught.value).splitlines()) == 2
    assert isinstance(caught.value.__cause__, refusals.PolicyRefusal)


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="can't be read: no such file"):
        noisegate.connect(tmp_path / "none.toml")


def _use_in_child(connection: noisegate.Connection, answers: Any) -> None:
    try:
        connection.cursor()
    except noisegate.InterfaceError as error:
        answers.put(str(error))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_connection_does_not_survive_a_fork(connection: noisegate.Connection) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_use_in_child, args=(connection, answers))
    child.start()
    assert answers.get() == "the connection belongs to another process; connect again"
    child.join()


# --- cursors -----------------------------------------------------------------------------------------------


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


# --- parameters --------------------------------------------------------------------------------------------

HOSTILE = [
    "x' OR 1=1 --",
    "' OR ''='",
    "'; DROP TABLE adult; --",
    'quo"te',
    "back\\slash\\' OR 1=1 --",
    "100 % %s %(name)s",
    "? $1 :name",
    "/* comment */ -- comment",
    "$$ dollar $$",
    "new\nline\ttab\r",
    "☃ ' \u2019 \u02bc \uff07",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_the_value_it_is(cursor: noisegate.Cursor, text: str) -> None:
    assert cursor.execute("SELECT ? AS v", [text]).fetchall() == [(text,)]


@pytest.mark.parametrize("text", [*HOSTILE, "a\x00b", "\x00' OR 1=1 --"])
def test_hostile_text_never_widens_a_condition(cursor: noisegate.Cursor, text: str) -> None:
    """None of the texts is an education, so the count is 0, give or take 100 times its half-width of 50."""
    try:
        [(n,)] = cursor.execute("SELECT count(*) FROM adult WHERE education = ?", [text]).fetchall()
    except noisegate.DataError:
        assert "\x00" in text
    else:
        assert abs(n) < 5_000


@pytest.mark.parametrize(
    "value",
    [
        0,
        -7,
        2**62,
        0.1,
        -1e-300,
        1e300,
        True,
        False,
        None,
        Decimal("-12.50"),
        dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_went_in(cursor: noisegate.Cursor, value: object) -> None:
    [(found,)] = cursor.execute("SELECT ? AS v", [value]).fetchall()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT ? AS a, ? AS b", (1, "x")),
        ("SELECT $1 AS a, $2 AS b", [1, "x"]),
        ("SELECT $2::INT AS a, $1 AS b", ["x", 1]),
        ("SELECT %s AS a, %s AS b", (1, "x")),
        ("SELECT :one AS a, :two AS b", {"one": 1, "two": "x"}),
        ("SELECT %(one)s AS a, %(two)s AS b", {"one": 1, "two": "x"}),
    ],
)
def test_every_style_of_placeholders_is_bound(cursor: noisegate.Cursor, sql: str, parameters: dbapi.Parameters) -> None:
    assert cursor.execute(sql, parameters).fetchall() == [(1, "x")]


def test_a_list_can_be_bound_to_in(cursor: noisegate.Cursor) -> None:
    sql = "SELECT count(*) FROM adult WHERE education IN ?"
    [(n,)] = cursor.execute(sql, [("x' OR 1=1 --", "Doctorate")]).fetchall()
    assert abs(n - 413) < 5_000


def test_a_negative_number_binds_tighter_than_any_operator(cursor: noisegate.Cursor) -> None:
    assert cursor.execute("SELECT 5 -? AS a, -? AS b", [-3, -4]).fetchall() == [(8, 4)]


@pytest.mark.parametrize("parameters", ["x", b"x", {"x"}, 5, iter([1])])
def test_parameters_must_be_a_sequence_or_a_mapping(cursor: noisegate.Cursor, parameters: Any) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="parameters must be a sequence or a mapping"):
        cursor.execute("SELECT ? AS v", parameters)


@pytest.mark.parametrize("parameters", [None, [], [1, 2, 3], {"a": 1}], ids=repr)
def test_a_wrong_number_of_parameters_is_refused(cursor: noisegate.Cursor, parameters: dbapi.Parameters) -> None:
    with pytest.raises(noisegate.DatabaseError, match="parameter"):
        cursor.execute("SELECT ? AS a, ? AS b", parameters)


@pytest.mark.parametrize("value", [object(), b"bytes", 1j])
def test_a_value_of_an_unknown_type_is_refused(cursor: noisegate.Cursor, value: object) -> None:
    with pytest.raises(noisegate.DataError, match="can't be used"):
        cursor.execute("SELECT ? AS v", [value])


def test_sql_must_be_text(cursor: noisegate.Cursor) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="SQL must be text, got bytes"):
        cursor.execute(b"SELECT 1")  # type: ignore[arg-type]


# --- errors ------------------------------------------------------------------------------------------------


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


# --- threads -----------------------------------------------------------------------------------------------


def test_threads_share_a_connection(adult_policy: Path) -> None:
    ages = range(20, 36)
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        connection.cursor().execute("SET noisegate.error = 500")

        def ask(age: int) -> tuple[int, int]:
            with connection.cursor() as cursor:
                cursor.execute("SELECT ? AS age, count(*) FROM adult WHERE age = ?", (age, age))
                [row] = cursor.fetchall()
            return row

        with ThreadPoolExecutor(8) as threads:
            answers = dict(threads.map(ask, ages))
        assert list(answers) == list(ages)
        again = dict(map(ask, ages))
        assert answers == again


def test_threads_with_the_same_question_pay_once(adult_policy: Path) -> None:
    start = threading.Barrier(6)

    def ask(connection: noisegate.Connection) -> tuple[Fraction, list[Any]]:
        with connection.cursor() as cursor:
            start.wait()
            return cursor.execute(BY_SEX).cost, cursor.fetchall()

    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="bob") as bob,
        ThreadPoolExecutor(6) as threads,
    ):
        outcomes = list(threads.map(ask, [ann, bob] * 3))
        costs = [cost for cost, _ in outcomes]
        assert sum(cost > 0 for cost in costs) == 1
        assert sum(costs) == spent(ann)
        assert all(rows == outcomes[0][1] for _, rows in outcomes)


def test_closing_waits_for_the_question_of_another_thread(adult_policy: Path) -> None:
    connection = noisegate.connect(adult_policy, analyst="ann")
    entered, leave = threading.Event(), threading.Event()
    execute = connection._session.execute

    def slow(*arguments: Any, **options: Any) -> Any:
        entered.set()
        leave.wait(10)
        return execute(*arguments, **options)

    connection._session.execute = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(lambda: connection.cursor().execute(COUNT).rowcount)
        entered.wait(10)
        closing = threads.submit(connection.close)
        leave.set()
        assert answer.result() == 1
        closing.result()
    with pytest.raises(noisegate.InterfaceError):
        connection.cursor()
