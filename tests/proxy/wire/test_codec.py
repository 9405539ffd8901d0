"""Every message round-trips: whole, byte by byte, and with bytes left over; what is no message is refused at once."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import messages as m
from proxy.wire.codec import Decoder, Limits
from proxy.wire.messages import Message, ProtocolViolation
from tests.proxy.wire.strategies import firsts, typed


def started() -> Decoder:
    decoder = Decoder()
    decoder.started()
    decoder.logged_in()
    return decoder


def all_of(decoder: Decoder) -> list[Message]:
    found = []
    while (message := decoder.next()) is not None:
        found.append(message)
    return found


@given(firsts)
def test_a_first_message_round_trips(message: Message) -> None:
    decoder = Decoder()
    decoder.feed(message.write())
    assert decoder.next() == message
    assert decoder.waiting == 0


@given(st.lists(typed, max_size=6))
def test_messages_round_trip_in_one_piece(sent: list[Message]) -> None:
    decoder = started()
    decoder.feed(b"".join(message.write() for message in sent))
    assert all_of(decoder) == sent
    assert decoder.waiting == 0


@given(st.lists(typed, min_size=1, max_size=3))
def test_messages_round_trip_byte_by_byte(sent: list[Message]) -> None:
    decoder = started()
    found = []
    for byte in b"".join(message.write() for message in sent):
        decoder.feed(bytes([byte]))
        found += all_of(decoder)
    assert found == sent


@given(firsts, st.data())
def test_a_first_message_round_trips_in_two_pieces(message: Message, data: st.DataObject) -> None:
    written, decoder = message.write(), Decoder()
    cut = data.draw(st.integers(0, len(written) - 1))
    decoder.feed(written[:cut])
    assert decoder.next() is None
    decoder.feed(written[cut:])
    assert decoder.next() == message


@given(typed, typed, st.data())
def test_bytes_left_over_wait_for_the_rest(first: Message, second: Message, data: st.DataObject) -> None:
    rest = second.write()
    cut = data.draw(st.integers(0, len(rest) - 1))
    decoder = started()
    decoder.feed(first.write() + rest[:cut])
    assert all_of(decoder) == [first]
    assert decoder.waiting == cut
    decoder.feed(rest[cut:])
    assert all_of(decoder) == [second]


@given(typed, st.data())
def test_a_body_that_is_cut_short_is_refused_or_another_message(message: Message, data: st.DataObject) -> None:
    """The length says less than the body needs: nothing is ever read beyond it."""
    kind, body = message.write()[:1], message.write()[5:]
    short = body[: data.draw(st.integers(0, len(body)))]
    decoder = started()
    decoder.feed(m.framed(kind, short))
    try:
        found = decoder.next()
    except ProtocolViolation:
        return
    assert found is not None
    assert found.write()[5:] == short or isinstance(found, m.Execute)  # a negative limit is read as none


@given(typed)
def test_a_body_that_is_too_long_is_refused(message: Message) -> None:
    if isinstance(message, m.Password | m.CopyData | m.FunctionCall):
        return  # these are all body
    written = message.write()
    decoder = started()
    decoder.feed(m.framed(written[:1], written[5:] + b"\0"))
    with pytest.raises(ProtocolViolation):
        decoder.next()


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_messages_or_a_violation(data: bytes, first: bool) -> None:
    decoder = Decoder() if first else started()
    decoder.feed(data)
    with suppress(ProtocolViolation):
        all_of(decoder)


@given(st.lists(typed, min_size=1, max_size=4), st.data())
def test_flipped_bits_give_messages_or_a_violation(sent: list[Message], data: st.DataObject) -> None:
    written = bytearray(b"".join(message.write() for message in sent))
    place = data.draw(st.integers(0, len(written) - 1))
    written[place] ^= 1 << data.draw(st.integers(0, 7))
    decoder = started()
    decoder.feed(bytes(written))
    with suppress(ProtocolViolation):
        all_of(decoder)


@pytest.mark.parametrize("length", [0, 1, 7, 10_001, 2**31 - 1, 2**32 - 1])
def test_a_wrong_length_of_the_first_message_is_refused_before_its_body_comes(length: int) -> None:
    decoder = Decoder()
    decoder.feed(struct.pack("!I", length))
    with pytest.raises(ProtocolViolation, match="length of a message"):
        decoder.next()


@pytest.mark.parametrize("length", [0, 3, 2**31 - 1, 2**32 - 1])
def test_a_wrong_length_is_refused_before_its_body_comes(length: int) -> None:
    decoder = started()
    decoder.feed(b"Q" + struct.pack("!I", length))
    with pytest.raises(ProtocolViolation, match="length of a message"):
        decoder.next()


def test_messages_before_the_login_have_a_smaller_limit() -> None:
    decoder = Decoder(Limits(login=100, message=1_000))
    decoder.started()
    decoder.feed(b"p" + struct.pack("!I", 101))
    with pytest.raises(ProtocolViolation, match="between 4 and 100 bytes"):
        decoder.next()
    decoder = Decoder(Limits(login=100, message=1_000))
    decoder.started()
    decoder.logged_in()
    decoder.feed(b"Q" + struct.pack("!I", 1_000))
    assert decoder.next() is None


def test_an_unknown_type_is_refused_with_its_first_byte() -> None:
    decoder = started()
    decoder.feed(b"\x16")
    with pytest.raises(ProtocolViolation, match="type that is not known"):
        decoder.next()


def test_another_version_of_the_protocol_is_refused() -> None:
    decoder = Decoder()
    decoder.feed(m.framed(b"", m.int32(2 << 16) + b"\0"))
    with pytest.raises(ProtocolViolation, match="version 3"):
        decoder.next()


def test_a_bind_with_65535_values_is_read() -> None:
    bind = m.Bind("", "", (), (b"1",) * m.MOST_PARAMETERS, ())
    decoder = started()
    decoder.feed(bind.write())
    assert decoder.next() == bind


def test_a_violation_never_repeats_what_was_sent() -> None:
    decoder = started()
    decoder.feed(m.framed(b"Q", b"secret without an end"))
    with pytest.raises(ProtocolViolation) as refused:
        decoder.next()
    assert "secret" not in str(refused.value)


def test_the_first_answer_under_sasl_round_trips() -> None:
    initial = m.SaslInitial("SCRAM-SHA-256", b"n,,n=,r=abc")
    decoder = started()
    decoder.feed(initial.write())
    password = decoder.next()
    assert isinstance(password, m.Password)
    assert m.SaslInitial.of(password) == initial
