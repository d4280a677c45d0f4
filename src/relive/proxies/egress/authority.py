"""The certificate authority of one life: what the recorder at the border shows the service in place of a server's certificate.

A directory holds ``authority.key`` and ``authority.pem`` (PEM), both for their owner only, and ``closed``: a line for each name of
which TLS is not opened, with the reason behind a tab. The key never leaves it; the service knows the certificate alone.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections import OrderedDict
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from relive.recording.certificates import begun, named, signed

__all__ = ["Authority"]

_KEY, _CERTIFICATE, _CLOSED = "authority.key", "authority.pem", "closed"
_DAYS = 3650
_LEAF_DAYS = 90
_CONTEXTS_MOST = 256
_CLOSED_MOST = 4096


class Authority:
    """Use it from one thread. ``make`` it once, ``load`` it wherever certificates are minted.

    Attributes:
        certificate: its own, PEM.
    """

    def __init__(
        self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self._directory = directory
        self._key = key
        self._own = certificate
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[tuple[bytes, str | None], ssl.SSLContext] = OrderedDict()
        self._closed = _read_closed(directory / _CLOSED)
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def make(cls, directory: Path, name: str) -> Authority:
        """Make a new one; ``name`` stands in its certificate. Raises OSError when the directory cannot be written."""
        directory.mkdir(mode=0o700, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = named(f"Relive, capsule {name}")
        builder = (
            begun(subject, subject, key, days=_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        certificate = signed(builder, key)
        _write(directory / _KEY, _pem(key))
        _write(directory / _CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
        return cls(directory, key, certificate)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """Read one.

        Raises:
            OSError, ValueError: it is not there, or damaged.
        """
        key = serialization.load_pem_private_key((directory / _KEY).read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{directory / _KEY} holds a key of another kind")
        return cls(directory, key, x509.load_pem_x509_certificate((directory / _CERTIFICATE).read_bytes()))

    def context_for(self, real: bytes, protocol: str | None) -> ssl.SSLContext:
        """What to meet the service with in place of a server.

        Args:
            real: the server's certificate, DER; name, alternative names are taken from it.
            protocol: that the server chose (ALPN).
        """
        context = self._contexts.get((real, protocol))
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._show(context, self._minted(x509.load_der_x509_certificate(real)))
            if protocol is not None:
                context.set_alpn_protocols([protocol])
            self._contexts[real, protocol] = context
            if len(self._contexts) > _CONTEXTS_MOST:
                self._contexts.popitem(last=False)
        return context

    def is_closed(self, name: str) -> bool:
        """TLS to this name is passed on as it is."""
        return name in self._closed

    def close_for(self, name: str, reason: str) -> None:
        """From now on TLS to this name is passed on as it is, also by later recorders of this life."""
        if name in self._closed or len(self._closed) >= _CLOSED_MOST:
            return
        self._closed[name] = reason
        line = f"{name}\t{reason}".replace("\n", " ") + "\n"
        with contextlib.suppress(OSError), (self._directory / _CLOSED).open("a") as file:  # a full disk
            file.write(line)

    def _minted(self, real: x509.Certificate) -> bytes:
        builder = (
            begun(real.subject, self._own.subject, self._leaf_key, days=_LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        with contextlib.suppress(x509.ExtensionNotFound):
            names = real.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            builder = builder.add_extension(names.value, critical=names.critical)
        return signed(builder, self._key).public_bytes(serialization.Encoding.PEM)

    def _show(self, context: ssl.SSLContext, leaf: bytes) -> None:
        """``ssl`` takes certificates from files only: one that has no name."""
        file = os.memfd_create("leaf", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as stream:
                stream.write(leaf + self.certificate + _pem(self._leaf_key))
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _read_closed(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    return {name: reason for name, _, reason in (line.partition("\t") for line in lines)}
