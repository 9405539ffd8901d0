"""Passwords as PostgreSQL keeps them: a SCRAM-SHA-256 verifier (RFC 5802, RFC 7677), never the password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stringprep
import unicodedata
from dataclasses import dataclass

SALT_BYTES = 16

_BASE64 = "[A-Za-z0-9+/]+={0,2}"
_VERIFIER = re.compile(
    rf"SCRAM-SHA-256\$(?P<iterations>[1-9][0-9]{{0,8}}):(?P<salt>{_BASE64})"
    r"\$(?P<stored>[A-Za-z0-9+/]{43}=):(?P<server>[A-Za-z0-9+/]{43}=)"
)

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def scram_verifier(password: str, *, iterations: int = 4096, salt: bytes | None = None) -> str:
    """Return `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, in base64, as in pg_authid.

    Guarantee: the verifier lets a server check a password, but not log in with it elsewhere; a weak password
    can still be guessed from it, so it is kept as carefully as the policy file.
    """
    if not password:
        raise ValueError("the password is empty")
    if not 1 <= iterations <= 999_999_999:
        raise ValueError(f"iterations must be between 1 and 999999999, got {iterations}")
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    stored_key, server_key = _keys(password, salt=salt, iterations=iterations)
    return f"SCRAM-SHA-256${iterations}:{_encoded(salt)}${_encoded(stored_key)}:{_encoded(server_key)}"


def verify(password: str, verifier: str) -> bool:
    """Return whether `verifier` was made from `password`; takes the same time wherever they differ."""
    if not is_verifier(verifier):
        return False
    parts = read_verifier(verifier)
    stored_key, server_key = _keys(password, salt=parts.salt, iterations=parts.iterations)
    return hmac.compare_digest(stored_key + server_key, parts.stored_key + parts.server_key)


@dataclass(frozen=True)
class Verifier:
    """The parts of a verifier, as a SCRAM exchange needs them."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def read_verifier(text: str) -> Verifier:
    """Return the parts of a verifier; ValueError if it is none."""
    match = _VERIFIER.fullmatch(text)
    if match is None or not is_verifier(text):
        raise ValueError("this is not a SCRAM-SHA-256 verifier")
    salt, stored, server = (base64.b64decode(match[part]) for part in ("salt", "stored", "server"))
    return Verifier(int(match["iterations"]), salt, stored, server)


def is_verifier(text: str) -> bool:
    """Return whether `text` has the form of a verifier; a plain password in its place has not."""
    match = _VERIFIER.fullmatch(text)
    return match is not None and len(match["salt"]) % 4 == 0


def _keys(password: str, *, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Return (StoredKey, ServerKey) of RFC 5802, section 3."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")


def saslprep(password: str) -> str:
    """Return the password prepared by RFC 4013, or as it is where that prohibits it, as PostgreSQL does."""
    kept = [c for c in password if not stringprep.in_table_b1(c)]
    mapped = "".join(" " if stringprep.in_table_c12(c) else c for c in kept)
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    return prepared if prepared and _permitted(prepared) else password


def _permitted(text: str) -> bool:
    if any(stringprep.in_table_a1(c) or any(table(c) for table in _PROHIBITED) for c in text):
        return False
    right_to_left = [stringprep.in_table_d1(c) for c in text]
    if not any(right_to_left):
        return True
    # RFC 3454, section 6: text that runs right to left starts and ends so, and has no left-to-right letters.
    return right_to_left[0] and right_to_left[-1] and not any(stringprep.in_table_d2(c) for c in text)


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
