"""Who is there: SCRAM-SHA-256 (RFC 5802, RFC 7677) with channel binding, and back-off after failed logins."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections import OrderedDict
from dataclasses import dataclass

from planner.policy.file import Policy
from planner.policy.passwords import SALT_BYTES, Verifier, read_verifier
from proxy.limits import ELSEWHERE_TRIES, FAMILIAR_WAIT, FORGET_AFTER, FREE_TRIES, LONGEST_WAIT, MAX_REMEMBERED

PLAIN, PLUS = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"
BINDING = "tls-server-end-point"
NONCE_BYTES = 18
FAKE_ITERATIONS = 4096


class LoginFailed(Exception):
    """The login failed. The client learns nothing else; `reason` is for the log."""

    def __init__(self, reason: str, *, sqlstate: str = "28P01") -> None:
        super().__init__(reason)
        self.reason, self.sqlstate = reason, sqlstate


def new_nonce() -> str:
    return base64.b64encode(os.urandom(NONCE_BYTES)).decode()


def new_secret() -> bytes:
    """Return a key that a cancel request must show."""
    return os.urandom(4)


def new_salts() -> str:
    """Return a secret from which salts for unknown names are derived, in hex."""
    return os.urandom(32).hex()


@dataclass(frozen=True)
class Verifiers:
    """The verifiers of a policy, and a secret from which those for unknown names are derived."""

    known: dict[str, Verifier]
    secret: bytes

    @classmethod
    def of(cls, policy: Policy, secret: bytes) -> Verifiers:
        """Return those of a policy.

        Args:
            secret: must stay the same over restarts, in all gates, whichever passwords change.
        """
        texts = {name: analyst.password for name, analyst in policy.analysts.items() if analyst.password}
        return cls({name: read_verifier(text) for name, text in texts.items()}, secret)

    def of_user(self, user: str) -> tuple[Verifier, bool]:
        """Return the verifier of a user, and whether there is such a user.

        Guarantee: for an unknown name the salt is the same every time, length and iterations are those of a verifier
        of the policy, and no password fits.
        """
        found = self.known.get(user)
        if found is not None:
            return found, True
        shapes = sorted({(v.iterations, len(v.salt)) for v in self.known.values()}) or [(FAKE_ITERATIONS, SALT_BYTES)]
        iterations, length = shapes[int.from_bytes(self._made_up("shape", user)) % len(shapes)]
        salt, stored = self._made_up("salt", user, length), self._made_up("stored", user)
        return Verifier(iterations, salt, stored, stored), False

    def _made_up(self, what: str, user: str, length: int = 32) -> bytes:
        return hashlib.shake_256(self.secret + f"{what}\0{user}".encode()).digest(length)


class Scram:
    """One exchange: the client's first message, its final message, and whether it knows the password."""

    def __init__(self, verifier: Verifier, *, known: bool, binding: bytes | None, nonce: str | None = None) -> None:
        self._verifier, self._known, self._binding = verifier, known, binding
        self._nonce = nonce or new_nonce()
        self._header = self._client_bare = self._server_first = ""
        self._bound = False

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (PLUS, PLAIN) if self._binding is not None else (PLAIN,)

    def first(self, mechanism: str, data: bytes) -> bytes:
        """Return the server's challenge to the client's first message."""
        if mechanism not in self.mechanisms:
            raise LoginFailed("the client chose a mechanism that was not offered", sqlstate="08P01")
        text = _ascii(data)
        flag, _, rest = text.partition(",")
        authorization, _, self._client_bare = rest.partition(",")
        self._bound = mechanism == PLUS
        if not self._flag_is_right(flag):
            raise LoginFailed("the channel binding does not fit what was offered", sqlstate="08P01")
        if authorization:  # to log in as one analyst and be another is not offered
            raise LoginFailed("the client names an authorization identity", sqlstate="0A000")
        self._header = f"{flag},,"
        fields = self._client_bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r=") or len(fields[1]) < 10:
            raise LoginFailed("the client's first message can't be read", sqlstate="08P01")
        self._nonce = fields[1][2:] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        return self._server_first.encode()

    def _flag_is_right(self, flag: str) -> bool:
        """Return whether the client binds the channel if it chose to, and saw our offer if it can bind one."""
        if self._bound:
            return flag == f"p={BINDING}"
        return flag == "n" or (flag == "y" and self._binding is None)

    def final(self, data: bytes) -> bytes:
        """Return the server's proof, or raise LoginFailed: wrong password, unknown user, another channel."""
        text = _ascii(data)
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = without_proof.split(",")
        if len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
            raise LoginFailed("the client's final message can't be read", sqlstate="08P01")
        message = f"{self._client_bare},{self._server_first},{without_proof}".encode()
        proved = self._proves(_decoded(proof_text), message)
        bound = hmac.compare_digest(_decoded(fields[0][2:]), self._channel())
        same = hmac.compare_digest(fields[1][2:].encode(), self._nonce.encode())
        if not (proved & bound & same & self._known):
            raise LoginFailed("wrong password" if self._known else "no such analyst, or no password set")
        signature = hmac.digest(self._verifier.server_key, message, "sha256")
        return b"v=" + base64.b64encode(signature)

    def _channel(self) -> bytes:
        return self._header.encode() + (self._binding or b"" if self._bound else b"")

    def _proves(self, proof: bytes, message: bytes) -> bool:
        signature = hmac.digest(self._verifier.stored_key, message, "sha256")
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key)


