"""The programs by which the kernel copies what a control group says to others: see ``calltap``, which loads them.

Each step is written as the kernel wants it (``bpf.Step``). Registers: 6 the packet, 7 its socket and later the copy, 8 where its
head is and later its bytes, 9 how many these are, or what is kept of the socket.
"""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from relive.kernel.bpf import Step, copied_bytes

__all__ = ["KEPT_BYTES", "NOTES_BYTES", "RING_BYTES", "TapMaps", "on_closing", "on_packet"]

RING_BYTES = 8 << 20
"""What can wait to be read; of the kernel's memory, for each capsule whose calls are copied."""

NOTES_BYTES = 24
"""Of ``struct notes`` in tapped.c."""

KEPT_BYTES = 24
"""What is kept of a socket that connects."""

_NAMES = 53
# BPF_FUNC_*
_TIME, _COPY, _COOKIE, _LOOK_UP, _RELEASE = 5, 26, 46, 84, 86
_FULL_SOCKET, _STORAGE, _RESERVE, _SUBMIT, _QUERY = 95, 107, 131, 132, 134
# struct __sk_buff, struct bpf_sock
_LENGTH, _IFINDEX, _SOCKET = 0, 40, 168
_PROTOCOL, _SRC4, _SRC6, _SRC_PORT, _DST_PORT, _DST4, _DST6, _STATE = 12, 24, 28, 44, 48, 52, 56, 72
_CONNECTS, _LISTENS, _LOOPBACK = 2, 10, 1
_FIN_SYN_RST, _SYN, _ACK = 0x07, 0x02, 0x10
# struct tapped of tapped.c: what is before the bytes of each packet
_MONO, _WHO, _SIZE, _KIND, _SEQUENCE, _ACKED, _FLAGS, _UP, _DOWN = 0, 8, 16, 20, 24, 28, 32, 36, 40
_VERSION, _OWN_PORT, _PEER_PORT, _OWN, _PEER, _WHOLE, _HEAD = 44, 48, 52, 56, 72, 88, 96
_KINDS = {"up": 0, "down": 1, "question": 2, "answer": 3, "own": 4, "closed": 5}
_CLASSES = (256, 2048, 8192, 32768, 65536)  # [bytes] of a packet
_MOST = 9 * 65536  # [bytes] of a packet; the kernel makes none larger
# What is kept of a socket that connects
_KEPT_STATE, _KEPT_UP, _KEPT_DOWN, _KEPT_WHO = 0, 4, 8, 16
# Its states; of one that the service has closed only what leaves is copied, with `_CLOSED << 7` among the flags
_OPEN, _OWNED, _CLOSED = 0, 1, 2
# In the frame, at its end: struct tapped; before it the packet's head, who is to be woken, and two ends to look for
_FRAME, _HEADER, _WAKES, _TUPLE = -_HEAD, -_HEAD - 24, -_HEAD - 32, -_HEAD - 72
_NO_WAKEUP, _FORCE_WAKEUP = 1, 2
# struct notes of tapped.c
_LOST, _IDLE = 0, 8


class TapMaps(NamedTuple):
    """Descriptors of what programs of one group share."""

    ring: int
    notes: int
    kept: int

    def close(self) -> None:
        """Programs that have them keep them."""
        for one in self:
            os.close(one)


_PASS: list[Step | str] = ["pass", (0xB7, 0, 0, 0, 1), (0x95, 0, 0, 0, 0)]


def on_packet(maps: TapMaps, *, leaves: bool) -> list[Step | str]:
    """Of a socket of the group (BPF_PROG_TYPE_CGROUP_SKB); ``leaves``: it sends it, else it gets it."""
    return [
        (0xBF, 6, 1, 0, 0),
        (0x79, 1, 6, _SOCKET, 0),
        (0x15, 1, 0, "pass", 0),
        (0x85, 0, 0, 0, _FULL_SOCKET),
        (0x15, 0, 0, "pass", 0),
        (0xBF, 7, 0, 0, 0),
        *_begin("up" if leaves else "down"),
        *_find_head(),
        (0x61, 2, 7, _PROTOCOL, 0),
        (0x15, 2, 0, "datagram", int(socket.IPPROTO_UDP)),
        (0x55, 2, 0, "pass", int(socket.IPPROTO_TCP)),
        *_look_at_segment(),
        *(_connects(maps) if leaves else _is_answered(maps)),
        *_skip_head_of_segment(),
        *_put_ends(),
        (0x05, 0, 0, "send", 0),
        "datagram",
        *_look_at_datagram(leaves=leaves),
        "send",
        *_send(maps),
        *([] if leaves else _comes_from_own(maps)),
        *_count_lost(maps),
        *_PASS,
    ]


