"""Certificates are what other implementations take for one."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from relive.recording.certificates import begun, named, self_signed, signed


@pytest.mark.parametrize(
    ("name", "kind"), [("shop.example", x509.DNSName), ("10.0.0.1", x509.IPAddress), ("::1", x509.IPAddress)]
)
def test_one_of_a_name_or_address_is_signed_by_its_own_key(name: str, kind: type[x509.GeneralName]) -> None:
    found = x509.load_der_x509_certificate(self_signed(name))
    found.verify_directly_issued_by(found)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(value) for value in names.get_values_for_type(kind)] == [name]


def test_a_name_longer_than_a_certificate_may_hold_is_cut() -> None:
    (part,) = named("x" * 100)
    assert part.value == "x" * 64


def test_it_counts_from_yesterday_so_that_clocks_may_differ() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    found = signed(begun(named("a"), named("issuer"), key, days=3), key)
    now = datetime.datetime.now(datetime.UTC)
    assert found.not_valid_before_utc < now - datetime.timedelta(hours=23)
    assert now < found.not_valid_after_utc < now + datetime.timedelta(days=4)
    assert found.issuer == named("issuer")
