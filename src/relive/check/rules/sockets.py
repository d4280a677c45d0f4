"""Sockets: of kinds that CRIU knows, and with which other ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from relive.check.finding import Finding
from relive.check.rules.making import blocks, lost, note_finding
from relive.check.snapshot import HeldDescriptor, Internet, Process, Snapshot
from relive.model.dependency import Dependency, address_of, service_at

__all__ = ["sockets"]

# As the kernel names them (struct proto.name), of /proc/net/protocols.
_SAVED = frozenset("TCP TCPv6 UDP UDPv6 UDP-Lite UDPLITEv6 RAW RAWv6 UNIX UNIX-STREAM NETLINK PACKET".split())
# Where a unit's output goes; its half is saved (native/journal_plugin.c).
_JOURNAL = "/run/systemd/journal/stdout"


def sockets(seen: Snapshot) -> Iterator[Finding]:
    """Of each socket once."""
    inside = seen.sockets
    listening = {one.local[1] for inode, one in seen.connections.items() if one.listens and inode in inside}
    own = {(one.local, one.peer) for inode, one in seen.connections.items() if inode in inside}
    for process, held in seen.opened():
        if not held.is_socket:
            continue
        if held.protocol and held.protocol not in _SAVED:
            yield blocks(
                "unsupported-socket",
                process,
                held.subject,
                f"CRIU cannot save a socket of {held.protocol}",
                "turn the feature off that uses it, or give it to a process of its own that is not committed",
            )
        elif seen.unread.get(held.inode):
            yield blocks(
                "unsupported-socket",
                process,
                held.subject,
                "a netlink socket with messages that it has not read yet cannot be saved",
                "commit again when it has read them; if it never does, close the socket",
            )
        elif held.inode in seen.unix:
            yield from _unix(seen, process, held, inside)
        elif (one := seen.connections.get(held.inode)) and not _stays_inside(one, listening, own):
            yield _outgoing(process, held, one.peer)


def _unix(
    seen: Snapshot, process: Process, held: HeldDescriptor, inside: frozenset[int]
) -> Iterator[Finding]:
    one = seen.unix[held.inode]
    if one.listens or not one.peer or one.peer in inside:
        return
    peer = seen.unix.get(one.peer)
    name = peer.name if peer is not None and peer.name else one.name
    owner = seen.owners.get(one.peer)
    where = f"{owner.name} (pid {owner.pid})" if owner is not None else "a process outside of the tree"
    subject = f"descriptor {held.number} (unix socket{f' {name}' if name else ''})"
    if one.kind == socket.SOCK_DGRAM and peer is not None and peer.name:
        yield note_finding(
            "datagrams-outside",
            process,
            subject,
            f"what it sends to {where} goes to a file of the branch",
        )
        return
    if one.kind == socket.SOCK_STREAM and name == _JOURNAL:
        yield note_finding(
            "journal-outside",
            process,
            subject,
            "what it writes to the journal goes to a file of the branch",
        )
        return
    yield blocks(
        "half-unix-stream",
        process,
        subject,
        f"its other end is in {where}, and half a connection cannot be saved",
        "connect over TCP, commit a tree that holds both ends, or let it connect only when it needs to",
    )


def _stays_inside(
    one: Internet, listening: set[int], own: set[tuple[tuple[str, int], tuple[str, int]]]
) -> bool:
    """It listens, was accepted, or leads to the service itself, which may not have accepted it yet."""
    if one.listens or one.local[1] in listening or (one.peer, one.local) in own:
        return True
    return one.peer[0] == one.local[0] and one.peer[1] in listening


def _outgoing(process: Process, held: HeldDescriptor, peer: tuple[str, int]) -> Finding:
    destination = Dependency(to=address_of(peer), service=service_at(peer[1]))
    return lost(
        "connection-outside",
        process,
        f"descriptor {held.number} (connection to {destination.words})",
        "a branch reaches nobody, so connections that the service opened are closed when it begins to run, and a replay "
        "lacks what it asks there, but for what the recorder inside Python processes knows",
        "`relive run` records them where the host can (TLS with --record-egress), and a branch goes on with them",
    )
