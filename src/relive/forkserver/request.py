"""What a fork server's child is told, and how: one packet on a SOCK_SEQPACKET, with descriptors beside it (SCM_RIGHTS, unix(7)).

    child   a byte: it is there. What is sent to a server that stands still stays open in the kernel, and a pipe without an end
    asks    a byte; descriptors: a file in memory with the request as JSON, the working directory, those that it shall have
    child   {"pid"} with a descriptor of its process (pidfd_open(2)), or {"refused": why}
    asks    a byte: go on. Where none comes, such as when who asks was killed or has lost patience, nothing has been done
    child   {"successor"} with a file in memory, where who asks shall be replaced by another program (``successor``)
    child   {"status"}: the raw wait status with which it is about to end; not from every one
    server  the same, when the child has ended

The file in memory is for environments larger than a packet.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "HERE",
    "MOST_DESCRIPTORS",
    "ProcessRequest",
    "receive_message",
    "receive_request",
    "say",
    "send_request",
]

HERE = b"\0"
MOST_DESCRIPTORS = 253  # in one packet, SCM_MAX_FD
_PACKET = 4096  # [bytes] more than any message but the request's file


# No dataclass, whose module takes as long to import as all the others that a command asks with.
class ProcessRequest(NamedTuple):
    """A process that is wanted.

    Attributes:
        module: what ``python -m`` would run.
        options: its command line behind that.
        environment: the whole of it.
        attributes: as ``settable_attributes`` tells them of who asks.
        ignored: signals that it shall ignore; all others have their default.
        blocked: signals that it shall block.
        descriptors: the numbers that the descriptors sent along shall have in it.
        new_session: as the leader of a session of its own (setsid(2)).
        ends_with_asker: it is killed when who asked closes the connection, such as by being killed.
    """

    module: str
    options: Sequence[str]
    environment: Mapping[str, str]
    attributes: Mapping[str, str]
    ignored: Sequence[int]
    blocked: Sequence[int]
    descriptors: Sequence[int]
    new_session: bool
    ends_with_asker: bool


def send_request(
    connection: socket.socket, request: ProcessRequest, directory: int, descriptors: Sequence[int]
) -> None:
    """Send it.

    Args:
        directory: a descriptor of the working directory.
        descriptors: those that the process gets, in the order of ``request.descriptors``.

    Raises:
        OSError: the server is gone.
    """
    file = os.memfd_create("relive-request", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writing:
            writing.write(json.dumps(request._asdict()).encode())
        socket.send_fds(connection, [b"\0"], [file, directory, *descriptors])
    finally:
        os.close(file)


def receive_request(connection: socket.socket) -> tuple[ProcessRequest, int, list[int]] | None:
    """(request, working directory, descriptors) that the caller owns; None where who asked has gone."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1, MOST_DESCRIPTORS)
    if not data or len(descriptors) < 2:
        return None
    file, directory, *others = descriptors
    with os.fdopen(file, "rb") as reading:
        reading.seek(0)
        return ProcessRequest(**json.load(reading)), directory, others


def say(connection: socket.socket, message: Mapping[str, Any], descriptor: int | None = None) -> None:
    """Send a message, with a descriptor beside it; raises OSError where nobody listens."""
    beside = (
        [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    )
    connection.sendmsg([json.dumps(message).encode()], beside, socket.MSG_NOSIGNAL)


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], int | None]:
    """The next message, and the descriptor that came with it; empty where no more can come. Raises OSError."""
    data, descriptors, _, _ = socket.recv_fds(connection, _PACKET, 1)
    return (json.loads(data) if data else {}), next(iter(descriptors), None)
