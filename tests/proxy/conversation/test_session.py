"""A conversation, without sockets: what each message is answered with, and when something is charged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.gate import Gate
from planner.session import Session
from proxy.catalog.variables import Variables
from proxy.conversation import outbox, runner
from proxy.conversation.session import Conversation
from proxy.conversation.steps import Work
from proxy.conversation.ticket import CANCELED, TIMEOUT, Stopped
from proxy.limits import MAX_SQL
from proxy.wire import messages as m
from proxy.wire import oids
from proxy.wire.messages import Message, ProtocolViolation
from proxy.wire.state import State
from proxy.wire.values import Format
from tests.proxy.raw import Reply, kinds, split
from tests.proxy.servers import SmallCatalog
from tests.proxy.wire.strategies import typed

COUNT = "SELECT count(*) FROM adult"
BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
SYNC = m.Sync()


class Talk:
    """Drives a conversation, doing its work at once."""

    def __init__(self, gate: Gate, analyst: str = "ann", *, others: Callable[[], int] = lambda: 0) -> None:
        self.session: Session = gate.session(analyst)
        self.conversation = Conversation(
            self.session,
            variables=Variables(),
            make_catalog=lambda settings: SmallCatalog(settings),
            held_elsewhere=others,
        )
        self.work: list[str] = []

    def __call__(self, *messages: Message | str) -> list[Reply]:
        """Send messages, a text as a Query, and return what is answered."""
        for message in messages:
            self.drive(m.Query(message) if isinstance(message, str) else message)
        found, left = split(self.conversation.take())
        assert left == b""
        return found

    def drive(self, message: Message) -> None:
        steps = self.conversation.handle(message)
        value, error = None, None
        while True:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration:
                return
            value = error = None
            if isinstance(step, Work):
                self.work.append(step.what)
                try:
                    value = self.do(step)
                except Exception as raised:
                    error = raised

    def do(self, work: Work) -> object:
        return work.run()

    def spent(self) -> int:
        """Return how many releases were charged for: the dearest cell may pay for none of them."""
        [(number,)] = self.session.execute("SELECT count(*) FROM noisegate.releases").rows
        return int(number)


@pytest.fixture(scope="module")
def gate(shared_adult_policy: Path) -> Iterator[Gate]:
    gate = Gate.open(shared_adult_policy)
    yield gate
    gate.close()


@pytest.fixture
def talk(gate: Gate) -> Talk:
    return Talk(gate)


def error(found: list[Reply]) -> dict[str, str]:
    [reply] = [reply for reply in found if reply.kind == "E"]
    return reply.fields


def tags(found: list[Reply]) -> list[str]:
    return [reply.text for reply in found if reply.kind == "C"]


def cells(found: list[Reply]) -> list[list[bytes | None]]:
    return [reply.cells for reply in found if reply.kind == "D"]


def status(found: list[Reply]) -> str:
    return found[-1].text


# --- the simple protocol -----------------------------------------------------------------------------------


def test_a_question_is_answered_with_its_columns_rows_and_tag(talk: Talk) -> None:
    found = talk(BY_SEX)
    assert kinds(found) == "TDDCZ"
    assert found[0].columns == [("sex", oids.TEXT), ("n", oids.INT8)]
    assert [row[0] for row in cells(found)] == [b"Female", b"Male"]
    assert tags(found) == ["SELECT 2"]


def test_an_empty_text_is_answered_as_such(talk: Talk) -> None:
    assert kinds(talk(" ; -- nothing")) == "IZ"


def test_several_statements_are_answered_one_after_the_other(talk: Talk) -> None:
    assert kinds(talk("SELECT 1; SET jit = off; SHOW jit")) == "TDCCTDCZ"


def test_a_mistake_anywhere_in_the_text_stops_all_of_it_before_anything_runs(talk: Talk) -> None:
    before = talk.spent()
    found = talk("SET noisegate.error = 7; SELECT count(*) FROM adult WHERE age = 33; SELECT FROM WHERE")
    assert kinds(found) == "EZ"
    assert error(found)["C"] == "42601"
    assert talk.session.settings.error == 50
    assert talk.spent() == before


def test_an_error_stops_the_statements_behind_it(talk: Talk) -> None:
    found = talk("SELECT 1; SELECT nothing FROM adult; SELECT 2")
    assert kinds(found) == "TDCEZ"


def test_an_error_has_sqlstate_message_detail_hint_and_position(talk: Talk) -> None:
    fields = error(talk("SELECT 1; SELECT * FROM adult LIMIT 5"))
    assert fields["C"] == "42501"
    assert fields["M"] == "single rows are never shown"
    assert fields["D"] == "nothing was spent"
    assert fields["H"].startswith("ask for an aggregate")
    assert fields["P"] == "25"
    assert fields["S"] == fields["V"] == "ERROR"


def test_a_position_counts_the_clients_own_characters(talk: Talk) -> None:
    found = talk(
        m.Parse("", "SELECT count(*) FROM adult WHERE age IN ($1,$2) AND zip = $3"), m.Describe(b"S", ""), SYNC
    )
    assert error(found)["P"] == str("SELECT count(*) FROM adult WHERE age IN ($1,$2) AND zip = $3".index("zip") + 1)


def test_writes_are_refused(talk: Talk) -> None:
    for sql in ("INSERT INTO adult VALUES (1)", "CREATE TABLE x (y int)", "LOCK adult", "LISTEN x", "TRUNCATE adult"):
        assert error(talk(sql))["C"] == "42501"


def test_an_unexpected_error_shows_nothing_of_itself(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("row 17 has income 4,000,000")

    monkeypatch.setattr(talk.session, "execute", fail)
    fields = error(talk(COUNT))
    assert fields["C"] == "XX000"
    assert "17" not in str(fields)


def test_a_text_that_is_too_long_is_refused(talk: Talk) -> None:
    assert error(talk(f"SELECT '{'x' * MAX_SQL}'"))["C"] == "54000"


def test_function_calls_by_number_are_refused(talk: Talk) -> None:
    assert error(talk(m.FunctionCall(b"\0" * 12)))["C"] == "0A000"


# --- the extended protocol ---------------------------------------------------------------------------------


def test_a_prepared_statement_is_described_bound_and_executed(talk: Talk) -> None:
    found = talk(
        m.Parse("s", "SELECT sex, count(*) AS n FROM adult WHERE age > $1 GROUP BY sex ORDER BY sex"),
        m.Describe(m.STATEMENT, "s"),
        m.Bind("", "s", (), (b"30",), (Format.TEXT, Format.BINARY)),
        m.Describe(m.PORTAL, ""),
        m.Execute(""),
        SYNC,
    )
    assert kinds(found) == "1tT2TDDCZ"
    assert found[1].types == (oids.INT8,)
    assert found[2].columns == found[4].columns == [("sex", oids.TEXT), ("n", oids.INT8)]
    assert [len(row[1] or b"") for row in cells(found)] == [8, 8]


def test_describing_and_binding_spend_nothing(talk: Talk) -> None:
    before = talk.spent()
    sql = "SELECT avg(age) FROM adult WHERE hours > $1 AND race = $2"
    talk(
        m.Parse("s", sql),
        m.Describe(m.STATEMENT, "s"),
        m.Bind("p", "s", (), (b"7", b"White")),
        m.Describe(m.PORTAL, "p"),
    )
    assert "ask" not in talk.work
    assert talk.spent() == before
    talk(m.Execute("p"))
    assert talk.spent() > before


def test_a_portal_is_charged_once_however_often_it_is_executed(talk: Talk) -> None:
    found = talk(
        m.Parse("", "SELECT age, count(*) FROM adult WHERE hours = 41 GROUP BY age"), m.Bind("", ""), m.Execute("", 10)
    )
    assert kinds(found) == "12" + "D" * 10 + "s"
    spent = talk.spent()
    found = talk(m.Execute("", 30))
    assert kinds(found) == "D" * 30 + "s"
    found = talk(m.Execute("", 0), SYNC)
    assert tags(found) == ["SELECT 34"]  # of 74 ages
    assert talk.work.count("ask") == 1
    assert talk.spent() == spent


def test_exactly_as_many_rows_as_asked_for_suspend_the_portal(talk: Talk) -> None:
    talk(m.Parse("", BY_SEX), m.Bind("", ""))
    assert kinds(talk(m.Execute("", 2))) == "DDs"
    assert kinds(talk(m.Execute("", 2))) == "C"


def test_after_an_error_everything_is_skipped_to_sync_and_answered_once(talk: Talk) -> None:
    found = talk(m.Parse("", "SELECT nothing FROM adult"), m.Describe(m.STATEMENT, ""), m.Bind("", ""), m.Execute(""))
    assert kinds(found) == "1E"
    assert talk.conversation.state is State.SKIPPING
    assert kinds(talk(m.Parse("", COUNT), m.Execute(""), m.Query("SELECT 1"), SYNC)) == "Z"
    assert kinds(talk(COUNT)) == "TDCZ"


def test_pipelined_batches_fail_and_succeed_on_their_own(talk: Talk) -> None:
    def batch(sql: str) -> list[Message]:
        return [m.Parse("", sql), m.Bind("", ""), m.Execute(""), SYNC]

    found = talk(*batch("SELECT 1"), *batch("SELECT nothing FROM adult"), *batch("SELECT 2"))
    assert kinds(found) == "12DCZ" + "12EZ" + "12DCZ"


@pytest.mark.parametrize(
    ("messages", "sqlstate"),
    [
        ([m.Bind("", "nobody")], "26000"),
        ([m.Describe(m.STATEMENT, "nobody")], "26000"),
        ([m.Describe(m.PORTAL, "nobody")], "34000"),
        ([m.Execute("nobody")], "34000"),
        ([m.Parse("twice", "SELECT 1"), m.Parse("twice", "SELECT 1")], "42P05"),
        ([m.Parse("", "SELECT 1"), m.Bind("twice", ""), m.Bind("twice", "")], "42P03"),
        ([m.Parse("", "SELECT 1; SELECT 2")], "42601"),
        ([m.Parse("", COUNT), m.Bind("", "", (), (b"1",))], "08P01"),
        ([m.Parse("", f"{COUNT} WHERE age > $1"), m.Bind("", "", (), (b"old",))], "22P02"),
        ([m.Parse("", f"{COUNT} WHERE age > $1", (23,)), m.Bind("", "", (Format.BINARY,), (b"1",))], "22P03"),
        ([m.Parse("", BY_SEX), m.Bind("", "", (), (), (Format.TEXT,) * 3), m.Describe(m.PORTAL, "")], "08P01"),
    ],
)  # fmt: skip
def test_what_is_not_there_or_does_not_fit_is_refused(talk: Talk, messages: list[Message], sqlstate: str) -> None:
    assert error(talk(*messages, SYNC))["C"] == sqlstate


def test_portals_end_with_the_batch_and_statements_do_not(talk: Talk) -> None:
    talk(m.Parse("s", "SELECT 1"), m.Bind("p", "s"), SYNC)
    assert error(talk(m.Execute("p"), SYNC))["C"] == "34000"
    assert kinds(talk(m.Bind("p", "s"), m.Execute("p"), SYNC)) == "2DCZ"


def test_portals_live_as_long_as_their_transaction(talk: Talk) -> None:
    talk("BEGIN", m.Parse("s", "SELECT 1"), m.Bind("p", "s"), SYNC)
    assert kinds(talk(m.Execute("p"), SYNC)) == "DCZ"
    talk("COMMIT")
    assert error(talk(m.Execute("p"), SYNC))["C"] == "34000"


def test_closing_what_is_not_there_does_no_harm(talk: Talk) -> None:
    assert kinds(talk(m.Close(m.STATEMENT, "x"), m.Close(m.PORTAL, "y"), SYNC)) == "33Z"


def test_statements_without_rows_have_no_data_to_describe(talk: Talk) -> None:
    assert kinds(talk(m.Parse("", "BEGIN"), m.Describe(m.STATEMENT, ""), SYNC)) == "1tnZ"
    assert kinds(talk(m.Parse("", ""), m.Bind("", ""), m.Describe(m.PORTAL, ""), m.Execute(""), SYNC)) == "12nIZ"


def test_a_null_parameter_is_null(talk: Talk) -> None:
    found = talk(m.Parse("", f"{COUNT} WHERE age > $1"), m.Bind("", "", (), (None,)), m.Execute(""), SYNC)
    assert cells(found) == [[b"0"]]


def test_limit_0_gives_columns_and_no_rows_for_nothing(talk: Talk) -> None:
    before = talk.spent()
    found = talk("SELECT * FROM (SELECT race, count(*) AS n FROM adult GROUP BY race) AS t LIMIT 0")
    assert kinds(found) == "TCZ"
    assert tags(found) == ["SELECT 0"]
    assert talk.spent() == before


# --- transactions and settings -----------------------------------------------------------------------------


def test_the_status_of_a_transaction_is_what_clients_expect(talk: Talk) -> None:
    assert status(talk("SELECT 1")) == "I"
    assert status(talk("BEGIN")) == "T"
    assert status(talk("SELECT nothing FROM adult")) == "E"
    assert error(talk("SELECT 1"))["C"] == "25P02"
    found = talk("COMMIT")
    assert tags(found) == ["ROLLBACK"]
    assert status(found) == "I"


def test_a_savepoint_brings_a_failed_transaction_back(talk: Talk) -> None:
    talk("BEGIN", "SET noisegate.error = 60", "SAVEPOINT s", "SET noisegate.error = 70")
    assert status(talk("SELECT nothing FROM adult")) == "E"
    assert status(talk("ROLLBACK TO s")) == "T"
    assert talk.session.settings.error == 60
    assert tags(talk("RELEASE s", "COMMIT")) == ["RELEASE", "COMMIT"]
    assert error(talk("SAVEPOINT s"))["C"] == "25P01"


def test_settings_go_back_with_a_rollback(talk: Talk) -> None:
    talk("SET noisegate.error = 60", "BEGIN", "SET noisegate.error = 70", "SET application_name = 'x'", "ROLLBACK")
    assert talk.session.settings.error == 60
    assert talk.conversation.variables.show("application_name") == ""


def test_local_settings_end_with_their_transaction(talk: Talk) -> None:
    talk("BEGIN", "SET LOCAL noisegate.error = 70")
    assert talk.session.settings.error == 70
    talk("COMMIT")
    assert talk.session.settings.error == 50
    assert kinds(talk("SET LOCAL noisegate.error = 70")) == "NCZ"
    assert talk.session.settings.error == 50


def test_begin_and_commit_out_of_place_are_warned_about(talk: Talk) -> None:
    assert kinds(talk("COMMIT")) == "NCZ"
    assert kinds(talk("BEGIN", "BEGIN")) == "CZNCZ"


def test_a_changed_setting_is_reported_and_shown(talk: Talk) -> None:
    found = talk("SET TimeZone = 'Europe/Zurich'")
    assert kinds(found) == "CSZ"
    assert found[1].body == b"TimeZone\0Europe/Zurich\0"
    found = talk("SHOW TIME ZONE")
    assert found[0].columns == [("TimeZone", oids.TEXT)]
    assert cells(found) == [[b"Europe/Zurich"]]
    assert kinds(talk("RESET ALL")) == "CSZ"


def test_the_gates_own_settings_are_set_shown_and_reset(talk: Talk) -> None:
    talk("SET noisegate.error = '2%'")
    assert cells(talk("SHOW noisegate.error")) == [[b"2%"]]
    talk("RESET noisegate.error")
    assert cells(talk("SHOW noisegate.error")) == [[b"50"]]
    assert error(talk("SET noisegate.eror = 3"))["C"] in ("42704", "22023")
    assert error(talk("SET noisegate.error = 'much'"))["C"] == "22023"
    names = [row[0] for row in cells(talk("SHOW ALL"))]
    assert b"noisegate.error" in names
    assert b"TimeZone" in names


def test_discard_all_forgets_everything(talk: Talk) -> None:
    talk("SET noisegate.error = 60", m.Parse("s", "SELECT 1"), SYNC)
    assert tags(talk("DISCARD ALL")) == ["DISCARD ALL"]
    assert talk.session.settings.error == 50
    assert error(talk(m.Bind("", "s"), SYNC))["C"] == "26000"
    talk("BEGIN")
    assert error(talk("DISCARD ALL"))["C"] == "25001"


def test_deallocate_forgets_statements(talk: Talk) -> None:
    talk(m.Parse("s", "SELECT 1"), SYNC)
    assert tags(talk("DEALLOCATE s")) == ["DEALLOCATE"]
    assert error(talk("DEALLOCATE s"))["C"] == "26000"


def test_what_pools_send_between_two_users_is_accepted(talk: Talk) -> None:
    found = talk("SELECT 1; CLOSE ALL; UNLISTEN *; RESET ALL;")
    assert tags(found) == ["SELECT 1", "CLOSE CURSOR ALL", "UNLISTEN", "RESET"]


def test_notices_tell_the_cost_when_they_are_asked_for(talk: Talk) -> None:
    assert kinds(talk("SELECT count(*) FROM adult WHERE age = 44")) == "TDCZ"
    talk("SET noisegate.notices = on")
    found = talk("SELECT count(*) FROM adult WHERE age = 45")
    assert kinds(found) == "NTDCZ"
    assert found[0].fields["S"] == "NOTICE"
    assert ", left " in found[0].fields["M"]
    assert "was charged on the dearest cell" in found[0].fields["D"]
    assert talk("SELECT count(*) FROM adult WHERE age = 45")[0].fields["M"] == "free: already known"
    assert kinds(talk("SET client_min_messages = error; SELECT count(*) FROM adult WHERE age = 45")) == "CTDCZ"


# --- cursors -----------------------------------------------------------------------------------------------


def test_a_cursor_is_charged_at_its_first_fetch(talk: Talk) -> None:
    before = talk.spent()
    found = talk(
        "BEGIN", "DECLARE c CURSOR FOR SELECT age, count(*) FROM adult WHERE hours = 42 GROUP BY age ORDER BY age"
    )
    assert tags(found) == ["BEGIN", "DECLARE CURSOR"]
    assert talk(m.Describe(m.PORTAL, "c"), SYNC)[0].columns == [("age", oids.INT8), ("count", oids.INT8)]
    assert talk.spent() == before
    found = talk("FETCH 2 FROM c")
    assert [row[0] for row in cells(found)] == [b"17", b"18"]
    spent = talk.spent()
    assert spent > before
    assert tags(talk("FETCH ALL FROM c")) == ["FETCH 72"]
    assert talk.spent() == spent


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (["FETCH 3 FROM c"], [17, 18, 19]),
        (["MOVE 2 IN c", "FETCH NEXT FROM c"], [19]),
        (["FETCH ALL FROM c", "FETCH PRIOR FROM c"], [90]),
        (["MOVE ALL IN c", "FETCH BACKWARD 2 FROM c"], [90, 89]),
        (["FETCH LAST FROM c"], [90]),
        (["FETCH ABSOLUTE 2 FROM c", "FETCH RELATIVE 3 FROM c"], [21]),
        (["FETCH 2 FROM c", "FETCH -1 FROM c"], [17]),
        (["FETCH 2 FROM c", "FETCH 0 FROM c"], [18]),
        (["FETCH 2 FROM c", "MOVE ABSOLUTE 0 IN c", "FETCH c"], [17]),
        (["FETCH ABSOLUTE -2 FROM c"], [89]),
        (["FETCH 0 FROM c"], []),
        (["MOVE ALL IN c", "FETCH 1 FROM c"], []),
        (["FETCH 2 FROM c", "FETCH BACKWARD ALL FROM c", "FETCH c"], [17]),
    ],
)
def test_a_cursor_moves_as_postgresql_moves_it(talk: Talk, moves: list[str], expected: list[int]) -> None:
    talk("BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT age, count(*) FROM adult GROUP BY age ORDER BY age")
    found = talk(moves[0])
    for move in moves[1:]:
        found = talk(move)
    assert [int(row[0] or 0) for row in cells(found)] == expected


def test_a_cursor_that_only_goes_forward_says_so(talk: Talk) -> None:
    talk("BEGIN", f"DECLARE c NO SCROLL CURSOR FOR {BY_SEX}", "FETCH c")
    assert error(talk("FETCH PRIOR FROM c"))["C"] == "55000"


def test_cursors_end_with_their_transaction_unless_they_are_held(talk: Talk) -> None:
    assert error(talk(f"DECLARE c CURSOR FOR {BY_SEX}"))["C"] == "25P01"
    talk("BEGIN", f"DECLARE c CURSOR FOR {BY_SEX}", f"DECLARE h CURSOR WITH HOLD FOR {BY_SEX}", "COMMIT")
    assert error(talk("FETCH c"))["C"] == "34000"
    assert len(cells(talk("FETCH ALL FROM h"))) == 2
    talk("CLOSE h")
    assert error(talk("FETCH h"))["C"] == "34000"


def test_a_held_cursor_of_a_rolled_back_transaction_is_gone(talk: Talk) -> None:
    talk("BEGIN", f"DECLARE h CURSOR WITH HOLD FOR {BY_SEX}", "ROLLBACK")
    assert error(talk("FETCH h"))["C"] == "34000"


def test_a_binary_cursor_answers_in_binary(talk: Talk) -> None:
    talk("BEGIN", f"DECLARE c BINARY CURSOR FOR {BY_SEX}")
    assert len(cells(talk("FETCH c"))[0][1] or b"") == 8


# --- COPY --------------------------------------------------------------------------------------------------


# --- what is kept for a client -----------------------------------------------------------------------------


def portal(name: str, sql: str, most: int) -> list[Message]:
    return [m.Parse("", sql, ()), m.Bind(name, "", (), (), ()), m.Execute(name, most)]


WIDE = "SELECT repeat('x', 1000) AS x FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)) AS t(i)"


def test_the_rows_that_open_portals_keep_are_bounded(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_HELD", 50_000)
    talk("BEGIN")
    found = [talk(*portal(f"p{number}", WIDE, 1), SYNC) for number in range(5)]
    assert ["E" in kinds(each) for each in found[:4]] == [False] * 4
    assert error(found[4])["C"] == "53200"
    assert "this connection keeps" in error(found[4])["M"]
    talk("ROLLBACK")
    assert "E" not in kinds(talk(*portal("again", WIDE, 1), SYNC))


def test_a_portal_that_was_read_to_its_end_keeps_nothing(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_HELD", 50_000)
    talk("BEGIN")
    for number in range(20):
        assert kinds(talk(*portal(f"p{number}", WIDE, 0), SYNC)).count("D") == 10
    assert talk.conversation.held == 0
    assert tags(talk(m.Execute("p0", 0), SYNC)) == ["SELECT 0"]
    talk("ROLLBACK")


def test_a_cursor_that_was_executed_to_its_end_still_goes_back(talk: Talk) -> None:
    talk("BEGIN", f"DECLARE c SCROLL CURSOR FOR {BY_SEX}")
    assert len(cells(talk(m.Execute("c", 0), SYNC))) == 2
    assert len(cells(talk("FETCH BACKWARD 2 FROM c"))) > 0
    talk("ROLLBACK")


def held_by_others(talks: list[Talk], me: int) -> int:
    return sum(talk.conversation.held for number, talk in enumerate(talks) if number != me)


def test_the_rows_of_all_connections_of_an_analyst_are_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MAX_HELD_BY_ANALYST", 50_000)
    talks: list[Talk] = []
    for number in range(5):
        talks.append(Talk(gate, others=lambda me=number: held_by_others(talks, me)))
        talks[number]("BEGIN")
    found = [talk(*portal("p", WIDE, 1), SYNC) for talk in talks]
    assert ["E" in kinds(each) for each in found] == [False] * 4 + [True]
    assert "your connections keep" in error(found[4])["M"]
    talks[0]("ROLLBACK")
    assert "E" not in kinds(talks[4]("ROLLBACK", "BEGIN", *portal("p", WIDE, 1), SYNC))


@pytest.mark.parametrize("sql", [WIDE, f"COPY ({WIDE}) TO STDOUT"])
def test_a_simple_query_and_a_copy_that_are_being_read_count(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    held: list[int] = []
    monkeypatch.setattr(outbox, "FEW", 0)  # so that rows are encoded as a piece of work
    monkeypatch.setattr(talk, "do", lambda work: (held.append(talk.conversation.held), work.run())[1])
    talk(sql)
    assert max(held) > 10_000
    assert talk.conversation.held == 0


def copied(found: list[Reply]) -> bytes:
    return b"".join(reply.body for reply in found if reply.kind == "d")


def test_copy_writes_text_csv_and_binary(talk: Talk) -> None:
    found = talk(f"COPY ({BY_SEX}) TO STDOUT")
    assert kinds(found) == "HddcCZ"
    assert tags(found) == ["COPY 2"]
    rows = [line.split(b"\t") for line in copied(found).splitlines()]
    assert [row[0] for row in rows] == [b"Female", b"Male"]
    csv = copied(talk(f"COPY ({BY_SEX}) TO STDOUT (FORMAT csv, HEADER)"))
    assert csv.splitlines()[0] == b"sex,n"
    binary = copied(talk(f"COPY ({BY_SEX}) TO STDOUT (FORMAT binary)"))
    assert binary.startswith(b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\0\2\0\0\0\6Female\0\0\0\x08")
    assert binary.endswith(b"\xff\xff")


def test_copy_quotes_and_escapes_what_needs_it(talk: Talk) -> None:
    sql = "SELECT 'a\tb\\' AS x, NULL AS y, 'say \"hi\", now' AS z, '' AS e"
    assert copied(talk(f"COPY ({sql}) TO STDOUT")) == b'a\\tb\\\\\t\\N\tsay "hi", now\t\n'
    assert copied(talk(f"COPY ({sql}) TO STDOUT CSV")) == b'a\tb\\,,"say ""hi"", now",""\n'
    quoted = copied(talk(f"COPY ({sql}) TO STDOUT (FORMAT csv, FORCE_QUOTE *, NULL 'none')"))
    assert quoted == b'"a\tb\\",none,"say ""hi"", now",""\n'


def test_an_empty_copy_in_binary_is_a_header_and_an_end(talk: Talk) -> None:
    found = talk("COPY (SELECT 1 WHERE false) TO STDOUT (FORMAT binary)")
    assert kinds(found) == "HdcCZ"
    assert copied(found) == b"PGCOPY\n\xff\r\n\0" + bytes(8) + b"\xff\xff"


def test_copy_of_rows_is_refused(talk: Talk) -> None:
    assert error(talk("COPY (SELECT * FROM adult) TO STDOUT"))["C"] == "42501"
    assert error(talk("COPY adult TO STDOUT"))["C"] == "42501"


# --- stopping ----------------------------------------------------------------------------------------------


class Stopping(Talk):
    """Stops a question at one of its steps."""

    def __init__(self, gate: Gate, at: str) -> None:
        super().__init__(gate)
        self.at = at

    def do(self, work: Work) -> object:
        if work.what != "ask":
            return work.run()
        step, ticket = work.ticket.step, work.ticket

        def hooked(name: str) -> None:
            if name == self.at:
                ticket.stop(CANCELED)
            step(name)

        ticket.step = hooked  # type: ignore[method-assign]  # the gate calls it by this name
        return work.run()


@pytest.mark.parametrize("at", ["planning", "measuring", "charging"])
def test_a_question_stopped_before_its_charge_costs_nothing(gate: Gate, at: str) -> None:
    talk = Stopping(gate, at)
    before = talk.spent()
    fields = error(talk(f"SELECT count(*) FROM adult WHERE hours = {40 + len(at)}"))
    assert fields["C"] == "57014"
    assert fields["D"] == "nothing was spent"
    assert talk.spent() == before


def test_a_question_stopped_after_its_charge_is_free_the_next_time(gate: Gate) -> None:
    talk, sql = Stopping(gate, "answering"), "SELECT count(*) FROM adult WHERE hours = 12"
    before = talk.spent()
    fields = error(talk(sql))
    assert fields["C"] == "57014"
    assert "free the next time" in fields["D"]
    spent = talk.spent()
    assert spent > before
    talk.at = "never"
    assert kinds(talk(sql)) == "TDCZ"
    assert talk.spent() == spent


def test_stopping_twice_keeps_the_first_reason() -> None:
    work = Work("ask", lambda: None)
    assert isinstance(work.ticket.stop(TIMEOUT), Stopped)
    ended = work.ticket.stop(CANCELED)
    assert ended is not None
    assert ended.message == TIMEOUT.message
    with pytest.raises(Stopped, match="statement timeout"):
        work.ticket.step("measuring")


# --- anything ----------------------------------------------------------------------------------------------

spoken = typed | st.builds(
    m.Query,
    st.sampled_from(["SELECT 1", "BEGIN", "ROLLBACK", "FETCH c", "DECLARE c CURSOR FOR SELECT 1", "SELECT", "CLOSE c",
                     "SAVEPOINT s", "ROLLBACK TO s", "COPY (SELECT 1) TO STDOUT", "SET jit = on; SHOW jit"]),
)  # fmt: skip


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(spoken, max_size=12))
def test_any_conversation_is_answered_and_ends_ready(talk: Talk, messages: list[Message]) -> None:
    talk.conversation.state = State.READY
    talk.conversation.take()
    try:
        found = talk(*messages)
    except ProtocolViolation:
        return
    if talk.conversation.state is not State.CLOSED:
        assert talk(m.Sync())[-1].kind == "Z"
        assert talk.conversation.state is State.READY
    expected = sum(isinstance(message, m.Query | m.Sync | m.FunctionCall) for message in messages)
    assert kinds(found).count("Z") <= expected