def _begin(kind: str) -> list[Step | str]:
    """An empty struct tapped of a kind."""
    return [
        *((0x7A, 10, 0, _FRAME + at, 0) for at in range(0, _HEAD, 8)),
        (0x62, 10, 0, _FRAME + _KIND, _KINDS[kind]),
    ]


def _find_head() -> list[Step | str]:
    """What is behind IP's head; behind extension headers only that of packets of more than 64 KiB (RFC 2675)."""
    return [
        *copied_bytes((0xB7, 2, 0, 0, 0), 12, _HEADER, "pass"),
        (0x71, 1, 10, _HEADER, 0),
        (0xBF, 8, 1, 0, 0),
        (0x77, 1, 0, 0, 4),
        (0x63, 10, 1, _FRAME + _VERSION, 0),
        (0x61, 2, 7, _PROTOCOL, 0),
        (0x55, 1, 0, "six", 4),
        (0x57, 8, 0, 0, 15),
        (0x67, 8, 0, 0, 2),
        (0x71, 1, 10, _HEADER + 9, 0),
        (0x1D, 1, 2, "head", 0),
        (0x05, 0, 0, "pass", 0),  # the socket's packet within another one (IPsec)
        "six",
        (0xB7, 8, 0, 0, 40),
        (0x71, 1, 10, _HEADER + 6, 0),
        (0x1D, 1, 2, "head", 0),
        (0x55, 1, 0, "pass", 0),
        (0xB7, 8, 0, 0, 48),
        *copied_bytes((0xB7, 2, 0, 0, 40), 2, _HEADER, "pass"),
        (0x69, 1, 10, _HEADER, 0),
        (0x55, 1, 0, "pass", int(socket.IPPROTO_TCP)),  # and no more than 8 bytes of them
        "head",
    ]


def _look_at_segment() -> list[Step | str]:
    return [
        *copied_bytes((0xBF, 2, 8, 0, 0), 20, _HEADER, "pass"),
        *_put_number(_HEADER + 4, _SEQUENCE),
        *_put_number(_HEADER + 8, _ACKED),
        (0x71, 1, 10, _HEADER + 13, 0),
        (0x63, 10, 1, _FRAME + _FLAGS, 0),
        (0x57, 1, 0, 0, _SYN | _ACK),
    ]


def _put_number(source: int, to: int) -> list[Step | str]:
    return [(0x61, 1, 10, source, 0), (0xDC, 1, 0, 0, 32), (0x63, 10, 1, _FRAME + to, 0)]


def _find_kept(maps: TapMaps, *, make: bool) -> list[Step | str]:
    """Register 0: what is kept of the socket in register 2, or 0."""
    return [
        (0x18, 1, 1, 0, maps.kept),
        (0, 0, 0, 0, 0),
        (0xB7, 3, 0, 0, 0),
        (0xB7, 4, 0, 0, int(make)),
        (0x85, 0, 0, 0, _STORAGE),
    ]


def _note_base(at: int) -> list[Step | str]:
    """Of what is kept, in register 9."""
    return [(0x61, 1, 10, _FRAME + _SEQUENCE, 0), (0x07, 1, 0, 0, 1), (0x63, 9, 1, at, 0)]


def _connects(maps: TapMaps) -> list[Step | str]:
    """Go on with sockets that connected; register 1: SYN and ACK of the segment, as in the next."""
    return [
        (0x55, 1, 0, "known", _SYN),
        (0xBF, 2, 7, 0, 0),
        *_find_kept(maps, make=True),
        (0x15, 0, 0, "lost", 0),
        (0xBF, 9, 0, 0, 0),
        (0xBF, 1, 6, 0, 0),
        (0x85, 0, 0, 0, _COOKIE),
        (0x7B, 9, 0, _KEPT_WHO, 0),
        (0x62, 9, 0, _KEPT_STATE, _OPEN),
        *_note_base(_KEPT_UP),
        (0x05, 0, 0, "kept", 0),
        "known",
        *_look_for_kept(maps),
        (0x15, 1, 0, "pass", _OWNED),
        (0x67, 1, 0, 0, 7),
        (0x61, 2, 10, _FRAME + _FLAGS, 0),
        (0x4F, 1, 2, 0, 0),
        (0x63, 10, 1, _FRAME + _FLAGS, 0),
        "kept",
        *_put_kept(),
    ]


