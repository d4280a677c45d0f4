"""Reading where a TCP connection stands, through TCP_REPAIR (include/uapi/linux/tcp.h)."""

from __future__ import annotations

import socket
import struct

__all__ = ["next_sent"]

_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_NO_QUEUE, _SEND_QUEUE = 0, 2
_ON, _OFF_NO_PROBE = 1, -1


def next_sent(sock: socket.socket) -> int:
    """Sequence number of the next byte that is given to an established connection to send. No packet is sent for it.

    The kernel forgets SO_REUSEADDR on the way, without which nobody could listen at the socket's port: it is set again.

    Raises:
        OSError: EPERM without CAP_NET_ADMIN over the socket's namespace; EINVAL when it is not connected any more.
    """
    is_shared = sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _ON)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, _SEND_QUEUE)
        (number,) = struct.unpack("=I", sock.getsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ, 4))
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, _NO_QUEUE)
    finally:
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, struct.pack("=i", _OFF_NO_PROBE))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, is_shared)
    return int(number)
