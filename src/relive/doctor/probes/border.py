"""The border of a capsule: a connection is taken out of a network of its own, by the way that ``--record-egress`` uses."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.errors import ReliveError
from relive.kernel.namespaces import Namespace, unshare
from relive.kernel.packets import read_packet
from relive.kernel.tcprepair import next_sent
from relive.proxies.egress._capsule_network import InnerNetwork
from relive.proxies.marks import Mark
from relive.sandbox.capsule_network import HostNetwork, raise_border

__all__ = ["border"]

_WITHIN = 2.0  # [s]
_DESTINATION = ("127.0.0.1", 9)  # of the connection; nobody needs to listen there, since it is never made
_READY = b"ready"


def border(_ground: ProbeContext) -> ProbeResult:
    """A process in such a network connects; its packet is let go on to an entrance, and a byte comes back to it."""
    host = HostNetwork.read()
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _be_the_service(host, theirs)
    theirs.close()
    ours.settimeout(_WITHIN)
    said = ours.recv(1024)
    if said != _READY:
        what, _, cause = said.decode(errors="replace").partition("\n")
        raise Obstacle("the network cannot be made", cause=cause or what or "the process in it ended")
    inner = InnerNetwork(child)
    try:
        ours.sendall(_READY)
        _wait(inner.queue.fileno(), "no packet came to the queue (NFQUEUE)")
        (waiting,) = inner.queue.waiting()
        packet = read_packet(waiting.data)
        if packet is None or packet.destination != _DESTINATION:
            raise Obstacle("another packet came", cause=f"{packet} instead of one to {_DESTINATION}")
        inner.queue.let_pass(waiting.number, Mark.RECORDED)
        _wait(inner.entrances[0].fileno(), "the connection did not come to the entrance (TPROXY)")
        taken, _ = inner.entrances[0].accept()
        with taken:
            if taken.getsockname() != _DESTINATION:
                raise Obstacle(
                    "it came to another address", cause=f"{taken.getsockname()} is not {_DESTINATION}"
                )
            next_sent(taken)
            taken.sendall(b"x")
            if ours.recv(1) != b"x":
                raise Obstacle("made, but nothing passes", cause="the byte that was sent did not arrive")
    finally:
        inner.close()
        ours.close()
        os.waitpid(child, 0)
    return works("a connection was held, taken out, and answered")


def _be_the_service(host: HostNetwork, line: socket.socket) -> None:
    with contextlib.suppress(BaseException):
        try:
            unshare(Namespace.NETWORK)
            raise_border(host)
        except (ReliveError, OSError) as error:
            cause = error.cause if isinstance(error, ReliveError) else None
            line.sendall(f"{error}\n{cause or ''}".encode())
            os._exit(1)
        line.sendall(_READY)
        line.recv(1024)  # now somebody waits for its packet
        with socket.create_connection(_DESTINATION, timeout=_WITHIN) as sock:
            line.sendall(sock.recv(1))
    os._exit(0)


def _wait(descriptor: int, cause: str) -> None:
    until = time.monotonic() + _WITHIN
    if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        raise Obstacle("nothing came", cause=cause)
