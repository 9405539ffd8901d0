"""Messages of clients, as hypothesis makes them up."""

from __future__ import annotations

from hypothesis import strategies as st

from proxy.wire import messages as m
from proxy.wire.messages import Message
from proxy.wire.values import Format

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)
numbers = st.integers(0, 2**32 - 1)
payloads = st.binary(max_size=40)
formats = st.lists(st.sampled_from(Format), max_size=5).map(tuple)
whats = st.sampled_from([m.STATEMENT, m.PORTAL])

firsts: st.SearchStrategy[Message] = st.one_of(
    st.builds(m.Startup, st.sampled_from([m.PROTOCOL_3, m.PROTOCOL_3 + 2]), st.dictionaries(names, texts, max_size=4)),
    st.just(m.SslRequest()),
    st.just(m.GssRequest()),
    st.builds(m.CancelRequest, numbers, st.binary(min_size=4, max_size=256)),
)

typed: st.SearchStrategy[Message] = st.one_of(
    st.builds(m.Password, payloads),
    st.builds(m.Query, texts),
    st.builds(m.Parse, texts, texts, st.lists(numbers, max_size=5).map(tuple)),
    st.builds(m.Bind, texts, texts, formats, st.lists(st.none() | payloads, max_size=5).map(tuple), formats),
    st.builds(m.Describe, whats, texts),
    st.builds(m.Close, whats, texts),
    st.builds(m.Execute, texts, st.integers(0, 2**31 - 1)),
    st.sampled_from([m.Sync(), m.Flush(), m.Terminate(), m.CopyDone()]),
    st.builds(m.CopyData, payloads),
    st.builds(m.CopyFail, texts),
    st.builds(m.FunctionCall, payloads),
)