def _is_answered(maps: TapMaps) -> list[Step | str]:
    return [
        (0x55, 1, 0, "known", _SYN),
        (0x61, 1, 7, _STATE, 0),
        (0x15, 1, 0, "listens", _LISTENS),
        "known",
        *_look_for_kept(maps),
        (0x55, 1, 0, "pass", _OPEN),
        (0x61, 1, 7, _STATE, 0),
        (0x55, 1, 0, "kept", _CONNECTS),  # SYN that comes later is none of this connection
        (0x61, 1, 10, _FRAME + _FLAGS, 0),
        (0x57, 1, 0, 0, _SYN),
        (0x15, 1, 0, "kept", 0),
        *_note_base(_KEPT_DOWN),
        "kept",
        *_put_kept(),
    ]


def _look_for_kept(maps: TapMaps) -> list[Step | str]:
    """Register 9, and its state in register 1."""
    return [
        (0xBF, 2, 7, 0, 0),
        *_find_kept(maps, make=False),
        (0x15, 0, 0, "pass", 0),
        (0xBF, 9, 0, 0, 0),
        (0x61, 1, 9, _KEPT_STATE, 0),
    ]


def _put_kept() -> list[Step | str]:
    return [
        (0x79, 1, 9, _KEPT_WHO, 0),
        (0x7B, 10, 1, _FRAME + _WHO, 0),
        (0x61, 1, 9, _KEPT_UP, 0),
        (0x63, 10, 1, _FRAME + _UP, 0),
        (0x61, 1, 9, _KEPT_DOWN, 0),
        (0x63, 10, 1, _FRAME + _DOWN, 0),
    ]


def _skip_head_of_segment() -> list[Step | str]:
    """One with nothing in it but an acknowledgement is let be."""
    return [
        (0x71, 1, 10, _HEADER + 12, 0),
        (0x77, 1, 0, 0, 4),
        (0x67, 1, 0, 0, 2),
        (0x0F, 8, 1, 0, 0),
        *_count_bytes(),
        (0x55, 9, 0, "worth it", 0),
        (0x61, 1, 10, _FRAME + _FLAGS, 0),
        (0x45, 1, 0, "worth it", _FIN_SYN_RST),
        (0x05, 0, 0, "pass", 0),
        "worth it",
    ]


def _count_bytes() -> list[Step | str]:
    return [(0x61, 9, 6, _LENGTH, 0), (0xAD, 9, 8, "pass", 0), (0x1F, 9, 8, 0, 0)]


def _put_ends() -> list[Step | str]:
    """As the socket has them: what the host translates is not seen."""
    steps: list[Step | str] = [
        (0x61, 1, 7, _SRC_PORT, 0),
        (0x63, 10, 1, _FRAME + _OWN_PORT, 0),
        (0x69, 1, 7, _DST_PORT, 0),
        (0xDC, 1, 0, 0, 16),
        (0x63, 10, 1, _FRAME + _PEER_PORT, 0),
        (0x61, 1, 10, _FRAME + _VERSION, 0),
        (0x15, 1, 0, "has four", 4),
    ]
    for word in range(0, 16, 4):
        for source, to in ((_SRC6, _OWN), (_DST6, _PEER)):
            steps += [(0x61, 1, 7, source + word, 0), (0x63, 10, 1, _FRAME + to + word, 0)]
    return [
        *steps,
        (0x05, 0, 0, "has ends", 0),
        "has four",
        (0x61, 1, 7, _SRC4, 0),
        (0x63, 10, 1, _FRAME + _OWN, 0),
        (0x61, 1, 7, _DST4, 0),
        (0x63, 10, 1, _FRAME + _PEER, 0),
        "has ends",
    ]


def _look_at_datagram(*, leaves: bool) -> list[Step | str]:
    """Go on with questions to name servers, and answers of them; a socket that is not connected knows no other end."""
    own, peer = (0, 2) if leaves else (2, 0)
    first, second = (_OWN, _PEER) if leaves else (_PEER, _OWN)
    return [
        (0x62, 10, 0, _FRAME + _KIND, _KINDS["question" if leaves else "answer"]),
        *copied_bytes((0xBF, 2, 8, 0, 0), 8, _HEADER, "pass"),
        (0x69, 1, 10, _HEADER + peer, 0),
        (0xDC, 1, 0, 0, 16),
        (0x55, 1, 0, "pass", _NAMES),
        (0x63, 10, 1, _FRAME + _PEER_PORT, 0),
        (0x69, 1, 10, _HEADER + own, 0),
        (0xDC, 1, 0, 0, 16),
        (0x63, 10, 1, _FRAME + _OWN_PORT, 0),
        (0x07, 8, 0, 0, 8),
        *_count_bytes(),
        (0x61, 1, 10, _FRAME + _VERSION, 0),
        (0x15, 1, 0, "datagram of four", 4),
        *copied_bytes((0xB7, 2, 0, 0, 8), 16, _FRAME + first, "pass"),
        *copied_bytes((0xB7, 2, 0, 0, 24), 16, _FRAME + second, "pass"),
        (0x05, 0, 0, "whose", 0),
        "datagram of four",
        *copied_bytes((0xB7, 2, 0, 0, 12), 4, _FRAME + first, "pass"),
        *copied_bytes((0xB7, 2, 0, 0, 16), 4, _FRAME + second, "pass"),
        "whose",
        (0xBF, 1, 6, 0, 0),
        (0x85, 0, 0, 0, _COOKIE),
        (0x7B, 10, 0, _FRAME + _WHO, 0),
    ]


