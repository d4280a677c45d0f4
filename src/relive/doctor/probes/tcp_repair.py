"""TCP_REPAIR: both ends of a connection are forged, as a branch does with one, and bytes pass."""

from __future__ import annotations

import socket

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.images import criu_images_pb2 as pb
from relive.images.sockets import TcpConnection
from relive.kernel import loopback
from relive.kernel.namespaces import Namespace, unshare
from relive.sandbox.tcp_peers import forge_peer

__all__ = ["tcp_repair"]

# Private addresses that no host has on lo: they are local only in the network namespace made here.
_SERVER, _CLIENT = ("10.77.0.1", 8000), ("10.77.0.2", 45678)
_SERVER_SENDS, _CLIENT_SENDS = 0xFFFFFFF0, 5_000  # the first wraps around after 16 bytes
_ESTABLISHED = 1
_ALL_OPTIONS = 7  # timestamps, selective acknowledgement, window scaling
_ANSWER = 1.0  # [s]


def tcp_repair(_ground: ProbeContext) -> ProbeResult:
    """In a network namespace of its own: no packet was ever exchanged, yet the two ends are connected."""
    unshare(Namespace.NETWORK)
    loopback.bring_up()
    for address, _ in (_SERVER, _CLIENT):
        loopback.add_address(address)
    # Each is the other end of what is described, so the server's description makes the client.
    with (
        forge_peer(_described(_SERVER, _CLIENT, sends=_SERVER_SENDS, expects=_CLIENT_SENDS)) as client,
        forge_peer(_described(_CLIENT, _SERVER, sends=_CLIENT_SENDS, expects=_SERVER_SENDS)) as server,
    ):
        _pass(client, server, b"a request that no handshake preceded")
        _pass(server, client, b"and its answer")
    return works("two forged ends talk to each other")


def _described(local: tuple[str, int], peer: tuple[str, int], *, sends: int, expects: int) -> TcpConnection:
    stream = pb.TcpStreamEntry(
        inq_len=0,
        inq_seq=expects,
        outq_len=0,
        outq_seq=sends,
        opt_mask=_ALL_OPTIONS,
        snd_wscale=7,
        rcv_wscale=7,
        mss_clamp=1460,
        timestamp=1,
        snd_wnd=65535,
        max_window=65535,
        rcv_wnd=65535,
    )
    return TcpConnection(socket.AF_INET, local, peer, _ESTABLISHED, stream)


def _pass(source: socket.socket, target: socket.socket, data: bytes) -> None:
    for end in (source, target):
        end.settimeout(_ANSWER)
    source.sendall(data)
    got = b""
    try:
        while len(got) < len(data) and (part := target.recv(len(data))):
            got += part
    except OSError as error:
        raise Obstacle(
            "made, but nothing passes", cause=f"{len(got)} of {len(data)} bytes arrived: {error}"
        ) from None
    if got != data:
        raise Obstacle("made, but nothing passes", cause=f"{data!r} arrived as {got!r}")
