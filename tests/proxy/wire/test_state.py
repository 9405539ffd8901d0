"""One table holds every transition; whatever messages come, the state is one of it or the client is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire import messages as m
from proxy.wire.messages import Message, ProtocolViolation
from proxy.wire.state import TRANSITIONS, Event, State, after
from tests.proxy.wire.strategies import firsts, typed

events = st.one_of(firsts, typed, st.sampled_from(Event))


@given(st.sampled_from(State), events)
def test_every_event_has_a_state_or_is_a_violation(state: State, event: Message | Event) -> None:
    try:
        assert isinstance(after(state, event), State)
    except ProtocolViolation:
        assert (state, event if isinstance(event, Event) else type(event)) not in TRANSITIONS


@given(st.lists(events, max_size=30))
def test_nothing_comes_after_the_end(sequence: list[Message | Event]) -> None:
    state = State.OPENED
    for event in sequence:
        try:
            state = after(state, event)
        except ProtocolViolation:
            state = State.CLOSED
        if state is State.CLOSED:
            break
    if state is State.CLOSED:
        for event in sequence:
            if event is not Event.GOODBYE:
                with pytest.raises(ProtocolViolation):
                    after(state, event)


@given(st.lists(typed, max_size=30))
def test_no_statement_is_read_before_the_login(sequence: list[Message]) -> None:
    for state in (State.OPENED, State.SECURED, State.LOGIN):
        for message in sequence:
            if not isinstance(message, m.Password | m.Terminate):
                with pytest.raises(ProtocolViolation):
                    after(state, message)


def test_after_a_failure_everything_is_skipped_up_to_the_next_sync() -> None:
    state = after(State.READY, m.Parse("", "SELECT"))
    state = after(state, Event.FAILED)
    for message in (m.Bind("", ""), m.Execute(""), m.Flush(), m.Query("SELECT 1"), m.Close(m.PORTAL, "")):
        assert after(state, message) is State.SKIPPING
    assert after(state, m.Sync()) is State.READY


def test_tls_begins_once() -> None:
    with pytest.raises(ProtocolViolation):
        after(after(after(State.OPENED, m.SslRequest()), Event.TLS), m.SslRequest())


def test_every_state_is_reached_and_can_be_left() -> None:
    reached = {State.OPENED, *TRANSITIONS.values()}
    assert reached == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State)
