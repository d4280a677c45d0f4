"""Connections as their packets show them, played into a table without any network."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from relive.config import load_settings
from relive.proxies.control import ControlHub
from relive.proxies.ingress._observed_traffic import ObservedTraffic
from relive.proxies.ingress._segments import ACK, FIN, SYN, Ends, Segment
from relive.proxies.ingress._sightings import ConnectionTable
from relive.proxies.ingress._sights import Sights
from relive.proxies.ingress.options import RELAY, ProxyOptions
from relive.recording import layout
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording

__all__ = ["FAILED", "GET", "HOME", "OK", "ROUND", "Scene", "Talk"]

HOME = socket.inet_aton("127.0.0.1")
ROUND = 1 << 32
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
FAILED = b"HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nbad"


class Told(ControlHub):
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def broadcast(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


class Scene:
    """A table of connections, with what it records; ``by_sights``: they are followed in C as far as may be."""

    def __init__(
        self,
        directory: Path,
        *,
        by_sights: bool,
        body_limit: int = 1 << 24,
        library: Path | None = None,
        logs: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory / "recording"
        relay = library or load_settings().tools_path / RELAY
        options = ProxyOptions(
            *("127.0.0.1:8000", "127.0.0.1:8000", self.directory, directory / "control"),
            relay=relay,
            body_limit=body_limit,
        )
        self.hub = Told()
        self.loop = asyncio.new_event_loop()
        self.traffic = ObservedTraffic(options, self.loop, self.hub, on_trouble=lambda _text: None)
        writer = self.traffic.observed
        self.sights = (
            Sights(writer.relay, 8000, HOME, body_limit=options.body_limit, logs=logs) if by_sights else None
        )
        self.table = ConnectionTable(self.traffic, HOME, self.sights)
        self.now = 1_000_000_000_000

    def talk(self, port: int = 40000, *, up: int = 100, down: int = ROUND - 10, begun: bool = True) -> Talk:
        return Talk(self, port, up, down, begun=begun)

    def close(self) -> None:
        if self.sights is not None:
            self.sights.close()
        self.traffic.observed.close()
        self.loop.close()

    def events(self, *kinds: EventKind) -> list[Event]:
        self.traffic.observed.flush_all()
        return [one for one in Recording(self.directory).events() if not kinds or one.kind in kinds]

    def written(self) -> bytes:
        """All records as they are on the disk, without the headers of their files."""
        self.traffic.observed.flush_all()
        files = sorted(self.directory.glob("*.events"))
        return b"".join(one.read_bytes()[layout.SEGMENT_HEADER_BYTES :] for one in files)

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events()]

    def exchanges(self) -> list[Exchange]:
        self.traffic.observed.flush_all()
        return list(Exchanges(Recording(self.directory)).begun_in(0, 1 << 60))


class Talk:
    """One connection, whose segments the test lets the table see."""

    def __init__(self, scene: Scene, port: int, up: int, down: int, *, begun: bool) -> None:
        self.scene, self.ends = scene, Ends(HOME, port, HOME)
        self.up, self.down = up, down
        if begun:
            self.put(Segment(scene.now, self.ends, True, (up - 1) % ROUND, 0, SYN, b""))
            self.put(Segment(scene.now, self.ends, False, (down - 1) % ROUND, up, SYN | ACK, b""))

    def put(self, segment: Segment) -> None:
        self.scene.now += 1_000_000
        self.scene.table.observe(segment._replace(wall_ns=self.scene.now))
        self.scene.traffic.hear_relay()

    def asks(self, data: bytes, flags: int = ACK) -> Segment:
        """A segment of the client that is next in order; it is not put."""
        made = Segment(0, self.ends, True, self.up, self.down, flags, data)
        self.up = (self.up + len(data) + bool(flags & FIN)) % ROUND
        return made

    def tells(self, data: bytes, flags: int = ACK) -> Segment:
        """The same of the service."""
        made = Segment(0, self.ends, False, self.down, self.up, flags, data)
        self.down = (self.down + len(data) + bool(flags & FIN)) % ROUND
        return made

    def exchange(self, request: bytes = GET, answer: bytes = OK) -> None:
        self.put(self.asks(request))
        self.put(self.tells(answer))
