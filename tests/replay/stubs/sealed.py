"""A sealed network namespace without a branch in it, and a protocol of lines; dialogues by hand."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import TypeVar

from relive.kernel import loopback
from relive.kernel.namespaces import Namespace, in_network_of, namespace_id
from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.opaque import Plain
from relive.protocols.session import Act, Session
from relive.recording.dialogues import Dialogue, DialoguePiece, DirectionEnd, Way
from relive.recording.events import EventKind

Result = TypeVar("Result")
SECOND = 1_000_000_000
TAKEN = 100 * SECOND


class Network:
    """The namespace of a process that only waits."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def within(self, action: Callable[[], Result]) -> Result:
        return in_network_of(self.pid, action)

    def connect(self, destination: tuple[str, int], timeout: float = 20.0) -> socket.socket:
        """A connected socket; raises OSError."""

        def made() -> socket.socket:
            sock = socket.socket(socket.AF_INET6 if ":" in destination[0] else socket.AF_INET)
            sock.settimeout(timeout)
            try:
                sock.connect(destination)
            except BaseException:
                sock.close()
                raise
            return sock

        return self.within(made)

    def outcome(self, destination: tuple[str, int], timeout: float = 20.0) -> str:
        """What becomes of connecting."""
        try:
            self.connect(destination, timeout).close()
        except OSError as error:
            return type(error).__name__
        return "connected"


@contextlib.contextmanager
def network(*addresses: str) -> Iterator[Network]:
    """One with these addresses on its loopback."""
    process = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        process.stdin.write(b"there\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"there\n"  # by cat, in its namespace
        assert namespace_id(process.pid, Namespace.NETWORK) != namespace_id(os.getpid(), Namespace.NETWORK)
        made = Network(process.pid)
        made.within(loopback.bring_up)
        for address in addresses:
            made.within(lambda address=address: loopback.add_address(address))
        yield made


def dialogue(
    number: int,
    to: tuple[str, int],
    *said: tuple[str, bytes],
    opened_ns: int = TAKEN - 10 * SECOND,
    step_ns: int = SECOND,
    origin: tuple[str, int] | None = None,
    ended: str | None = None,
    **facts: object,
) -> Dialogue:
    """What was said, a step after the other: ("up", b"..."), ("down", b"...")."""
    made = Dialogue(number, to, origin or ("10.0.0.1", 40000 + number), opened_ns, number * 1000)
    made.up_base, made.down_base = 1000, 5000
    places = {Way.UP: 0, Way.DOWN: 0}
    moment = opened_ns
    for index, (way, data) in enumerate(said):
        moment += step_ns
        made.pieces.append(DialoguePiece(Way(way), places[Way(way)], data, moment, number * 1000 + index + 1))
        places[Way(way)] += len(data)
    if ended is not None:
        for way in Way:
            made.endings[way] = DirectionEnd(ended, places[way], 0, moment + step_ns, number * 1000 + 900)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def plain_of(_dialogue: Dialogue) -> Plain:
    return Plain()


class Script(Session):
    """Answers each line with the acts that a test has written down for it."""

    def __init__(self, acts: dict[bytes, list[Act]], at_end: list[Act] | None = None) -> None:
        self.fed = b""
        self.has_ended = False
        self._acts, self._at_end, self._rest = acts, at_end or [], b""

    def feed(self, data: bytes) -> list[Act]:
        self.fed += data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [act for line in lines for act in self._acts[line]]

    def hang_up(self) -> list[Act]:
        self.has_ended = True
        return self._at_end


def call(question: str, asked_ns: int, **changes: object) -> Call:
    """A call of the bytes."""
    facts: dict[str, object] = {
        "kind": EventKind.DIALOGUE_UP,
        "asked": {"data": question},
        "answer": None,
        "end": CallEnd.ANSWERED,
        "dialogue": 1,
        "index": 0,
        "to": ("10.0.0.5", 99),
        "asked_mono_ns": asked_ns,
        "ended_mono_ns": asked_ns + 1,
        "up": (0, 1),
        "down": (0, 1),
        "pieces": (Timed(0, b"x"),),
        "extra": {"question": question.encode()},
    }
    return Call(**(facts | changes))  # type: ignore[arg-type]
