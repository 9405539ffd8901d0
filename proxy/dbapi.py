"""The gate in process, as PEP 249 (DB-API 2.0) has it.

Beyond PEP 249: `Cursor.intervals`, `Cursor.cost`, `Connection.explain`, `Connection.choose`, and for rounds
`Connection.enlist`, `Connection.withdraw` and `Connection.release`. `pandas.read_sql` and `polars.read_database` take
a connection as it is; pandas warns, as about every connection that is neither SQLAlchemy's nor sqlite3's, that it does
not test these.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from planner.calls.call import written
from planner.calls.choose import choose
from planner.calls.rounds import rounds
from planner.calls.verify import verify
from planner.calls.verify.decisions import AUTO
from planner.gate import Gate
from planner.plans.explain import Explanation
from planner.plans.result import Interval, OutputColumn, Result
from planner.session import Session
from planner.sql.statement import Parameters
from proxy import errors
from proxy.errors import InterfaceError, ProgrammingError, translated

apilevel = "2.0"
threadsafety = 2
"""Threads may share the module and connections, but not cursors."""
paramstyle = "qmark"
"""The gate also reads `$1`, `%s`, `:name` and `%(name)s`; in each style values are bound, never spliced."""

POLICY = "noisegate.toml"

Row = tuple[Any, ...]  # Any: a row has values of every type
Description = tuple[str, str, None, None, int | None, int | None, bool | None]
T = TypeVar("T")


# --- types -------------------------------------------------------------------------------------------------

_NUMBERS = (
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT BIGNUM "
    "FLOAT DOUBLE DECIMAL BOOLEAN"
)
_TIMES = "DATE TIME TIMETZ TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS INTERVAL"
_KINDS = {
    **dict.fromkeys(_NUMBERS.split(), "NUMBER"),
    **dict.fromkeys(_TIMES.split(), "DATETIME"),
    **dict.fromkeys(("BLOB", "BIT"), "BINARY"),
}


class TypeObject:
    """What a `type_code` of `Cursor.description` compares equal to; the codes are DuckDB's names of types.

    >>> ("BIGINT" == NUMBER, "DECIMAL(18,3)" == NUMBER, "VARCHAR" == NUMBER)
    (True, True, False)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and _kind(other) == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


def _kind(type_name: str) -> str:
    """Return the type object's name; every type belongs to one, and what is nothing else is text."""
    if type_name.endswith("]"):
        return "STRING"
    base = re.split(r"[( ]", type_name, maxsplit=1)[0]  # DECIMAL(18,3), TIMESTAMP WITH TIME ZONE
    return _KINDS.get(base.upper(), "STRING")


STRING = TypeObject("STRING")
BINARY = TypeObject("BINARY")
NUMBER = TypeObject("NUMBER")
DATETIME = TypeObject("DATETIME")
ROWID = TypeObject("ROWID")  # no column has it: rows are never shown

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local date of a number of seconds since the epoch."""
    return Date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of a number of seconds since the epoch."""
    return Time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local date and time of a number of seconds since the epoch."""
    return Timestamp(*time.localtime(ticks)[:6])


# --- gates, shared by the connections of a process ---------------------------------------------------------

_Key = tuple[int, Path, bytes]


class _Gates:
    """The open gates: one for each policy file and content, closed with its last connection.

    A fork gets gates of its own: neither SQLite nor a random generator may be shared with a child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[_Key, tuple[Gate, int]] = {}

    def take(self, policy: Path) -> tuple[_Key, Gate]:
        key = (os.getpid(), policy.resolve(), _content(policy))
        with self._lock:
            gate, users = self._open[key] if key in self._open else (Gate.open(policy), 0)
            self._open[key] = gate, users + 1
        return key, gate

    def give_back(self, key: _Key) -> None:
        with self._lock:
            gate, users = self._open.pop(key)
            if users > 1:
                self._open[key] = gate, users - 1
            else:
                gate.close()


def _content(policy: Path) -> bytes:
    try:
        return policy.read_bytes()
    except OSError:
        return b""  # opening the gate says what is wrong


_gates = _Gates()


# --- connections -------------------------------------------------------------------------------------------


def connect(policy: str | os.PathLike[str] = POLICY, analyst: str | None = None) -> Connection:
    """Return a connection to the gate that a policy file declares.

    Connections of one process to the same policy share a gate, and with it what was read from the sources.

    Args:
        policy: path of the policy file.
        analyst: who asks; may be left out where the policy has one analyst only.
    """
    with translated():
        key, gate = _gates.take(Path(policy))
        try:
            session = gate.session(analyst)
        except BaseException:
            _gates.give_back(key)
            raise
    return Connection(session, give_back=lambda: _gates.give_back(key))


