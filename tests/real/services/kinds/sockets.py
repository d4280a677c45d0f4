"""Sockets of every family, with data under way."""

from __future__ import annotations

import random
import socket

from holding import RUN, TOP, WITHIN, Kind, kind, readable, wait_until


@kind
def socketpair_with_data() -> Kind:
    one, other = socket.socketpair()
    one.send(b"to other")
    other.send(b"to one")
    yield
    assert other.recv(99) == b"to other" and one.recv(99) == b"to one"
    one.send(b"more")
    assert other.recv(99) == b"more"


@kind
def unix_datagrams() -> Kind:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"a")
    one.send(b"bc")
    yield
    assert (other.recv(9), other.recv(9)) == (b"a", b"bc")


@kind
def unix_socket_in_tmp() -> Kind:
    yield from _listening(str(TOP / "listening"))


@kind
def unix_socket_in_run() -> Kind:
    RUN.mkdir(exist_ok=True)
    yield from _listening(str(RUN / "listening"))


@kind
def unix_socket_abstract() -> Kind:
    yield from _listening(f"\0{TOP}")


def _listening(name: str) -> Kind:
    """A listening socket with one connection that was accepted and data under way."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    served, _ = listener.accept()
    client.send(b"old")
    yield
    assert served.recv(9) == b"old"
    served.send(b"back")
    assert client.recv(9) == b"back"
    late = socket.socket(socket.AF_UNIX)
    late.connect(name)
    late.send(b"new")
    assert listener.accept()[0].recv(9) == b"new"


@kind
def udp() -> Kind:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    yield
    sender.send(b"x")
    assert readable(receiver.fileno()) and receiver.recvfrom(9) == (b"x", sender.getsockname())


@kind
def tcp_with_both_ends_inside() -> Kind:
    yield from _tcp_pair(socket.AF_INET, "127.0.0.1")


@kind
def tcp6_with_both_ends_inside() -> Kind:
    yield from _tcp_pair(socket.AF_INET6, "::1")


@kind
def tcp_of_both_families_inside() -> Kind:
    """One end is an IPv6 socket with an IPv4 address, the other one of IPv4."""
    yield from _tcp_pair(socket.AF_INET6, "::", "127.0.0.1")


def _tcp_pair(family: int, address: str, to: str | None = None) -> Kind:
    listener = socket.create_server((address, 0), family=family, dualstack_ipv6=to is not None)
    client = socket.create_connection((to or address, listener.getsockname()[1]))
    served, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.send(b"unread by the server")
    served.send(b"unread by the client")
    listener.close()
    segment = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    yield
    assert served.recv(99) == b"unread by the server" and client.recv(99) == b"unread by the client"
    client.send(b"more")
    assert readable(served.fileno()) and served.recv(99) == b"more"
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    # Half of the window, where that is less (tcp_bound_to_half_wnd() in the kernel).
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > segment // 4


@kind
def tcp_with_full_buffers() -> Kind:
    yield from _full_pair(socket.AF_INET, "127.0.0.1")


@kind
def tcp6_with_full_buffers() -> Kind:
    yield from _full_pair(socket.AF_INET6, "::1")


def _full_pair(family: int, address: str) -> Kind:
    """Both ends have written until nothing more was taken, so much of it was never sent."""
    with socket.create_server((address, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        served, _ = listener.accept()
    wrote = [_fill(client), _fill(served)]
    yield
    assert [_drain(served, len(wrote[0])), _drain(client, len(wrote[1]))] == wrote
    client.setblocking(True)
    client.send(b"more")
    assert readable(served.fileno()) and served.recv(99) == b"more"


def _fill(end: socket.socket) -> bytes:
    """Write until nothing more is taken; returns what was."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    end.setblocking(False)
    wrote, part = b"", random.Random(1).randbytes(65521)
    while True:
        try:
            wrote += part[: end.send(part)]
        except BlockingIOError:
            return wrote


def _drain(end: socket.socket, size: int) -> bytes:
    read = b""
    end.settimeout(60)
    while len(read) < size:
        read += end.recv(1 << 16)
    return read


@kind
def tcp_bound_to_a_device() -> Kind:
    """A branch has but loopback, where the socket is reached then."""
    device = next((name for _, name in socket.if_nameindex() if name != "lo"), "lo").encode()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
    listener.bind(("", 0))
    listener.listen()
    yield
    bound = listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")
    assert bound in (device, b"lo")
    if bound == b"lo":
        client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]), WITHIN)
        client.send(b"x")
        assert readable(listener.fileno()) and listener.accept()[0].recv(9) == b"x"


@kind
def tcp_closed_by_the_other_side() -> Kind:
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    served, _ = listener.accept()
    client.send(b"last words")
    client.close()
    wait_until(lambda: served.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x08")  # CLOSE_WAIT
    yield
    assert served.recv(99) == b"last words" and served.recv(99) == b""
    served.close()


@kind
def tcp_half_closed() -> Kind:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        served, _ = listener.accept()
    client.shutdown(socket.SHUT_WR)
    wait_until(lambda: served.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x08")  # CLOSE_WAIT
    yield
    assert readable(served.fileno()) and served.recv(99) == b""
    served.send(b"answer")
    assert readable(client.fileno()) and client.recv(99) == b"answer"


@kind
def tcp_not_yet_accepted() -> Kind:
    """A connection in the backlog; it may be gone in a branch, but the listener serves."""
    listener = socket.create_server(("127.0.0.1", 0))
    early = socket.create_connection(listener.getsockname())
    yield
    late = socket.create_connection(listener.getsockname())
    late.send(b"x")
    listener.settimeout(WITHIN)
    while True:
        served = listener.accept()[0]
        if served.getpeername() == late.getsockname():
            assert served.recv(9) == b"x"
            early.close()
            return


@kind
def netlink() -> Kind:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    channel.bind((0, 0))
    yield
    assert channel.getsockname()[0] != 0
