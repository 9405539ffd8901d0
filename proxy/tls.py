"""The server's certificate: the policy's, or one made on first start that signs itself."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from planner.errors import SourceFailed

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
        context.load_cert_chain(certificate, key)
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it can't be read"
        raise SourceFailed(
            f"the certificate {certificate.name} with the key {key.name} can't be used: {str(reason).lower()}",
            hint="both must be PEM files, without a passphrase, and belong together",
        ) from None
    return Tls(context, _binding(found), found.fingerprint(hashes.SHA256()).hex(":"))


def _binding(certificate: x509.Certificate) -> bytes | None:
    """Return tls-server-end-point of RFC 5929: the certificate under its own hash, SHA-256 instead of weaker ones."""
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None:  # Ed25519 has none
        return None
    name = "sha256" if algorithm.name in ("md5", "sha1") else algorithm.name
    return hashlib.new(name, certificate.public_bytes(serialization.Encoding.DER)).digest()


def self_signed(policy: Path, host: str) -> tuple[Path, Path]:
    """Return certificate and key beside the policy, after making them if they are not there.

    Guarantee: the key is readable by its owner only, from the moment it exists.
    """
    certificate, key = policy.with_suffix(".tls.crt"), policy.with_suffix(".tls.key")
    if not (certificate.exists() and key.exists()):
        private = ec.generate_private_key(ec.SECP256R1())
        _write(key, private.private_bytes(*PEM_KEY))
        _write(certificate, _certificate(private, host).public_bytes(serialization.Encoding.PEM))
    return certificate, key


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


def _write(path: Path, data: bytes) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise SourceFailed(
            f"the certificate {path.name} can't be written: {(error.strerror or 'unknown reason').lower()}",
            hint="make the policy's folder writable, or name a certificate and key in [server]",
        ) from None