def _send(maps: TapMaps) -> list[Step | str]:
    """Copy into the ring. A copy has one of a few sizes, which the kernel wants to know beforehand; of more there are several."""
    steps: list[Step | str] = [
        *_decide_wake(maps),
        (0x25, 9, 0, "lost", _MOST),
        "next",
        (0x63, 10, 9, _FRAME + _WHOLE, 0),
    ]
    for size in _CLASSES:
        larger, no_bytes = f"larger than {size}", f"no bytes in {size}"
        steps += [
            (0x25, 9, 0, larger, size),
            (0x63, 10, 9, _FRAME + _SIZE, 0),
            *_reserve(maps, size),
            (0xA5, 9, 0, no_bytes, 1),
            *_copy_bytes((0xBF, 4, 9, 0, 0)),
            no_bytes,
            *_submit(),
            (0x05, 0, 0, "pass", 0),
            larger,
        ]
    part = _CLASSES[-1]
    return [
        *steps,
        (0x62, 10, 0, _FRAME + _SIZE, part),
        *_reserve(maps, part),
        *_copy_bytes((0xB7, 4, 0, 0, part)),
        *_submit(),
        (0x07, 8, 0, 0, part),
        (0x17, 9, 0, 0, part),
        (0x61, 1, 10, _FRAME + _SEQUENCE, 0),
        (0x07, 1, 0, 0, part),
        (0x63, 10, 1, _FRAME + _SEQUENCE, 0),
        (0x05, 0, 0, "next", 0),
    ]


def _copy_bytes(size: Step) -> list[Step | str]:
    """``size`` puts that into register 4."""
    return [
        (0xBF, 1, 6, 0, 0),
        (0xBF, 2, 8, 0, 0),
        (0xBF, 3, 7, 0, 0),
        (0x07, 3, 0, 0, _HEAD),
        size,
        (0x85, 0, 0, 0, _COPY),
    ]


def _decide_wake(maps: TapMaps) -> list[Step | str]:
    """Who reads the ring looks often enough of itself, but when it said that it sleeps, or when much waits. Also notes the time."""
    return [
        (0x85, 0, 0, 0, _TIME),
        (0x7B, 10, 0, _FRAME + _MONO, 0),
        (0x7A, 10, 0, _WAKES, _FORCE_WAKEUP),
        (0x18, 1, 2, 0, maps.notes),
        (0, 0, 0, 0, _IDLE),
        (0x79, 1, 1, 0, 0),
        (0x55, 1, 0, "wake", 0),
        (0x18, 1, 1, 0, maps.ring),
        (0, 0, 0, 0, 0),
        (0xB7, 2, 0, 0, 0),
        (0x85, 0, 0, 0, _QUERY),
        (0x25, 0, 0, "wake", RING_BYTES // 4),
        (0x7A, 10, 0, _WAKES, _NO_WAKEUP),
        "wake",
    ]


def _reserve(maps: TapMaps, size: int) -> list[Step | str]:
    """Room in the ring, with struct tapped in it."""
    steps: list[Step | str] = [
        (0x18, 1, 1, 0, maps.ring),
        (0, 0, 0, 0, 0),
        (0xB7, 2, 0, 0, _HEAD + size),
        (0xB7, 3, 0, 0, 0),
        (0x85, 0, 0, 0, _RESERVE),
        (0x15, 0, 0, "lost", 0),
        (0xBF, 7, 0, 0, 0),
    ]
    for at in range(0, _HEAD, 8):
        steps += [(0x79, 1, 10, _FRAME + at, 0), (0x7B, 7, 1, at, 0)]
    return steps


def _submit() -> list[Step | str]:
    return [(0xBF, 1, 7, 0, 0), (0x79, 2, 10, _WAKES, 0), (0x85, 0, 0, 0, _SUBMIT)]


def _comes_from_own(maps: TapMaps) -> list[Step | str]:
    """A listener of the group gets a connection: if a socket of the group began it, it is none to others, and is let be."""
    return [
        "listens",
        (0x61, 1, 6, _IFINDEX, 0),
        (0x55, 1, 0, "pass", _LOOPBACK),
        *_put_tuple(),
        (0xBF, 1, 6, 0, 0),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, _TUPLE),
        (0xB7, 4, 0, 0, -1),  # BPF_F_CURRENT_NETNS
        (0xB7, 5, 0, 0, 0),
        (0x85, 0, 0, 0, _LOOK_UP),
        (0x15, 0, 0, "pass", 0),
        (0xBF, 8, 0, 0, 0),
        (0xBF, 2, 0, 0, 0),
        *_find_kept(maps, make=False),
        (0x15, 0, 0, "stranger", 0),
        (0x62, 0, 0, _KEPT_STATE, _OWNED),
        (0x79, 9, 0, _KEPT_WHO, 0),
        (0xBF, 1, 8, 0, 0),
        (0x85, 0, 0, 0, _RELEASE),
        *_begin("own"),
        (0x7B, 10, 9, _FRAME + _WHO, 0),
        *_rename(_decide_wake(maps), "own "),
        *_reserve(maps, 0),
        *_submit(),
        (0x05, 0, 0, "pass", 0),
        "stranger",
        (0xBF, 1, 8, 0, 0),
        (0x85, 0, 0, 0, _RELEASE),
        (0x05, 0, 0, "pass", 0),
    ]


