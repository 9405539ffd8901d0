"""The server's certificate: the policy's, or one made on first start that signs itself."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import ssl
import stat
import uuid
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from planner.basics.errors import SourceFailed
from planner.basics.files import publish

VALID_DAYS = 3650


@dataclass(frozen=True)
class Tls:
    """What a TLS listener needs; `binding` is the certificate's hash for SCRAM, None where no rule gives one."""

    context: ssl.SSLContext
    binding: bytes | None
    fingerprint: str


def load(certificate: Path, key: Path) -> Tls:
    """Return the listener's side of TLS from a certificate (chain) and its key, in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        _check_private(key)
        context.load_cert_chain(certificate, key)
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        words = "reason" if isinstance(error, ssl.SSLError) else "strerror"
        reason = getattr(error, words, None) or "they can't be read as PEM"
        raise SourceFailed(
            f"the certificate {certificate.name} with the key {key.name} can't be used: {str(reason).lower()}",
            hint="both must be PEM files, without a passphrase, and belong together",
        ) from None
    return Tls(context, _binding(found), found.fingerprint(hashes.SHA256()).hex(":"))


def _check_private(key: Path) -> None:
    """Raise unless only its owner can read the key, or a group as well if it is root's: PostgreSQL's own rule."""
    status = key.stat()
    shared = 0o037 if status.st_uid == 0 else 0o077
    if status.st_mode & shared:
        raise SourceFailed(
            f"others can read the key {key.name}: its mode is {stat.S_IMODE(status.st_mode):04o}",
            hint=f"chmod 600 {key.name}",
        )


def _binding(certificate: x509.Certificate) -> bytes | None:
    """Return tls-server-end-point of RFC 5929: the certificate under its own hash, SHA-256 instead of weaker ones."""
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None:  # Ed25519 has none
        return None
    name = "sha256" if algorithm.name in ("md5", "sha1") else algorithm.name
    return hashlib.new(name, certificate.public_bytes(serialization.Encoding.DER)).digest()


def self_signed(policy: Path, host: str) -> tuple[Path, Path]:
    """Return certificate and key beside the policy, after making them if they are not there.

    Several may do so at once: whoever is first gives the key its name, and every certificate is made from that key.
    Guarantee: the key is readable by its owner only, from the moment it exists.
    """
    certificate, key = policy.with_suffix(".tls.crt"), policy.with_suffix(".tls.key")
    if not key.exists():
        _write(key, ec.generate_private_key(ec.SECP256R1()).private_bytes(*PEM_KEY))
    if not _fits(certificate, key):
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        _write(certificate, _certificate(private, host).public_bytes(serialization.Encoding.PEM), replace=True)
    return certificate, key


def _fits(certificate: Path, key: Path) -> bool:
    """Return whether there is a certificate of this key; one left over from another key is useless."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except FileNotFoundError:
        return False
    except ssl.SSLError as error:
        return error.reason != "KEY_VALUES_MISMATCH"
    return True


PEM_KEY = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _certificate(private: ec.EllipticCurvePrivateKey, host: str) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "noisegate")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")), _general_name(host)]
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(dict.fromkeys(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file that appears whole; unless it may be replaced, it is left to whoever was faster."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path) if replace else publish(draft, path)
    except OSError as error:
        raise SourceFailed(
            f"the certificate {path.name} can't be written: {(error.strerror or 'unknown reason').lower()}",
            hint="make the policy's folder writable, or name a certificate and key in [server]",
        ) from None
    finally:
        draft.unlink(missing_ok=True)
