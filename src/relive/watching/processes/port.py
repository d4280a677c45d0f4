"""Where a service listens, for a proxy that takes its port."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from relive.errors import HostIncapable, UsageError
from relive.kernel import procfs
from relive.kernel.namespaces import Namespace, namespace_id
from relive.watching.state import ContainerState

__all__ = ["Listener", "listeners_of", "listening_place", "place_of", "shares_network", "taken_address"]

_LISTENS = "0A"


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens for TCP. ``address``: numeric; ``0.0.0.0`` or ``::`` for all."""

    address: str
    port: int
    inode: int


def listeners_of(pid: int) -> list[Listener]:
    """All in the network namespace of a process."""
    found = []
    for name, size in (("tcp", 4), ("tcp6", 16)):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS:
                text, port = fields[1].split(":")
                words = struct.unpack(f">{size // 4}I", bytes.fromhex(text))
                packed = struct.pack(f"={size // 4}I", *words)  # each word in the machine's own order
                family = socket.AF_INET if size == 4 else socket.AF_INET6
                found.append(Listener(socket.inet_ntop(family, packed), int(port, 16), int(fields[9])))
    return found


def taken_address(state: ContainerState, port: int) -> tuple[str, int]:
    """The IPv4 address at which a proxy takes connections to a service, ``0.0.0.0`` for all: where it listens itself."""
    addresses = {one.address for one in _own_listeners(state, port)}
    place = place_of(state, port)
    return ("0.0.0.0", port) if addresses & {"0.0.0.0", "::"} else place


def place_of(state: ContainerState, port: int) -> tuple[str, int]:
    """(address, port) at which a proxy that has taken the port reaches the service.

    Raises:
        UsageError: it does not listen there, or in a way that a proxy cannot stand in for.
        HostIncapable: it listens in another network.
    """
    addresses = {one.address for one in _own_listeners(state, port)}
    if not shares_network(state):
        raise HostIncapable(
            f"the port of {_named(state)} cannot be taken",
            cause="it runs in a network namespace of its own",
            remedy="use --listen ADDR:PORT --upstream ADDR:PORT, and point clients there; without --capture proxy and --every "
            "request its packets are read",
        )
    if addresses == {"::"} and _is_free(port):  # for IPv6 only
        addresses = {"::1"}
    if addresses & {"0.0.0.0", "::", "127.0.0.1"}:
        return "127.0.0.1", port
    reachable = sorted(one for one in addresses if ipaddress.ip_address(one).version == 4)
    if len(reachable) == 1 and len(addresses) == 1:
        return reachable[0], port
    raise UsageError(
        f"no proxy can stand in for port {port} of {_named(state)}",
        cause=f"it listens at {', '.join(sorted(addresses))}, and a proxy reaches it by one IPv4 address",
        remedy="use --listen ADDR:PORT --upstream ADDR:PORT, and point clients there",
    )


def listening_place(state: ContainerState, port: int) -> tuple[str, int]:
    """(address, port) at which a service listens; ``0.0.0.0`` for several addresses, or all, and in a network of its own.

    Raises:
        UsageError: it does not listen there, or not alone.
    """
    addresses = {one.address for one in _own_listeners(state, port)}
    only = addresses.pop() if len(addresses) == 1 and shares_network(state) else "::"
    return ("0.0.0.0", port) if only == "::" else (only, port)


def shares_network(state: ContainerState) -> bool:
    """What runs is in the network namespace of this process."""
    return namespace_id(state.pid, Namespace.NETWORK) == namespace_id("self", Namespace.NETWORK)


def _own_listeners(state: ContainerState, port: int) -> list[Listener]:
    """Sockets of a service that listen at a port at which nobody else does."""
    if not state.is_running:
        raise UsageError(
            f"{_named(state)} does not run", cause="its port is not known", remedy="start it first"
        )
    sockets = {inode for pid in procfs.tree_of(state.pid) for inode in _sockets(pid)}
    there = [one for one in listeners_of(state.pid) if one.port == port]
    own = [one for one in there if one.inode in sockets]
    if not own:
        known = sorted({one.port for one in listeners_of(state.pid) if one.inode in sockets})
        raise UsageError(
            f"{_named(state)} does not listen at port {port}",
            cause=f"it listens at {', '.join(map(str, known))}" if known else "it listens at no TCP port",
            remedy="name a port that it listens at",
        )
    others = [one.address for one in there if one.inode not in sockets]
    if others:
        raise UsageError(
            f"port {port} is not {_named(state)}'s alone",
            cause=f"another process listens at {', '.join(others)}",
            remedy="use --listen ADDR:PORT --upstream ADDR:PORT, and point clients there",
        )
    return own


def _named(state: ContainerState) -> str:
    return state.target or state.name


def _is_free(port: int) -> bool:
    """Nobody listens there for IPv4."""
    with socket.socket(socket.AF_INET) as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _sockets(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    found.append(int(target[8:-1]))
    return found
