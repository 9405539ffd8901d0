"""Connections to a gate in this process, and their cursors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from planner.calls.call import written
from planner.plans.explain import Explanation
from planner.plans.result import Result
from planner.session import Session
from planner.sql.statement import Parameters
from proxy import errors
from proxy.dbapi.calls import Calls
from proxy.dbapi.gates import GATES
from proxy.dbapi.parameters import checked
from proxy.dbapi.rows import Rows
from proxy.errors import InterfaceError, ProgrammingError, translated
from proxy.threads import one_blas_thread

POLICY = "noisegate.toml"
"""The policy file that is meant where none is named."""

T = TypeVar("T")


def connect(
    policy: str | os.PathLike[str] = POLICY, analyst: str | None = None, *, limit_threads: bool = True
) -> Connection:
    """Return a connection to the gate that a policy file declares.

    Connections of one process to the same policy share a gate, and with it what was read from the sources.

    Args:
        policy: path of the policy file.
        analyst: who asks; may be left out where the policy has one analyst only.
        limit_threads: keep numpy and scipy to one thread while a statement runs, and put back what was there before.
            The number holds for the whole process; False leaves it to the program.
    """
    threads = one_blas_thread if limit_threads else nullcontext
    with threads(), translated():
        key, gate = GATES.take(Path(policy))
        try:
            session = gate.session(analyst)
        except BaseException:
            GATES.give_back(key)
            raise
    return Connection(session, give_back=lambda: GATES.give_back(key), threads=threads)


class Connection(Calls):
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

    def __init__(
        self,
        session: Session,
        *,
        give_back: Callable[[], None],
        threads: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._session = session
        self._threads = threads
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
        return self._ask(lambda session: session.explain(sql, checked(parameters)), sql)

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
        with self._open(), self._threads(), translated(sql):
            return question(self._session)

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            self._check()
            yield


class Cursor(Rows):
    """One question at a time, and its rows. Not for use by several threads at once."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._closed = False

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
        bound = checked(parameters)
        return self.connection._ask(lambda session: session.execute(operation, bound), operation)

    # --- what PEP 249 also asks for

    @property
    def lastrowid(self) -> None:
        """Return None: nothing is ever inserted."""

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