class Connection:
    """One analyst's conversation with the gate. Threads may share it: their questions queue."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: Session, *, give_back: Callable[[], None]) -> None:
        self._session = session
        self._give_back = give_back
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self._check()
        return Cursor(self)

    def explain(self, sql: str, parameters: Parameters = None) -> Explanation:
        """Return what the question would cost and how exact its answer would be; spends nothing."""
        return self._ask(lambda session: session.explain(sql, _checked(parameters)), sql)

    def choose(
        self,
        sqls: Sequence[str],
        *,
        snr: float = choose.SNR,
        fraction: float = choose.FRACTION,
        rho: float | Fraction | None = None,
        rule: str | None = None,
        deviations: float = choose.DEVIATIONS,
        stop: bool = True,
        weights: Sequence[float] | None = None,
        look: bool = False,
        take: int | None = None,
    ) -> choose.Choice:
        """Return which of several analyses the data support; pays for the one that is taken and for nothing else.

        The same as SELECT * FROM noisegate.choose(…). Afterwards the plain SELECT of that analysis is free.

        Args:
            sqls: the analyses, each a SELECT of counts, sums or averages of the same table.
            snr: the signal-to-noise ratio that groups should have.
            fraction: in which part of the groups.
            rho: the cost of each analysis; None for what the session's settings give a plain SELECT.
            rule: "nested" or "general"; None for nested where each analysis follows from the next finer one.
            deviations: how many standard deviations a ratio must be clear of `snr`; 0 goes by the estimate.
            stop: take nothing if no analysis can be good enough; False takes the best of them even so.
            weights: general rule; what each analysis is worth to you.
            look: tell how good each would be and what it would still cost, and take nothing.
            take: the index of an analysis to take, counted from 0, whatever a rule would say.
        """
        options = {"deviations": deviations, "stop": stop, "weights": weights, "look": look}
        number = None if take is None else take + 1  # in SQL they are counted from 1
        result = self._call("choose", sqls, snr=snr, fraction=fraction, rho=rho, rule=rule, **options, take=number)
        return choose.Choice.of(result.rows, result.cost)

    def verify(
        self,
        sql: str,
        *,
        tau: float | str,
        epsilon: float,
        decider: str = AUTO,
        delta: float = verify.DELTA,
        explain: bool = False,
    ) -> verify.Verification:
        """Return whether the answer of a query on a synthetic table is within tau of the true one, group by group.

        The same as SELECT * FROM noisegate.verify(…). The same decision asked again is free, and the same.

        Args:
            sql: a SELECT of one count, sum, average or quantile of a synthetic table, plain or by groups.
            tau: how far the truth may be away: a number, or a text such as "5%" for a part of the synthetic answer.
            epsilon: how much each decision may tell of a person.
            decider: by which mechanism: "LM", "EM", "R2T", "SVT" or "HIST", or in full, such as "EM_count"; "auto" for
                the one that tells the smallest gaps.
            delta: the error at which `effective_tau` is told.
            explain: tell everything but the decision, and spend nothing.
        """
        result = self._call("verify", sql, tau=tau, epsilon=epsilon, decider=decider, delta=delta, explain=explain)
        return verify.Verification.of([column.name for column in result.columns], result.rows, result.cost)

    def enlist(
        self,
        name: str,
        sql: str,
        *,
        error: float | None = None,
        importance: float | None = None,
        sum_error: float | None = None,
        confidence: float | None = None,
    ) -> int:
        """Put a query into a round, and return its number; spends nothing. The same as noisegate.enlist(…).

        Args:
            name: of the round, the same for everyone.
            sql: a SELECT of aggregates.
            error: the half-width that a count should have; None for the session's.
            importance: in place of an error: 4 asks for half of the session's error.
            sum_error: the half-width that a sum should have, in its own unit.
            confidence: of the intervals whose half-widths these are; None for the session's.
        """
        wanted = {"error": error, "importance": importance, "sum_error": sum_error, "confidence": confidence}
        return int(self._call("enlist", name, sql, **wanted).rows[0][1])

    def withdraw(self, name: str, query: int | None = None) -> list[int]:
        """Take one of the queries that you enlisted out of a round, or all of them; return their numbers."""
        return [int(row[1]) for row in self._call("withdraw", name, query=query).rows]

    def release(
        self,
        name: str,
        *,
        mechanism: str | None = None,
        rho: float | Fraction | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> rounds.Publication:
        """Release a round: all its queries, planned together and charged at once. The same as noisegate.release(…).

        Afterwards the plain SELECTs are free for everyone. `explain` tells the price before.

        Args:
            name: of the round.
            mechanism: "waterfilling", "independent", "identity", "utilitarian" or "weighted_utilitarian".
            rho: what to spend, with the least common factor on all errors; None to meet every target.
            weights: of the analysts who take part; None for their shares of the budget.
        """
        with translated():
            listed = None if weights is None else rounds.listed(weights)
        result = self._call("release", name, mechanism=mechanism, rho=rho, weights=listed)
        return rounds.Publication.of(result.rows, result.cost)

    def commit(self) -> None:
        """Do nothing: an answer is paid for, durably, before it is given."""
        self._check()

    def rollback(self) -> None:
        """Do nothing: an answer that was given can't be taken back, and neither can its cost."""
        self._check()

    def close(self) -> None:
        """Close the connection; its cursors can't be used any more. Closing twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._process == os.getpid():
            self._give_back()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the connection is closed", sqlstate="08003")
        if self._process != os.getpid():
            raise InterfaceError("the connection belongs to another process; connect again", sqlstate="08003")

    def _call(self, function: str, *positional: object, **named: object) -> Result:
        """Return what a function of the schema noisegate gives back."""
        with translated():
            sql = written(function, *positional, **named)
        return self._ask(lambda session: session.execute(sql), sql)

    def _ask(self, question: Callable[[Session], T], sql: str) -> T:
        """Return what the session answers, while no other thread asks it."""
        if not isinstance(sql, str):
            raise ProgrammingError(f"SQL must be text, got {type(sql).__name__}", sqlstate="42601")
        with self._open(), translated(sql):
            return question(self._session)

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            self._check()
            yield


def _checked(parameters: object) -> Parameters:
    """Return the parameters; a lone text would otherwise pass for a sequence of characters."""
    if parameters is None or isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes | bytearray):
        return parameters
    given = type(parameters).__name__
    raise ProgrammingError(f"parameters must be a sequence or a mapping, got {given}", sqlstate="42601")


# --- cursors -----------------------------------------------------------------------------------------------


class Cursor:
    """One question at a time, and its rows. Not for use by several threads at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._columns: tuple[OutputColumn, ...] = ()
        self._rows: list[Row] = []
        self._intervals: list[tuple[Interval | None, ...]] = []
        self._cost = Fraction(0)
        self._next = 0

    # --- asking

    def execute(self, operation: str, parameters: Parameters = None) -> Self:
        """Ask one question, with values for its placeholders; return the cursor."""
        self._check()
        self._forget()
        self._keep(self._run(operation, parameters))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Ask the same question with each set of values; the rows of all answers follow one another.

        Each set is a question of its own and is paid for as it is answered. Should a later one be refused,
        the earlier ones were paid, and are free when they are asked again.
        """
        self._check()
        self._forget()
        results = [self._run(operation, parameters) for parameters in seq_of_parameters]
        for result in results:
            self._keep(result)
        return self

    def _run(self, operation: str, parameters: Parameters) -> Result:
        bound = _checked(parameters)
        return self.connection._ask(lambda session: session.execute(operation, bound), operation)

    def _keep(self, result: Result) -> None:
        self._columns = result.columns
        self._rows += result.rows
        self._intervals += result.intervals
        self._cost += result.cost

    # --- what was answered

    @property
    def description(self) -> list[Description] | None:
        """Return (name, type_code, None, None, precision, scale, None) of each column; None without rows."""
        return [_described(column) for column in self._columns] or None

    @property
    def rowcount(self) -> int:
        """Return the number of rows of the answer, or -1 before there is one."""
        return len(self._rows) if self._columns else -1

    @property
    def rownumber(self) -> int | None:
        """Return the index of the row that is fetched next, or None without rows."""
        return self._next if self._columns else None

    @property
    def lastrowid(self) -> None:
        """Return None: nothing is ever inserted."""

    @property
    def intervals(self) -> list[tuple[Interval | None, ...]]:
        """Return for each row of the answer, and each column, its (low, high), or None where it is exact."""
        return self._intervals

    @property
    def cost(self) -> Fraction:
        """Return the rho that the answer was charged on the dearest cell; 0 when it was free."""
        return self._cost

    # --- fetching

    def fetchone(self) -> Row | None:
        """Return the next row, or None when there is no more."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next `size` rows, by default `arraysize`; fewer when there are no more."""
        wanted = self.arraysize if size is None else size
        return self._fetch(max(0, wanted))

    def fetchall(self) -> list[Row]:
        """Return all rows that were not fetched yet."""
        return self._fetch(len(self._rows))

    def _fetch(self, wanted: int) -> list[Row]:
        self._check()
        if not self._columns:
            raise ProgrammingError("there is no answer to fetch: ask a SELECT first", sqlstate="24000")
        rows = self._rows[self._next : self._next + wanted]
        self._next += len(rows)
        return rows

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    # --- what PEP 249 also asks for

    def setinputsizes(self, sizes: Sequence[object]) -> None:  # noqa: ARG002 - PEP 249 names them
        """Do nothing, as PEP 249 allows."""
        self._check()

    def setoutputsize(self, size: int, column: int | None = None) -> None:  # noqa: ARG002 - the same
        """Do nothing, as PEP 249 allows."""
        self._check()

    def close(self) -> None:
        """Close the cursor; closing twice does no harm."""
        self._closed = True
        self._forget()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed", sqlstate="24000")
        self.connection._check()


def _described(column: OutputColumn) -> Description:
    decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", column.type)
    precision, scale = (int(decimal[1]), int(decimal[2])) if decimal else (None, None)
    return column.name, column.type, None, None, precision, scale, None
