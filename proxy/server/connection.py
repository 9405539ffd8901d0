"""One client's socket: bytes in and out, TLS, login, timeouts. What is said over it is proxy/conversation's."""

from __future__ import annotations

import asyncio
import hmac
import math
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from planner.gate import Gate
from planner.policy.server import Server as Config
from proxy.conversation.answer_cache import AnswerCache
from proxy.conversation.route import Answers
from proxy.conversation.session import Conversation
from proxy.conversation.steps import Send, StatementEnd, Steps, Work
from proxy.conversation.ticket import CANCELED, GONE, SHUTDOWN, TIMEOUT, Reason
from proxy.limits import MAX_NAME, MAX_UNREAD, MAX_UNSENT, MESSAGE_SECONDS, READ_SECONDS
from proxy.login.auth import BackOff, Key, LoginFailed, Scram, Verifiers, new_secret
from proxy.login.startup import Caller, Refused, negotiation, open_session, read_startup
from proxy.server.journal import Journal
from proxy.server.metrics import Metrics
from proxy.server.pacing import Pace
from proxy.server.tls import Tls
from proxy.wire import messages as m
from proxy.wire import replies
from proxy.wire.codec import Decoder, Limits
from proxy.wire.messages import Message, ProtocolViolation
from proxy.wire.replies import Complaint, Severity, Status
from proxy.wire.state import Event, State, after


class Gone(Exception):
    """The client is not there any more."""


class Host(Protocol):
    """What a connection needs of the server: what is shared by all of them, and to be counted among them."""

    gate: Gate
    config: Config
    journal: Journal
    metrics: Metrics
    tls: Tls | None
    verifiers: Verifiers
    back_off: BackOff
    pace: Pace
    cache: AnswerCache
    inbox: memoryview

    def arrived(self, connection: Connection) -> None: ...

    def admit(self, connection: Connection) -> None: ...

    def left(self, connection: Connection) -> None: ...

    def held_by(self, analyst: str, *, but: Connection) -> int: ...

    def cancel(self, request: m.CancelRequest) -> None: ...

    def catalog(self, analyst: str, database: str, settings: Callable[[str], str | None]) -> Answers: ...

    def timeouts(self) -> dict[str, str]: ...

    def submit(self, run: Callable[[], Any], *, whose: str = "") -> Future[Any]: ...

    def call_soon(self, function: Callable[..., None], *arguments: object) -> None: ...

    def note_crash(self, error: Exception) -> None: ...

    def count(self, analyst: str, ended: StatementEnd, seconds: float) -> None: ...


@dataclass(frozen=True, eq=False)
class Halt:
    """Why the messages that have come can't be answered any further without waiting.

    Args:
        steps: what the message that is being answered still asks for, after its first step.
        first: that step.
        goodbye: the client has said that it leaves.
        error: no message can be read any more.
    """

    steps: Steps | None = None
    first: Work | Send | None = None
    goodbye: bool = False
    error: Exception | None = None


MORE = Halt()
"""All that came is answered."""

FULL = Halt()
"""What was said has to be sent first."""