def _ascii(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text or "\0" in text:
        raise LoginFailed("a SCRAM message can't be read", sqlstate="08P01")
    return text


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginFailed("a SCRAM message can't be read", sqlstate="08P01") from None


Key = tuple[str, str]
"""Address of the client, and the name it gave; the address is empty for all of them together."""


class BackOff:
    """Makes those who fail to log in wait: after some free tries twice as long each time, up to a minute.

    Whoever judges a password asks `wait` right before, so that many tries at once are no more than many in turn.
    Counted for each address and name together, so that nobody can lock an analyst out from elsewhere, and besides for
    each name over all addresses that never logged in with it, so that guessing from many addresses is slow as well.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[Key, tuple[int, float]] = OrderedDict()
        self._familiar: OrderedDict[Key, None] = OrderedDict()

    def knows(self, key: Key) -> bool:
        """Return whether somebody logged in with this name from this address before."""
        return key in self._familiar

    def wait(self, key: Key, now: float) -> float:
        """Return for how many seconds a login is refused, even with the right password."""
        if self.knows(key):
            return self._wait(key, now, free=FREE_TRIES, longest=FAMILIAR_WAIT)
        return max(
            self._wait(key, now, free=FREE_TRIES, longest=LONGEST_WAIT),
            self._wait(_anywhere(key), now, free=ELSEWHERE_TRIES, longest=LONGEST_WAIT),
        )

    def _wait(self, key: Key, now: float, *, free: int, longest: float) -> float:
        count, last = self._failures.get(key, (0, now))
        if count < free:
            return 0.0
        return max(0.0, last + min(longest, 2.0 ** min(count - free, 10)) - now)

    def failed(self, key: Key, now: float) -> None:
        for counted in (key,) if self.knows(key) else (key, _anywhere(key)):
            count, last = self._failures.pop(counted, (0, now))
            self._failures[counted] = (1 if now - last > FORGET_AFTER else count + 1), now
        while len(self._failures) > MAX_REMEMBERED:
            del self._failures[self._least_missed()]

    def _least_missed(self) -> Key:
        """Return the oldest key that need not wait: else many invented names would erase failures at a real one."""
        free = (key for key, (count, _) in self._failures.items() if count < FREE_TRIES)
        return next(free, next(iter(self._failures)))

    def succeeded(self, key: Key) -> None:
        self._failures.pop(key, None)
        self._familiar.pop(key, None)
        self._familiar[key] = None
        while len(self._familiar) > MAX_REMEMBERED:
            self._familiar.popitem(last=False)


def _anywhere(key: Key) -> Key:
    return "", key[1]
