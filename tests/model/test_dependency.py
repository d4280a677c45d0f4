"""A server that was not recorded, in words."""

from __future__ import annotations

from relive.model.dependency import Dependency, address_of, service_at


def test_it_is_named_with_what_listens_there_by_custom():
    assert (
        Dependency(to=address_of(("10.0.0.1", 5432)), service=service_at(5432)).words
        == "10.0.0.1:5432 (PostgreSQL)"
    )
    assert Dependency(to=address_of(("::1", 9)), service=service_at(9)).words == "[::1]:9"
