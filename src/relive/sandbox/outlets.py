"""What stands for the far ends of pipes, terminals and unix datagram sockets, which are no part of a commit: logs of the branch."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.model.commit import Outlet
from relive.sandbox.ground import Ground

__all__ = ["OpenOutlet", "open_log", "open_outlets"]


@dataclass(frozen=True, slots=True)
class OpenOutlet:
    """What a branch gets where the commit had the end of a pipe or a terminal.

    Attributes:
        inside: the descriptor for the restored process.
        master, log: of a terminal, its other side and the file that shall hold what it shows; else None.
    """

    key: str
    inside: int
    master: int | None = None
    log: int | None = None

    def descriptors(self) -> list[int]:
        """All that are open for it."""
        return [one for one in (self.inside, self.master, self.log) if one is not None]


def open_outlets(
    outlets: Sequence[Outlet],
    outside_names: Sequence[bytes],
    stack: contextlib.ExitStack,
    ground: Ground,
    streams: Mapping[str, str],
) -> tuple[list[OpenOutlet], list[tuple[int, int]]]:
    """Open them in the branch; ``stack`` closes all.

    Args:
        outside_names: unix datagram sockets that somebody has to listen at.
        ground: where the logs are, and those sockets.
        streams: "stdout" or "stderr", by the outlets that are these.

    Returns:
        The outlets, and pairs of what process 1 listens to and the log for it.
    """
    opened = []
    for number, outlet in enumerate(outlets):
        name = streams.get(outlet.key, f"outlet-{number}")
        opened.append(_open_outlet(outlet, ground.io / f"{name}.log"))
        for descriptor in opened[-1].descriptors():
            stack.callback(os.close, descriptor)
    heard = [(one.master, one.log) for one in opened if one.master is not None and one.log is not None]
    for number, outside in enumerate(outside_names):
        heard.append((_listen(outside, ground), open_log(ground.io / f"datagrams-{number}.log")))
        for descriptor in heard[-1]:
            stack.callback(os.close, descriptor)
    return opened, heard


def _open_outlet(outlet: Outlet, log: Path) -> OpenOutlet:
    """An outlet's far end is not part of the commit: the branch writes to a file instead, and reads nothing."""
    if outlet.key.startswith("tty["):
        master, terminal = os.openpty()
        return OpenOutlet(outlet.key, terminal, master, open_log(log))
    if not outlet.writable:
        return OpenOutlet(outlet.key, os.open("/dev/null", os.O_RDONLY))
    return OpenOutlet(outlet.key, open_log(log))


def _listen(name: bytes, ground: Ground) -> int:
    """A datagram socket of that name in the place of the one outside."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if name.startswith(b"\0"):
        listener.bind(name)
    else:
        place = ground.listening_place(name)
        place.unlink(missing_ok=True)
        listener.bind(os.fsencode(place))
        place.chmod(0o666)  # a system log takes words from everybody
    return listener.detach()


def open_log(path: Path) -> int:
    """Open a log of the branch, to be written at its end."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
