"""Packets of connections that nobody means well with, from a seed, played into a table; and blocks that are damaged.

    python -m proxies.hostile_packets LIBRARY DIRECTORY SECONDS

plays them for so long into a library that a sanitizer may have instrumented.
"""

from __future__ import annotations

import ctypes
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from relive.proxies.ingress._segments import ACK, FIN, RST, SYN, Segment
from relive.proxies.ingress._sights import Verdict

from .hostile_traffic import hostile_bytes
from .packet_bytes import ip4, ip6, packet, tcp
from .packet_scene import ROUND, Scene, Talk

__all__ = ["BODY_LIMIT", "play", "read_damaged"]

BODY_LIMIT = 3000


def _cut(chance: random.Random, data: bytes) -> Iterator[bytes]:
    while data:
        size = chance.choice((1, 7, 100, 1448, 65000, len(data)))
        yield data[:size]
        data = data[size:]


def _segments(chance: random.Random, talk: Talk, *, turns: int) -> Iterator[Segment]:
    for _ in range(turns):
        request, answer = hostile_bytes(chance)
        yield from (talk.asks(one) for one in _cut(chance, request))
        yield from (talk.tells(one) for one in _cut(chance, answer))
    if chance.random() < 0.7:
        yield talk.asks(b"", chance.choice((FIN | ACK, RST, RST | ACK)))
    if chance.random() < 0.7:
        yield talk.tells(b"", chance.choice((FIN | ACK, RST)))


def _disturbed(chance: random.Random, segments: list[Segment]) -> list[Segment]:
    """Some come late, twice or not at all, and of some not all is taken."""
    for _ in range(chance.choice((0, 0, 1, 3))):
        if segments:
            at = chance.randrange(len(segments))
            what = chance.randrange(6)
            if what == 0:
                segments.insert(chance.randrange(len(segments)), segments[at])
            elif what == 1:
                segments.insert(min(len(segments), at + chance.randrange(4)), segments.pop(at))
            elif what == 2:
                del segments[at]
            else:
                data = segments[at].data
                cut = chance.randrange(len(data) + 1)
                lacks = len(data) - cut if what > 3 else 0
                segments[at] = segments[at]._replace(data=data[:cut], lacks=lacks)
    return segments


def _commit(chance: random.Random, scene: Scene, talks: list[Talk]) -> None:
    crossed = {
        talk.ends: ((talk.up - chance.randrange(60)) % ROUND, (talk.down - chance.randrange(60)) % ROUND)
        for talk in talks
        if chance.random() < 0.7
    }
    scene.table.limit(crossed)


def play(scene: Scene, seed: int, *, connections: int) -> None:
    """So many connections at once, with commits and lost packets among their segments."""
    chance = random.Random(seed)
    talks = [
        scene.talk(40000 + number, up=chance.choice((100, ROUND - 50)), begun=chance.random() < 0.8)
        for number in range(connections)
    ]
    waiting = [
        _disturbed(chance, list(_segments(chance, talk, turns=chance.choice((1, 2, 4))))) for talk in talks
    ]
    while any(waiting):
        at = chance.choice([number for number, one in enumerate(waiting) if one])
        talks[at].put(waiting[at].pop(0))
        event = chance.random()
        if event < 0.01:
            scene.table.lose(3)
        elif event < 0.03:
            _commit(chance, scene, talks)
        elif event < 0.08:
            scene.table.open_requests()
            scene.table.unlimit()
    scene.table.unlimit()
    scene.traffic.hear_relay()


def _block(chance: random.Random) -> bytes:
    request, answer = hostile_bytes(chance)
    make = chance.choice((ip4, ip6))
    client, service = ("10.0.0.9", "127.0.0.1") if make is ip4 else ("2001:db8::9", "::1")
    up, down = tcp(40000, 8000, 99, 0, SYN, b""), tcp(8000, 40000, 199, 100, SYN | ACK, b"")
    asks, tells = (
        tcp(40000, 8000, 100, 200, ACK, request[:9000]),
        tcp(8000, 40000, 200, 100, ACK, answer[:9000]),
    )
    ways = ((client, service, up), (service, client, down), (client, service, asks), (service, client, tells))
    return b"".join(packet(make(*one)) for one in ways)


def read_damaged(scene: Scene, seed: int) -> None:
    """A block with some other bytes than the kernel laid there."""
    chance = random.Random(seed)
    damaged = bytearray(_block(chance))
    for _ in range(chance.choice((1, 3, 20))):
        damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0xFF, chance.randrange(256)))
    size = chance.choice((len(damaged), chance.randrange(len(damaged) + 1)))
    held = ctypes.create_string_buffer(bytes(damaged[:size]), max(size, 1))
    assert scene.sights is not None
    scene.sights.begin_block(chance.choice((3, 1000)))
    while (verdict := scene.sights.take(held, size, None, 0, 64)) is not Verdict.BLOCK_OVER:
        if verdict is not Verdict.PAUSED:
            scene.table.observe_given(verdict, scene.sights.found)


def main() -> None:
    """See above."""
    library, directory, until = Path(sys.argv[1]), Path(sys.argv[2]), time.monotonic() + float(sys.argv[3])
    seed = 0
    while time.monotonic() < until:
        scene = Scene(directory / str(seed), by_sights=True, body_limit=BODY_LIMIT, library=library)
        for _ in range(20):
            play(scene, seed := seed + 1, connections=3)
        for number in range(200):
            read_damaged(scene, seed * 1000 + number)
        scene.close()
    print(seed)


if __name__ == "__main__":
    main()
