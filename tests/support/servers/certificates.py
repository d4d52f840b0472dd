"""Certificates: of authorities, of their clients, and such as sign themselves."""

import datetime as dt
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
Key = ec.EllipticCurvePrivateKey


def certificate(folder: Path, host: str = "localhost", days: int = 1) -> Path:
    """A file with the certificate of `host`, valid for `days`, and its key: authority, server and client."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    signed = (
        _builder(name, name, key, days, is_authority=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _written(folder / "host.pem", signed, key)


class Authority:
    """Signs certificates; `path`: its own, as PEM."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self._folder = folder / f"{name}.pem", folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = _builder(self._name, self._name, self._key, 2, is_authority=True)
        self.path.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def client(self, organisation: str, name: str, *, days: int = 1) -> Path:
        """A file with the certificate of a client, valid for `days`, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = ((NameOID.ORGANIZATION_NAME, organisation), (NameOID.COMMON_NAME, name))
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
        signed = _builder(self._name, subject, key, days, is_authority=False).sign(self._key, hashes.SHA256())
        return _written(self._folder / f"client-{time.monotonic_ns()}.pem", signed, key)


def _builder(
    issuer: x509.Name, subject: x509.Name, key: Key, days: int, *, is_authority: bool
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=9))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def _written(path: Path, signed: x509.Certificate, key: Key) -> Path:
    text = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(signed.public_bytes(PEM) + text)
    return path
