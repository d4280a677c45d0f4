"""Working in another process's network, and giving it addresses."""

from __future__ import annotations

import os
import socket

import pytest

from relive.kernel import loopback
from relive.kernel.namespaces import Namespace, enter, in_network_of, namespace_id, unshare

from .helpers import in_child, needs_root

pytestmark = needs_root


class Own(Exception):
    """What an action may raise."""


@pytest.fixture
def sealed():
    """A process with a network namespace of its own."""
    ready, say = os.pipe()
    wait, end = os.pipe()
    from .helpers import fork

    pid = fork()
    if pid == 0:
        os.close(end)
        unshare(Namespace.NETWORK)
        os.write(say, b"r")
        os.read(wait, 1)
        os._exit(0)
    os.close(wait)
    os.read(ready, 1)
    yield pid
    for descriptor in (end, ready, say):
        os.close(descriptor)
    os.waitpid(pid, 0)


def thread_network() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def test_an_action_works_in_the_other_network_and_the_caller_stays_in_its_own(sealed):
    own = thread_network()
    assert in_network_of(sealed, thread_network) == namespace_id(sealed, Namespace.NETWORK) != own
    assert thread_network() == own


def test_what_the_action_raises_is_raised(sealed):
    def action() -> None:
        raise Own("as it was")

    with pytest.raises(Own, match="as it was"):
        in_network_of(sealed, action)


def test_even_what_would_end_a_process_is_raised(sealed):
    def action() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        in_network_of(sealed, action)


def test_a_process_that_is_gone_is_an_oserror():
    with pytest.raises(FileNotFoundError):
        in_network_of(2**22 + 5, lambda: None)


def test_a_socket_stays_where_it_was_made(sealed):
    in_network_of(sealed, loopback.bring_up)
    with socket.socket() as silent:  # so that nobody listens there outside
        silent.bind(("127.0.0.1", 0))
        address = silent.getsockname()
        with in_network_of(sealed, lambda: socket.create_server(address)):
            with pytest.raises(OSError, match=r"refused|unreachable"):
                socket.create_connection(address, 1)
            in_network_of(sealed, lambda: socket.create_connection(address, 1)).close()


def test_entering_changes_the_namespace(sealed):
    def work() -> int:
        enter(sealed, Namespace.NETWORK)
        return namespace_id("self", Namespace.NETWORK)

    assert in_child(work) == namespace_id(sealed, Namespace.NETWORK)


@pytest.mark.parametrize("kind", [kind for kind in Namespace if kind is not Namespace.PID])
def test_leaving_gives_a_fresh_namespace(kind):
    def work() -> int:
        unshare(kind)
        return namespace_id("self", kind)

    assert in_child(work) != namespace_id("self", kind)


ADDRESSES = ["10.1.2.3", "192.0.2.255", "203.0.113.7", "2001:db8::1", "fd00::abcd"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_any_address_can_be_made_local(sealed, address):
    def work() -> str:
        loopback.bring_up()
        loopback.add_address(address)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with (
            socket.create_server((address, 0), family=family) as server,
            # A lost SYN is sent again after a second.
            socket.create_connection(server.getsockname()[:2], 0.9) as client,
        ):
            return str(client.getpeername()[0])

    assert in_network_of(sealed, work) == address


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_there_already_is_no_error(sealed, address):
    def work() -> None:
        loopback.bring_up()
        loopback.add_address(address)
        loopback.add_address(address)

    in_network_of(sealed, work)


def test_without_the_right_an_address_is_refused():
    def work() -> None:
        os.setresuid(65534, 65534, 65534)
        loopback.add_address("10.1.2.3")

    with pytest.raises(PermissionError):
        in_child(work)


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "::g"])
def test_what_is_no_address_is_a_value_error(text):
    with pytest.raises(ValueError, match="address"):
        loopback.add_address(text)


def test_a_fresh_network_has_no_way_out(sealed):
    def work() -> None:
        loopback.bring_up()
        socket.create_connection(("192.0.2.1", 80), 1)

    with pytest.raises(OSError, match="unreachable"):
        in_network_of(sealed, work)
