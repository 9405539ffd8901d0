"""SCRAM-SHA-256 verifiers, against RFC 7677 and RFC 4013."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policy.passwords import is_verifier, saslprep, scram_verifier, verify

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = (  # RFC 7677, section 3
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


def test_the_verifier_of_rfc_7677_is_reproduced() -> None:
    assert scram_verifier("pencil", salt=SALT) == PENCIL


def test_a_verifier_accepts_its_password_and_no_other() -> None:
    assert verify("pencil", PENCIL)
    assert not verify("pencil ", PENCIL)
    assert not verify("", PENCIL)


def test_two_verifiers_of_one_password_differ_by_their_salt() -> None:
    first, second = scram_verifier("pencil", iterations=1), scram_verifier("pencil", iterations=1)
    assert first != second
    assert verify("pencil", first)
    assert verify("pencil", second)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
@settings(deadline=None)
def test_every_password_makes_a_verifier_that_accepts_it(password: str) -> None:
    verifier = scram_verifier(password, iterations=1)
    assert is_verifier(verifier)
    assert verify(password, verifier)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pencil",
        "SCRAM-SHA-256$4096:...",
        PENCIL.replace("256", "1"),
        PENCIL.replace("$4096", "$0"),
        PENCIL.replace("gQ==", "gQ="),
        PENCIL + "\n",
        PENCIL[:-2],
    ],
)
def test_what_is_not_a_verifier_is_not_taken_for_one(text: str) -> None:
    assert not is_verifier(text)
    assert not verify("pencil", text)


@pytest.mark.parametrize(
    ("password", "prepared"),
    [  # RFC 4013, section 3; the last two are prohibited there and stay as they are, as in PostgreSQL
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007", "\u0007"),
        ("\u0627\u0031", "\u0627\u0031"),
    ],
)
def test_passwords_are_prepared_as_rfc_4013_says(password: str, prepared: str) -> None:
    assert saslprep(password) == prepared


def test_passwords_that_prepare_alike_are_one_password() -> None:
    assert verify("IX", scram_verifier("\u2168", iterations=1))


def test_an_empty_password_and_no_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        scram_verifier("")
    with pytest.raises(ValueError, match="iterations"):
        scram_verifier("pencil", iterations=0)
