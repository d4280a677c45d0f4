"""Certificates for tests: an authority, and servers' certificates by it."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = datetime.datetime.now(datetime.UTC)


class TestAuthority:
    """An authority of its own; ``pem`` is its certificate, ``path`` the file that holds it."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = _begun(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.path = directory / f"{name.replace(' ', '-')}.pem"
        self.path.write_bytes(self.pem)

    def server(self, *names: str, asks: TestAuthority | None = None) -> ssl.SSLContext:
        """A server's context; ``asks``: it wants clients to have a certificate of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(*names))
        if asks is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(asks.path)
        return context

    def issue(self, *names: str) -> Path:
        """A file with certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        leaf = _begun(subject, self._name, key).add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
        path = self._directory / f"{names[0]}-{key.private_numbers().private_value % 10**9}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        signed = leaf.sign(self._key, hashes.SHA256())
        path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
        return path

    def client(self) -> ssl.SSLContext:
        """A client's context that trusts it alone."""
        return ssl.create_default_context(cafile=str(self.path))


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - day)
        .not_valid_after(_NOW + day)
    )
