"""What all connections share whose packets are recorded: the recording, with the packets' times, and a gate that is always open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from relive.proxies.control import ControlHub
from relive.proxies.gate import Gate
from relive.proxies.ingress._flight import Flight
from relive.proxies.ingress._log_sizes import NotedLogSizes
from relive.proxies.ingress._posts import tell
from relive.proxies.ingress._traffic import ProxiedConnection, Traffic
from relive.proxies.ingress.options import ProxyOptions
from relive.proxies.relay_writer import RelayWriter
from relive.recording.events import EventKind

__all__ = ["ObservedTraffic", "ObservedWriter"]


class ObservedWriter(RelayWriter):
    """Events have the time of the packet that they are of, and go to the kernel many at once: nobody waits for them.

    Raises:
        OSError: as of ``RelayWriter``.
    """

    apart_ns = 0
    """CLOCK_REALTIME less CLOCK_MONOTONIC, when ``set_clock`` was last called."""

    _wants_flush = False

    def set_clock(self) -> None:
        """Compare the clocks: between two packets that were compared at once, times do not go back."""
        self.apart_ns = time.time_ns() - time.monotonic_ns()

    def see(self, wall_ns: int) -> None:
        """What follows is of a packet of that moment."""
        self._numbers.seen_mono_ns, self._numbers.seen_wall_ns = wall_ns - self.apart_ns, wall_ns

    @contextlib.contextmanager
    def as_seen(self, wall_ns: int) -> Iterator[None]:
        """What is recorded within is of a packet of that moment, which had to wait."""
        now = self._numbers.seen_wall_ns
        self.see(wall_ns)
        try:
            yield
        finally:
            self.see(now)

    @property
    def seen(self) -> tuple[int, int]:
        """(monotonic, wall) [ns] of the last packet."""
        return self._numbers.seen_mono_ns, self._numbers.seen_wall_ns

    def flush(self) -> None:
        """Only where there is much, which the relay's library sees to."""
        if self._wants_flush:
            super().flush()

    def flush_all(self) -> None:
        """Hand all appended events to the kernel."""
        self._wants_flush = True
        self.flush()
        self._wants_flush = False

    def close(self) -> None:
        """As ``RelayWriter``."""
        self.flush_all()
        super().close()


class _PacketGate(Gate[ProxiedConnection]):
    """Its clock is that of the packets, less the time for which the service stood still."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: ObservedWriter) -> None:
        super().__init__(loop, writer)
        self._packets = writer
        self.stood_still = 0.0  # [s]

    def clock(self) -> float:
        """Seconds."""
        return self._packets.seen[0] / 1e9 - self.stood_still


class ObservedTraffic(Traffic):
    """What all connections share. Requests go on without a word of anybody, so there are no holds, and the gate is always open."""

    def __init__(
        self,
        options: ProxyOptions,
        loop: asyncio.AbstractEventLoop,
        hub: ControlHub,
        on_trouble: Callable[[str], None],
    ) -> None:
        """As ``Traffic``.

        Raises:
            OSError: the relay's library cannot be had.
        """
        assert options.relay is not None
        self.observed = ObservedWriter(
            options.relay,
            options.recording,
            keep_bytes=options.keep_bytes,
            keep_seconds=options.keep_seconds,
            on_trouble=on_trouble,
        )
        super().__init__(options, loop, hub, on_trouble, writer=self.observed)
        self.packet_gate = _PacketGate(loop, self.observed)
        self.gate = self.packet_gate
        self.logs = self.noted_logs = NotedLogSizes(options.logs, self.wall_ns)
        self.gaps = 0  # places at which packets are missing

    def wall_ns(self) -> int:
        """Of the packet."""
        return self.observed.seen[1]

    def hear_relay(self) -> None:
        """Tell on what was posted by now."""
        for post in self.observed.relay.posts():
            tell(post, self, self.observed)

    def answered(self, flight: Flight) -> None:
        """As ``Traffic``."""
        if flight.has_failed:
            self.hear_relay()  # of what was before
            self.observed.flush_all()
        super().answered(flight)

    def broken(self, flight: Flight, how: str, reused: int) -> None:
        """As ``Traffic``."""
        self.hear_relay()
        self.observed.flush_all()
        super().broken(flight, how, reused)

    def note_gap(self, connection: int, text: str, lost: int = 0) -> None:
        """Packets are missing here: what is recorded is not all there was."""
        self.gaps += 1
        fields = {"about": "capture", "text": text, "lost": lost}
        self.writer.append(EventKind.NOTE, connection, fields=fields)

    def note_missed(self, connection: int) -> None:
        """Something was said on it before it was known, though not so that packets were lost."""
        text = "a connection stood before it was recorded: what was said on it until here is missing"
        fields = {"about": "capture", "text": text, "lost": 0, "stood": True}
        self.writer.append(EventKind.NOTE, connection, fields=fields)
