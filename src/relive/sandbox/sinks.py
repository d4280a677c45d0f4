"""What stands for the far ends of pipes, terminals and unix datagram sockets, which are no part of a commit: logs of the branch."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.model.commit import Outlet
from relive.sandbox.branch_root import BranchRoot

__all__ = ["OpenOutlet", "listen_outside", "open_log", "open_logs", "open_outlets"]

_TIOCSPTLCK, _TIOCGPTPEER = 0x40045431, 0x5441  # the latter from Linux 4.13 on


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
    stack: contextlib.ExitStack,
    branch_root: BranchRoot,
    streams: Mapping[str, str],
) -> list[OpenOutlet]:
    """Open them in what will be the branch, before ``BranchRoot.enter``; ``stack`` closes all.

    Args:
        streams: "stdout" or "stderr", by the outlets that are these.
    """
    opened = []
    for number, outlet in enumerate(outlets):
        name = streams.get(outlet.key, f"outlet-{number}")
        opened.append(_open_outlet(outlet, branch_root.io / f"{name}.log", branch_root.devices))
        for descriptor in opened[-1].descriptors():
            stack.callback(os.close, descriptor)
    return opened


def open_logs(names: Sequence[bytes], stack: contextlib.ExitStack, branch_root: BranchRoot) -> list[int]:
    """The logs of what comes at the unix datagram sockets of these names, before ``BranchRoot.enter``; ``stack`` closes all."""
    logs = [open_log(branch_root.io / f"datagrams-{number}.log") for number in range(len(names))]
    for log in logs:
        stack.callback(os.close, log)
    return logs


def listen_outside(names: Sequence[bytes], stack: contextlib.ExitStack, branch_root: BranchRoot) -> list[int]:
    """Sockets in the place of unix datagram sockets outside, after ``BranchRoot.enter``; ``stack`` closes all."""
    listeners = []
    for name in names:
        listeners.append(_listen(name, branch_root))
        stack.callback(os.close, listeners[-1])
    return listeners


def _open_outlet(outlet: Outlet, log: Path, devices: Path) -> OpenOutlet:
    """An outlet's far end is not part of the commit: the branch writes to a file instead."""
    if outlet.key.startswith("tty["):
        master, terminal = _open_terminal(devices)
        return OpenOutlet(outlet.key, terminal, master, open_log(log))
    return OpenOutlet(outlet.key, open_log(log))


def _open_terminal(devices: Path) -> tuple[int, int]:
    """As openpty(3), of a /dev that need not be the caller's: its other side is opened by number, not by a name (ioctl_tty(2))."""
    master = os.open(devices / "ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    return master, fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


def _listen(name: bytes, branch_root: BranchRoot) -> int:
    """A datagram socket of that name in the place of the one outside."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if name.startswith(b"\0"):
        listener.bind(name)
    else:
        place = branch_root.listening_place(name)
        place.unlink(missing_ok=True)
        listener.bind(os.fsencode(place))
        place.chmod(0o666)  # a system log takes words from everybody
    return listener.detach()


def open_log(path: Path) -> int:
    """Open a log of the branch, to be written at its end."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