def _put_tuple() -> list[Step | str]:
    """``struct bpf_sock_tuple`` as the socket that sent the packet has it, and its size in register 3."""
    return [
        (0x61, 1, 10, _HEADER, 0),  # both ports
        (0xBF, 7, 1, 0, 0),
        (0x67, 1, 0, 0, 48),
        (0x77, 1, 0, 0, 32),
        (0x77, 7, 0, 0, 16),
        (0x4F, 7, 1, 0, 0),
        (0x61, 1, 10, _FRAME + _VERSION, 0),
        (0x15, 1, 0, "tuple of four", 4),
        *copied_bytes((0xB7, 2, 0, 0, 24), 16, _TUPLE, "pass"),
        *copied_bytes((0xB7, 2, 0, 0, 8), 16, _TUPLE + 16, "pass"),
        (0x63, 10, 7, _TUPLE + 32, 0),
        (0xB7, 3, 0, 0, 36),
        (0x05, 0, 0, "has tuple", 0),
        "tuple of four",
        *copied_bytes((0xB7, 2, 0, 0, 16), 4, _TUPLE, "pass"),
        *copied_bytes((0xB7, 2, 0, 0, 12), 4, _TUPLE + 4, "pass"),
        (0x63, 10, 7, _TUPLE + 8, 0),
        (0xB7, 3, 0, 0, 12),
        "has tuple",
    ]


def on_closing(maps: TapMaps) -> list[Step | str]:
    """The last descriptor of a socket is closed (BPF_PROG_TYPE_CGROUP_SOCK)."""
    return [
        (0xBF, 2, 1, 0, 0),
        *_find_kept(maps, make=False),
        (0x15, 0, 0, "pass", 0),
        (0xBF, 9, 0, 0, 0),
        (0x61, 1, 9, _KEPT_STATE, 0),
        (0x55, 1, 0, "pass", _OPEN),
        (0x62, 9, 0, _KEPT_STATE, _CLOSED),
        *_begin("closed"),
        *_put_kept(),
        *_decide_wake(maps),
        *_reserve(maps, 0),
        *_submit(),
        (0x05, 0, 0, "pass", 0),
        *_count_lost(maps),
        *_PASS,
    ]


def _count_lost(maps: TapMaps) -> list[Step | str]:
    return [
        "lost",
        (0x18, 1, 2, 0, maps.notes),
        (0, 0, 0, 0, _LOST),
        (0xB7, 2, 0, 0, 1),
        (0xDB, 1, 2, 0, 0),
    ]


def _rename(steps: list[Step | str], prefix: str) -> list[Step | str]:
    """The same with labels of their own, for what is there twice."""
    own = {step for step in steps if isinstance(step, str)}

    def renamed(step: Step | str) -> Step | str:
        if isinstance(step, str):
            return prefix + step
        operation, to, source, offset, value = step
        return (
            operation,
            to,
            source,
            prefix + offset if isinstance(offset, str) and offset in own else offset,
            value,
        )

    return [renamed(step) for step in steps]
