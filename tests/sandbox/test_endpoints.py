"""Destinations are there as they are wanted, and do not stand in the service's way."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from relive.sandbox.endpoints import Door, OpenedEndpoints, Outside, open_endpoints, plain_address, set_door
from replay.stubs.sealed import Network, network

HERE, THERE, SIX = ("10.0.0.5", 5432), ("10.0.0.6", 5432), ("fd00::5", 80)


@pytest.fixture
def inside() -> Iterator[Network]:
    with network("10.0.0.5", "10.0.0.6", "fd00::5") as made:
        yield made


def opened(inside: Network, outside: Outside, own: list[tuple[str, int]]) -> OpenedEndpoints:
    ends = OpenedEndpoints()
    inside.within(lambda: open_endpoints(outside, own, ends))
    return ends


def test_destinations_take_connections_refuse_them_or_are_silent(inside: Network) -> None:
    ends = opened(inside, Outside(destinations={HERE: Door.OPEN, THERE: Door.REFUSES, SIX: Door.SILENT}), [])
    try:
        assert inside.outcome(HERE) == "connected"
        assert inside.outcome(THERE) == "ConnectionRefusedError"
        assert inside.outcome(SIX, 0.2) == "TimeoutError"
        assert inside.outcome(("10.0.0.7", 5432)) == "OSError"  # never recorded: no route
        with socket.socket(fileno=ends.destinations.pop(SIX)) as sock:
            inside.within(lambda: set_door(sock, Door.OPEN))
            assert inside.outcome(SIX) == "connected"
            fillers = inside.within(lambda: set_door(sock, Door.SILENT))
            assert inside.outcome(SIX, 0.2) == "TimeoutError"
            inside.within(lambda: set_door(sock, Door.REFUSES))
            assert inside.outcome(SIX) == "ConnectionRefusedError"
            for filler in fillers:
                filler.close()
    finally:
        ends.close()
        ends.close()  # twice is no error


def test_a_service_that_listens_at_every_address_can_still_do_so(inside: Network) -> None:
    """As CRIU binds it; who connects to the destination's address comes to the destination."""
    ends = opened(
        inside, Outside(destinations={HERE: Door.OPEN, ("127.0.0.1", 5432): Door.OPEN}), [("0.0.0.0", 5432)]
    )
    try:
        assert ends.untaken == {("127.0.0.1", 5432): "the service listens there itself"}
        service = inside.within(socket.socket)
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        service.bind(("0.0.0.0", 5432))
        service.listen()
        service.setblocking(False)
        inside.connect(HERE).close()
        with pytest.raises(BlockingIOError):
            service.accept()
        with socket.socket(fileno=ends.destinations.pop(HERE)) as destination:
            destination.accept()[0].close()
        inside.connect(("127.0.0.1", 5432)).close()
        service.accept()[0].close()
        service.close()
    finally:
        ends.close()


def test_what_cannot_be_opened_is_told_and_the_rest_is_there(inside: Network) -> None:
    ends = opened(
        inside,
        Outside(destinations={("192.0.2.1", 1): Door.OPEN, HERE: Door.OPEN}, names=(("10.0.0.5", 53),)),
        [],
    )
    try:
        assert ends.untaken == {("192.0.2.1", 1): "EADDRNOTAVAIL: Cannot assign requested address"}
        assert list(ends.destinations) == [HERE] and list(ends.names) == [("10.0.0.5", 53)]
    finally:
        ends.close()


def test_one_address_has_one_way_of_being_written() -> None:
    assert plain_address("::ffff:10.0.0.5") == "10.0.0.5"
    assert plain_address("FD00:0::5") == "fd00::5"
