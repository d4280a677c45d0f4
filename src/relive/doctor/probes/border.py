"""The border of a capsule: a connection is led to the recorder, by the way that ``--record-egress`` uses."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from pathlib import Path

from relive.doctor.finding import Obstacle, ProbeResult, works
from relive.doctor.probe import ProbeContext
from relive.errors import ReliveError
from relive.kernel.packets import read_packet
from relive.kernel.tcprepair import next_sent
from relive.model.capsule import BorderFacts
from relive.proxies.egress.entrance import Entrance
from relive.proxies.marks import Mark
from relive.sandbox.border import raise_border, remove_border

__all__ = ["border"]

_WITHIN = 2.0  # [s]
_DESTINATION = ("127.0.0.1", 9)  # of the connection; nobody needs to listen there, since it is never made
_READY = b"ready"


def border(_ground: ProbeContext) -> ProbeResult:
    """A process behind such a border connects; its packet is let go on to an entrance, and a byte comes back to it."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _be_the_service(theirs)
    theirs.close()
    ours.settimeout(_WITHIN)
    facts: BorderFacts | None = None
    try:
        said = json.loads(ours.recv(4096) or b"null")
        if said is None:
            raise Obstacle("it cannot be made", cause="the process behind it ended")
        if "error" in said:
            raise ReliveError.from_json(said["error"])
        facts = BorderFacts.model_validate(said)
        _take_out(facts, ours)
    finally:
        ours.close()
        os.waitpid(child, 0)
        if facts is not None:
            remove_border(facts)
    return works("a connection was held, led to the recorder, and answered")


def _take_out(facts: BorderFacts, line: socket.socket) -> None:
    entrance = Entrance(facts.number, Path(facts.group))
    try:
        line.sendall(_READY)
        _wait(entrance.queue.fileno(), "no packet came to the queue (marks by CONFIG_CGROUP_BPF, NFQUEUE)")
        (waiting,) = entrance.queue.waiting()
        packet = read_packet(waiting.data)
        if packet is None or packet.destination != _DESTINATION:
            raise Obstacle("another packet came", cause=f"{packet} instead of one to {_DESTINATION}")
        entrance.let_pass(waiting.number, Mark.RECORDED)
        _wait(entrance.listeners[0].fileno(), "the connection did not come to the entrance (TPROXY)")
        taken, _ = entrance.listeners[0].accept()
        with taken:
            if taken.getsockname() != _DESTINATION:
                raise Obstacle(
                    "it came to another address", cause=f"{taken.getsockname()} is not {_DESTINATION}"
                )
            next_sent(taken)
            taken.sendall(b"x")
            if line.recv(1) != b"x":
                raise Obstacle("made, but nothing passes", cause="the byte that was sent did not arrive")
    finally:
        entrance.close()


def _be_the_service(line: socket.socket) -> None:
    with contextlib.suppress(BaseException):
        try:
            said: dict[str, object] = raise_border().model_dump()
        except ReliveError as error:
            said = {"error": error.as_json()}
        line.sendall(json.dumps(said).encode())
        if "error" in said:
            os._exit(1)
        line.recv(1024)  # now somebody waits for its packet
        with socket.create_connection(_DESTINATION, timeout=_WITHIN) as sock:
            line.sendall(sock.recv(1))
    os._exit(0)


def _wait(descriptor: int, cause: str) -> None:
    until = time.monotonic() + _WITHIN
    if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        raise Obstacle("nothing came", cause=cause)
