"""Certificates as the life's authority and the stubs make them: of keys on P-256, valid from yesterday, signed with SHA-256."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["begun", "named", "self_signed", "signed"]


def named(text: str) -> x509.Name:
    """A subject with this common name, of which 64 characters are kept (RFC 5280, ub-common-name)."""
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    """What every certificate of ``key`` holds, for so many days from now; extensions are still to be added."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """The certificate, signed by the issuer's key."""
    return builder.sign(key, hashes.SHA256())


def self_signed(name: str) -> bytes:
    """A certificate (DER) of a name or address, to be imitated by the authority; its own key signs it, and is thrown away."""
    try:
        general: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        general = x509.DNSName(name)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = begun(named(name), named(name), key, days=1)
    builder = builder.add_extension(x509.SubjectAlternativeName([general]), critical=False)
    return signed(builder, key).public_bytes(serialization.Encoding.DER)