class Connection(asyncio.BufferedProtocol):
    """One connection, from its first byte to its last; runs as a task of its own.

    What needs neither another thread nor a wait, as a known answer, is answered as soon as its bytes come, before the
    task is woken: each turn of the event loop lets go of Python's lock, and a thread that plans would take it.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.process = 0
        self.secret = new_secret()
        self.analyst: str | None = None
        self.peer = "?"
        self.silent = True  # until it has said who it is
        self._decoder = Decoder(Limits(message=host.config.max_message_bytes))
        self._state = State.OPENED
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._work: tuple[Work, Future[Any], asyncio.Future[Any]] | None = None
        self._busy: Future[Any] | None = None
        self._lost = self._closing = self._secure = False
        self._conversation: Conversation | None = None
        self._halt: Halt | None = None  # met while the task waited for more to come
        self._timed = False  # whether that wait has an end
        self._patience: tuple[object, Status, float] | None = None
        self._started = 0.0
        self.task: asyncio.Task[None] | None = None

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._transport is not None:  # TLS has begun, and tells so
            self._transport = transport
            return
        self._transport = transport
        address = transport.get_extra_info("peername") or ("?",)
        self.peer = str(address[0])
        _keep_alive(transport.get_extra_info("socket"))
        self.host.arrived(self)
        self.task = self._loop.create_task(self._live())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio names it
        return self.host.inbox

    def buffer_updated(self, nbytes: int) -> None:
        self._decoder.feed(self.host.inbox[:nbytes])
        if self._waiter is not None:
            if self._conversation is None or self._waiter.done():
                self._wake(self._waiter)
            else:
                self._answer_at_once(self._conversation, self._waiter)
        elif self._decoder.waiting > MAX_UNREAD and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        self._lost = True
        self.stop(GONE)
        for waiting in (self._waiter, self._writable):
            if waiting is not None:
                self._wake(waiting)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._wake(self._writable)
        self._writable = None

    @staticmethod
    def _wake(future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    # --- called by the server

    def stop(self, reason: Reason, *, unless_charged: bool = False) -> None:
        """Stop the statement that runs, if there is one that can be stopped."""
        if self._work is None:
            return
        work, future, outcome = self._work
        ended = work.ticket.stop(reason, unless_charged=unless_charged)
        if ended is not None and not outcome.done():
            outcome.set_exception(ended)
            future.cancel()  # if it still waits, it leaves the queue

    def cancel(self, secret: bytes) -> None:
        """Stop the statement for a client that shows the secret."""
        if hmac.compare_digest(secret, self.secret):
            self.host.journal.info("canceled", analyst=self.analyst, process=self.process)
            self.stop(CANCELED)

    def shut_down(self) -> None:
        """End the connection after what is charged was answered; at once if there is nothing of that kind."""
        self._closing = True
        self.stop(SHUTDOWN, unless_charged=True)
        if self._waiter is not None:
            self._wake(self._waiter)

    @property
    def held(self) -> int:
        """About how many bytes of rows are kept for the client."""
        return 0 if self._conversation is None else self._conversation.held

    @property
    def is_leaving(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- the life of a connection

    async def _live(self) -> None:
        try:
            await self._until_the_end()
        except Gone:
            pass
        except Refused as refused:
            self._say(replies.complaint(refused.complaint))
        except ProtocolViolation as violation:
            self.host.metrics.add("noisegate_protocol_violations_total")
            self.host.journal.warn("protocol violation", peer=self.peer, analyst=self.analyst, reason=str(violation))
            self._say(
                replies.complaint(
                    Complaint(message=str(violation), sqlstate=violation.sqlstate, severity=Severity.FATAL)
                )
            )
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            pass
        except Exception as error:
            self.host.journal.crash("connection failed", error)
        finally:
            if self.analyst is None and not self.silent:
                self.host.pace.failed(self.peer, time.monotonic())
            self._state = after(self._state, Event.GOODBYE)
            self.host.left(self)
            if self._transport is not None:
                self._transport.close()

    async def _until_the_end(self) -> None:
        try:
            async with asyncio.timeout(self.host.config.login_timeout):
                caller = await self._login()
        except TimeoutError:
            raise Refused("57014", "the login took too long") from None
        if caller is not None:
            await self._talk()

    def _say(self, data: bytes) -> None:
        if data and self._transport is not None and not self._lost:
            self._transport.write(data)

    async def _flush(self) -> None:
        """Send what the conversation has to say, and wait while the client does not read."""
        if self._conversation is not None:
            self._say(self._conversation.take())
        if self._writable is not None:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    await self._writable
            except TimeoutError:
                self.abort()
                raise Gone from None
        if self._lost:
            raise Gone

    async def _next(self) -> Message | None:
        """Return the next message of a login; None when the connection ends, or the rest of a message does not come."""
        while (message := self._decoder.next()) is None:
            await self._flush()
            if self._lost or self._closing or not await self._more(MESSAGE_SECONDS if self._decoder.waiting else 0.0):
                return None
        return message

    async def _more(self, patience: float) -> bool:
        """Wait for more bytes, at most `patience` seconds if that is not 0; return whether some came."""
        self._waiter, self._timed = self._loop.create_future(), patience > 0
        timer = self._loop.call_later(patience, self._wake, self._waiter) if patience else None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        before = self._decoder.waiting
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()
        came = self._decoder.waiting > before or self._halt is not None
        return came or not (patience or self._lost or self._closing)

    # --- login

    async def _login(self) -> Caller | None:
        """Return who has logged in; None if there was only a request to cancel, or a goodbye."""
        startup = await self._opening()
        if startup is None:
            return None
        self.silent = False
        self._decoder.started()
        self._say(negotiation(startup))
        caller = read_startup(startup)
        self._check_encrypted()
        # Not before: a newcomer that has said nothing yet may be ended to make room.
        await asyncio.sleep(self.host.pace.wait(self.peer, time.monotonic()))
        await self._authenticate(caller)
        self._decoder.logged_in()
        self._welcome(caller)
        return caller

    async def _opening(self) -> m.Startup | None:
        while True:
            message = await self._next()
            if message is None:
                return None
            self._state = after(self._state, message)
            match message:
                case m.SslRequest():
                    await self._start_tls()
                case m.GssRequest():
                    self._say(replies.NO_TLS)
                case m.CancelRequest():
                    self.host.cancel(message)
                    return None
                case m.Startup():
                    return message

    async def _start_tls(self) -> None:
        tls = self.host.tls
        if tls is None:
            self._say(replies.NO_TLS)
            return
        if self._decoder.waiting:
            raise ProtocolViolation("bytes came before the TLS handshake that were meant to be inside it")
        assert self._transport is not None
        self._say(replies.YES_TLS)
        secured = await self._loop.start_tls(self._transport, self, tls.context, server_side=True)
        if secured is None or self._lost:
            raise Gone
        self._transport, self._secure = secured, True
        self._state = after(self._state, Event.TLS)

    def _check_encrypted(self) -> None:
        if self.host.config.encryption == "required" and not self._secure:
            raise Refused("28000", "the connection must be encrypted", hint="connect with sslmode=require")

    async def _authenticate(self, caller: Caller) -> None:
        key, host = (self.peer, caller.user[:MAX_NAME]), self.host
        await self._wait_for_turn(key)
        try:
            await (self._trust(caller) if host.config.auth == "trust" else self._scram(caller, key))
        except LoginFailed as failed:
            if failed.sqlstate != "08P01":
                host.back_off.failed(key, time.monotonic())
            host.metrics.add("noisegate_logins_total", result="failed")
            host.journal.warn("login failed", peer=self.peer, user=caller.user, reason=failed.reason)
            what = "password" if host.config.auth == "scram" else "trust"
            raise Refused(failed.sqlstate, f'{what} authentication failed for user "{caller.user}"') from None
        host.back_off.succeeded(key)
        self.analyst = caller.user
        host.admit(self)

    async def _wait_for_turn(self, key: Key) -> None:
        """Return when a try to log in may be judged; Refused if that is not soon."""
        while (wait := self.host.back_off.wait(key, time.monotonic())) > 0:
            if not self.host.back_off.knows(key):
                self.host.metrics.add("noisegate_logins_total", result="back-off")
                raise Refused("28000", f"too many failed logins, try again in {math.ceil(wait)} seconds")
            await asyncio.sleep(wait)

    async def _trust(self, caller: Caller) -> None:
        if caller.user not in self.host.gate.policy.analysts:
            raise LoginFailed("no such analyst", sqlstate="28000")

    async def _scram(self, caller: Caller, key: Key) -> None:
        verifier, known = self.host.verifiers.of_user(caller.user)
        binding = self.host.tls.binding if self.host.tls is not None and self._secure else None
        exchange = Scram(verifier, known=known, binding=binding)
        self._say(replies.sasl(exchange.mechanisms))
        initial = m.SaslInitial.of(await self._password())
        self._say(replies.sasl_continue(exchange.first(initial.mechanism, initial.data or b"")))
        proof = (await self._password()).data
        await self._wait_for_turn(key)  # others may have failed since this one began
        final = exchange.final(proof)
        self._say(replies.sasl_final(final))

    async def _password(self) -> m.Password:
        message = await self._next()
        if message is None:
            raise Gone
        self._state = after(self._state, message)
        if not isinstance(message, m.Password):
            raise Gone  # it said goodbye
        return message

    def _welcome(self, caller: Caller) -> None:
        host = self.host
        session, variables = open_session(host.gate, caller, timeouts=host.timeouts())
        self._conversation = Conversation(
            session,
            variables=variables,
            make_catalog=lambda settings: host.catalog(caller.user, caller.database, self._with_process(settings)),
            cache=host.cache,
            on_end=self._ended,
            held_elsewhere=lambda: host.held_by(caller.user, but=self),
        )
        self._state = after(self._state, Event.WELCOME)
        host.metrics.add("noisegate_logins_total", result="ok")
        host.journal.info("connected", analyst=caller.user, peer=self.peer, tls=self._secure, process=self.process)
        self._say(
            replies.AUTHENTICATED
            + replies.parameters(variables.reported())
            + replies.key_data(self.process, self.secret)
            + replies.ready(Status.IDLE)
        )

    def _with_process(self, settings: Callable[[str], str | None]) -> Callable[[str], str | None]:
        """Return the settings, and the number of this connection for pg_backend_pid()."""
        return lambda name: str(self.process) if name == "pg_backend_pid" else settings(name)

    # --- statements

    async def _talk(self) -> None:
        conversation = self._conversation
        assert conversation is not None
        halt = MORE
        while not self._closing and not halt.goodbye:
            met, self._halt = self._halt, None
            halt = self._answer(conversation) if met is None or met is MORE else met
            if halt.error is not None:
                raise halt.error
            if halt.steps is not None:
                await self._drive(halt.steps, halt.first)
                self._state = conversation.state
                if _is_full(conversation):
                    await self._flush()
            elif not (halt.goodbye or await self._caught_up(conversation, halt)):
                break
        await self._farewell(conversation, goodbye=halt.goodbye)

    def _answer(self, conversation: Conversation) -> Halt:
        """Answer the messages that have come, and return where that has to wait."""
        while (message := self._decoder.next()) is not None:
            if isinstance(message, m.Terminate):
                return Halt(goodbye=True)
            self._started = time.monotonic()
            steps = conversation.handle(message)
            first = next(steps, None)
            if first is not None:
                return Halt(steps, first)
            self._state = conversation.state
            if _is_full(conversation):
                return FULL
        return MORE

    def _answer_at_once(self, conversation: Conversation, waiter: asyncio.Future[None]) -> None:
        """Answer what has come; wake the task if that has to wait, or if the client's time to go on is limited."""
        try:
            self._halt = self._answer(conversation)
        except Exception as error:
            self._halt = Halt(error=error)
        if self._halt is MORE:
            self._say(conversation.take())
            timed = self._timed or self._decoder.waiting or self._idle_patience(conversation)
            if self._writable is None and not timed:
                self._halt = None
                return
        self._wake(waiter)

    async def _caught_up(self, conversation: Conversation, halt: Halt) -> bool:
        """Send what was said, and after all is answered wait for more; return whether to go on."""
        before = self._decoder.waiting
        await self._flush()
        if self._lost or self._closing:
            return False
        if halt is FULL or self._decoder.waiting != before:
            return True  # more came while the client was slow to read
        return await self._more(MESSAGE_SECONDS if self._decoder.waiting else self._idle_patience(conversation))

    def _idle_patience(self, conversation: Conversation) -> float:
        variables, status = conversation.variables, conversation.transaction.status
        if self._patience is None or self._patience[0] is not variables or self._patience[1] is not status:
            idle = status is Status.IDLE
            name = "idle_session_timeout" if idle else "idle_in_transaction_session_timeout"
            self._patience = variables, status, _least(variables.seconds(name), self.host.config.idle_timeout)
        return self._patience[2]

    async def _farewell(self, conversation: Conversation, *, goodbye: bool) -> None:
        self._say(conversation.take())
        if goodbye or self._lost:
            return
        reason = SHUTDOWN if self._closing else Reason("terminating connection due to idle-session timeout", "57P05")
        self._say(
            replies.complaint(Complaint(message=reason.message, sqlstate=reason.sqlstate, severity=Severity.FATAL))
        )

    async def _drive(self, steps: Steps, step: Work | Send | None) -> None:
        """Do the work that a message needs, one piece after the other, from its first step on."""
        while step is not None:
            value: Any = None
            error: Exception | None = None
            try:
                if isinstance(step, Send):
                    await self._flush()
                else:
                    value = await self._perform(step)
            except Gone:
                steps.close()
                raise
            except Exception as raised:
                if self._lost:
                    steps.close()
                    raise Gone from None
                error = raised
                self.host.note_crash(raised)
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                return

    async def _perform(self, work: Work) -> Any:  # Any: each kind of work gives something else
        """Return what the work gives, done in a thread; leave it there if it is stopped on its way."""
        if self._busy is not None and not self._busy.done():
            await self._outcome(work, self._busy, self._ignored)
        future = self.host.submit(work.do, whose=self.analyst or "")
        try:
            return await self._outcome(work, future, self._settled)
        finally:
            self._busy = None if future.done() else future

    async def _outcome(self, work: Work, future: Future[Any], settle: Callable[..., None]) -> Any:
        outcome: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(lambda done: self.host.call_soon(settle, done, outcome))
        self._work = work, future, outcome
        timer = self._timer()
        try:
            return await outcome
        finally:
            self._work = None
            if timer is not None:
                timer.cancel()

    def _timer(self) -> asyncio.TimerHandle | None:
        conversation = self._conversation
        assert conversation is not None
        limit = _least(conversation.variables.seconds("statement_timeout"), self.host.config.statement_timeout)
        if not limit:
            return None
        return self._loop.call_later(max(0.0, self._started + limit - time.monotonic()), self.stop, TIMEOUT)

    @staticmethod
    def _settled(done: Future[Any], outcome: asyncio.Future[Any]) -> None:
        if outcome.done():
            return
        if done.cancelled():  # the server ends
            outcome.cancel()
        elif (error := done.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    @staticmethod
    def _ignored(_: Future[Any], outcome: asyncio.Future[Any]) -> None:
        if not outcome.done():
            outcome.set_result(None)

    def _ended(self, ended: StatementEnd) -> None:
        self.host.count(self.analyst or "?", ended, time.monotonic() - self._started)


def _is_full(conversation: Conversation) -> bool:
    """Return whether what was said has to be sent before the next message: errors at once, and never very much."""
    return conversation.state is State.SKIPPING or conversation.unsent > MAX_UNSENT


def _least(*limits: float) -> float:
    """Return the smallest limit that is one; 0 is none."""
    return min((limit for limit in limits if limit > 0), default=0.0)


def _keep_alive(found: socket.socket | None) -> None:
    """Notice within a few minutes that the other end is gone without a word."""
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 120_000)):
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
