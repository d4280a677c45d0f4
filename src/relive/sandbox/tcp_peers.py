"""The other ends of a commit's TCP connections, forged with TCP_REPAIR (tcp(7); criu.org/TCP_connection).

In the sandbox nobody is there whom the restored process was talking to. A forged peer is a socket with the peer's address
and the mirrored sequence numbers, window and options: to the restored process the connection simply goes on.

It must exist before the restored socket leaves repair mode, since that sends a window probe which nobody would answer but
with a reset. It leaves repair mode itself without a probe (TCP_REPAIR_OFF_NO_WP), as the restored end is not there yet.
"""

from __future__ import annotations

import socket
import struct

from relive.images.sockets import TcpConnection

__all__ = ["forge_peer"]

_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_TCP_REPAIR_OPTIONS, _TCP_TIMESTAMP, _TCP_REPAIR_WINDOW = 22, 24, 29
_RECEIVE_QUEUE, _SEND_QUEUE = 1, 2
_REPAIR_ON, _REPAIR_OFF_NO_PROBE = 1, -1
_OPTION_MSS, _OPTION_WINDOW_SCALE, _OPTION_SACK, _OPTION_TIMESTAMPS = 2, 3, 4, 8
_HAS_TIMESTAMPS, _HAS_SACK, _HAS_WINDOW_SCALE = 1, 2, 4  # TCPI_OPT_* in opt_mask
_IP_FREEBIND, _IPV6_FREEBIND = 15, 78
_WORD = 0xFFFFFFFF
_LEAST_WINDOW = 65535  # [bytes]


def forge_peer(connection: TcpConnection, *, has_all: bool = False) -> socket.socket:
    """Make the other end of a connection, in the caller's network namespace; both addresses must be local there.

    No packet is sent. The socket's receive queue gets what the restored process had sent but not yet seen acknowledged.

    Args:
        has_all: the real peer has taken all that was written, whether or not that was acknowledged, or sent: nothing of it comes
            again. What had not been sent is, and is discarded as a repetition.

    Raises:
        OSError: EPERM without CAP_NET_ADMIN; EADDRINUSE when the address is taken.
    """
    stream = connection.stream
    peer = socket.socket(connection.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _REPAIR_ON)
        if connection.family == socket.AF_INET:
            peer.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        else:
            peer.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        peer.bind(connection.peer)
        # Mirrored: we send what it expects next; we expect what it still holds unacknowledged, which it sends again.
        unacknowledged = (stream.outq_seq - (0 if has_all else stream.outq_len)) & _WORD
        _set_sequence(peer, _SEND_QUEUE, stream.inq_seq)
        _set_sequence(peer, _RECEIVE_QUEUE, unacknowledged)
        peer.connect(connection.local)
        peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_OPTIONS, _options(connection))
        if stream.opt_mask & _HAS_TIMESTAMPS:
            peer.setsockopt(socket.IPPROTO_TCP, _TCP_TIMESTAMP, struct.pack("I", stream.timestamp))
        if stream.HasField("rcv_wnd"):
            peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_WINDOW, _window(connection, unacknowledged))
        peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, struct.pack("i", _REPAIR_OFF_NO_PROBE))
        # Leaving repair mode forbids sharing the address; where the peer is the target itself, its listener needs it too.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        peer.close()
        raise
    return peer


def _set_sequence(peer: socket.socket, queue: int, sequence: int) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, queue)
    peer.setsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ, struct.pack("I", sequence & _WORD))


def _options(connection: TcpConnection) -> bytes:
    """struct tcp_repair_opt[]: (u32 code, u32 value), as the peer had negotiated them."""
    stream = connection.stream
    options = struct.pack("II", _OPTION_MSS, stream.mss_clamp)
    if stream.opt_mask & _HAS_WINDOW_SCALE:
        options += struct.pack("II", _OPTION_WINDOW_SCALE, stream.rcv_wscale | stream.snd_wscale << 16)
    if stream.opt_mask & _HAS_SACK:
        options += struct.pack("II", _OPTION_SACK, 0)
    if stream.opt_mask & _HAS_TIMESTAMPS:
        options += struct.pack("II", _OPTION_TIMESTAMPS, 0)
    return options


def _window(connection: TcpConnection, unacknowledged: int) -> bytes:
    """struct tcp_repair_window: snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup; all u32."""
    stream = connection.stream
    return struct.pack(
        "5I",
        unacknowledged,
        stream.rcv_wnd,
        max(stream.rcv_wnd, stream.max_window),
        max(stream.snd_wnd, _LEAST_WINDOW),
        unacknowledged,
    )
