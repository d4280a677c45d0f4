"""The recorder beside the way: reads a service's requests off the packets of its port, and carries nothing.

    python -m relive.proxies.ingress.capture --listen ADDR:PORT --upstream ADDR:PORT --recording DIR --control UNIXSOCKET
        --capture FILE --relay FILE [--network PID] [--capsule PID] [--hang-after SECONDS] [--body-limit BYTES]
        [--answer-limit BYTES] [--keep-bytes BYTES] [--keep-seconds SECONDS]

``--capture`` is ``relive-capture``, which takes the packets, in the network namespace of the process ``--network``, by default in
its own. ``--relay`` is the library that follows the connections of plain HTTP/1 (``_sights``); any other is followed by Python.
``--upstream`` is where the service itself listens, and ``--listen`` the same. The recording has the proxy's events, with the times
of the packets. Nothing in the way of a request waits for this process, whatever becomes of it, so no request can be held.

Of successful answers of more than ``--answer-limit`` bytes the kernel takes only the beginning: see ``relive.kernel.portprogram``.
Where it refuses the program they are recorded as a whole, and the log says so.

It records later than things happen: by less than 0.1 s where it keeps up. It runs at a lower priority than the service (``NICE``);
while much waits for it, at the same. Where more comes than it can take, packets are lost, and a note in the recording says so at
their place.

The control socket is that of ``proxy``, and agents are told the same, and also

==================================================  ============================================================
agent to this process                               reply
==================================================  ============================================================
``{"op":"close","id":I,"at":T}``                    ``{"op":"closed","id":I,"cursor":SEQ,"connections":[]}``
``{"op":"open","id":I,"commit":ID|null,"at":T,      ``{"op":"opened","id":I,"cursor":SEQ,"connections":[{
"crossed":R}``                                      "connection":C,"local_port":P,"request":N}]}``
``{"op":"catch-up","id":I}``                        ``{"op":"caught-up","id":I}``: all that came before is recorded
==================================================  ============================================================

T is CLOCK_REALTIME in nanoseconds: for ``close`` a moment before the service stands still, for ``open`` one while it does. R lists
[client's address, its port, service's address, N, M] of the connections in the commit: TCP sequence numbers of the first byte of
the client that it has not, and of the first that the service had not written. After ``close`` nothing is recorded that came after
its T, for ``HELD_SECONDS`` at most. The cursor of ``open`` is exact: before it is all that the commit has, and nothing else. What
the service had written and its kernel had not sent is looked for during ``AHEAD_SECONDS``.

==================================================  ============================================================
this process to every agent                         when
==================================================  ============================================================
``{"op":"packets-lost","packets":N}``               packets are missing
==================================================  ============================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from relive.errors import CapsuleStartFailed, ReliveError
from relive.kernel.namespaces import Namespace, namespace_id
from relive.kernel.portprogram import BEGINNING, load_port_program
from relive.proxies.capsule_end import stop_when_left
from relive.proxies.control import ControlHub, ControlLink, error_reply
from relive.proxies.ingress._observed_traffic import ObservedTraffic
from relive.proxies.ingress._segments import Segment
from relive.proxies.ingress._sightings import ConnectionTable, Crossed, read_crossed
from relive.proxies.ingress._sights import Sights, Verdict
from relive.proxies.ingress.options import ProxyOptions, parse_options
from relive.proxies.ingress.spool import Block, PacketSpool
from relive.proxies.listeners import bind_control, split_address
from relive.proxies.running import run
from relive.recording.events import EventKind

__all__ = ["PacketRecorder", "main"]

NICE = 10
HELD_SECONDS = 10.0  # so long an agent may take from `close` to `open`
AHEAD_SECONDS = 0.05  # longer than acknowledgements are delayed, for which small writes wait
_CATCH_UP_SECONDS = 25.0
_DISORDER_NS = 1_000_000  # of packets that two processors saw at one moment
_END_SECONDS = 5.0
_MUCH = 32 << 20  # [bytes] waiting
_SLICE = 0.005  # [s] of work between two looks at the control socket
_FLUSH_PAUSE = 0.02  # [s]
_AT_ONCE = 1024  # segments between two looks at the clock, where 4 KiB count as one more
_ASK_PAUSE = 0.02  # [s]
_BEGUN_WITHIN = 5.0  # [s]
_LATEST = 0.1  # [s] after it has come a packet is read


class PacketRecorder:
    """Lives in one event loop.

    Raises:
        CapsuleStartFailed: the relay's library cannot be used.
    """

    def __init__(self, options: ProxyOptions, loop: asyncio.AbstractEventLoop) -> None:
        assert options.capture is not None
        self.options = options
        self.loop = loop
        self.hub = ControlHub(self)
        host, port = split_address(options.upstream)
        own = _own_address(host)
        try:
            self.traffic = ObservedTraffic(options, loop, self.hub, on_trouble=_say)
            self.sights = Sights(
                *(self.traffic.observed.relay, port, own), body_limit=options.body_limit, logs=options.logs
            )
        except OSError as error:
            raise CapsuleStartFailed(
                f"{options.relay} cannot be used", cause=str(error), remedy="run `make setup`"
            ) from error
        self.writer = self.traffic.observed
        self.table = ConnectionTable(self.traffic, own, self.sights)
        self._network = namespace_id(options.network or "self", Namespace.NETWORK)
        with _port_program(port, options) as takes:
            self._spool = PacketSpool(
                *(options.capture, options.recording.parent / "packets", port),
                network=options.network,
                takes=takes,
            )
        self._lost = 0
        self._begins_again = self.writer.last_seq > 0  # what came while there was none is missing
        self._stop = asyncio.Event()
        self._has_ended = False
        self._more = asyncio.Event()  # blocks, or leave to go on
        self._stand: int | None = None  # [ns] nothing later is recorded yet
        self._ahead: list[Segment] | None = None  # later ones, while a commit is placed
        self._goes_on = asyncio.Event()  # no commit is being placed any more
        self._owner: ControlLink | None = None
        self._is_placing = False
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.TimerHandle | None = None
        self._recorded_until = 0  # [ns] every packet before that is recorded
        self._progressed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    # For agents

    def control_message(self, link: ControlLink, op: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a message of an agent; see the module's table."""
        if op == "status":
            return self._status()
        try:
            if op == "close":
                return self._close(link, int(message["at"]))
            if op == "open":
                commit = message.get("commit")
                place = (int(message["at"]), read_crossed(message["crossed"])) if commit is not None else None
                return self._open(link, message, place)
        except (KeyError, ValueError, TypeError) as error:
            return error_reply("bad-message", f"not to be understood: {error!r:.100}")
        if op == "catch-up":
            self._begin(self._catch_up(link, message))
            return None
        return error_reply("unknown-op", f"there is no op {op!r:.50}")

    def control_lost(self, link: ControlLink, *, was_last: bool) -> None:  # noqa: ARG002  no requests are held
        """An agent went away: what it had stopped goes on."""
        if self._owner is link and not self._is_placing:
            self._go_on()

    def _close(self, link: ControlLink, at: int) -> dict[str, Any]:
        if self._owner is not None:
            return error_reply("gate-closed", "another commit is being placed")
        self._owner, self._stand = link, at
        self._goes_on.clear()
        self._timer = self.loop.call_later(HELD_SECONDS, self._go_on)
        _be_nice(0)  # a commit waits for it
        return {"op": "closed", "cursor": self.writer.last_seq, "connections": []}

    def _open(
        self, link: ControlLink, message: dict[str, Any], place: tuple[int, Crossed] | None
    ) -> dict[str, Any] | None:
        if self._owner is not link:
            return error_reply("gate-not-closed", "no commit is being placed; it may have taken too long")
        if self._timer is not None:
            self._timer.cancel()
        if place is None:
            self._go_on()
            return {"op": "opened", "cursor": self.writer.last_seq, "connections": []}
        self._is_placing = True
        self._begin(self._place(link, message, *place))
        return None

    async def _place(self, link: ControlLink, message: dict[str, Any], at: int, crossed: Crossed) -> None:
        """Record all up to a commit, and then the commit."""
        try:
            began = self._stand
            assert began is not None
            await self._recorded(began)
            self.table.limit(crossed)
            self._ahead = []
            self._stand = at
            self._more.set()
            await self._recorded(at + round(AHEAD_SECONDS * 1e9))
            cursor = self.writer.last_seq
            found = self.table.open_requests()
            fields = {"commit": message["commit"], "cursor": cursor, "closed_ns": None}
            moment = (at - time.time_ns() + time.monotonic_ns(), at)
            self.writer.append(EventKind.COMMIT_TAKEN, fields=fields, at=moment)
            self.writer.flush_all()
            self.traffic.packet_gate.stood_still += (at - began) / 1e9
            self.sights.stood_still(at - began)
            link.reply(message, {"op": "opened", "cursor": cursor, "connections": found})
        except TimeoutError:
            link.reply(
                message, error_reply("too-late", "what came before the commit could not be recorded in time")
            )
        finally:
            self._is_placing = False
            self.table.unlimit()
            self._go_on()

    def _go_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner = self._stand = self._timer = None
        self._goes_on.set()
        ahead, self._ahead = self._ahead, None
        for segment in ahead or ():
            self.table.observe(segment)
        self.traffic.hear_relay()
        self._more.set()

    async def _catch_up(self, link: ControlLink, message: dict[str, Any]) -> None:
        at = time.time_ns()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._recorded(at)
                # What came since a commit's moment may wait for its place.
                while self._stand is not None and self._stand < at:
                    await self._goes_on.wait()
        self.writer.flush_all()
        link.reply(message, {"op": "caught-up"})

    async def _recorded(self, at: int, limit: float = _CATCH_UP_SECONDS) -> None:
        """Wait until every packet that came before a moment is recorded.

        Raises:
            TimeoutError: there are too many.
        """
        if self._recorded_until > time.time_ns():  # the clock was set back
            self._recorded_until = 0
        async with asyncio.timeout(limit):
            while self._recorded_until < at:
                self._spool.look_now()
                self._progressed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ASK_PAUSE):
                        await self._progressed.wait()

    def _status(self) -> dict[str, Any]:
        theirs = self.writer.relay.counts()
        return {
            "op": "status",
            "pid": os.getpid(),
            "connections": self.table.count,
            "in_flight": len(self.traffic.flights) + theirs.in_flight,
            "requests": self.writer.last_request,
            "answered": self.traffic.answered_count + theirs.answered,
            "server_errors": self.traffic.errors + theirs.errors,
            "broken": self.traffic.broken_count + theirs.broken,
            "unframed": self.traffic.unframed,
            "cursor": self.writer.last_seq,
            "recording": self.writer.is_on,
            "events_lost": self.writer.lost,
            "packets_lost": self._lost,
            "gaps": self.table.gaps + self._begins_again,
            "waiting": self._spool.waiting,
            "capture": self._spool.pid,
            "network": self._network,
        }

    # Life

    async def serve(self) -> None:
        """Record until SIGTERM or SIGINT, or until nobody is left.

        Raises:
            CapsuleStartFailed: the control socket cannot be bound, or the packets cannot be taken.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._stop.set)
        fields = {
            "listen": self.options.listen,
            "upstream": self.options.upstream,
            "pid": os.getpid(),
            "logs": list(self.options.logs),
            "capture": "beside",
        }
        self.writer.append(
            EventKind.RECORDER_STARTED, fields=fields, at=(time.monotonic_ns(), time.time_ns())
        )
        self.writer.flush_all()
        self.loop.add_reader(self._spool.fileno(), self._hear)
        await self._begun()  # who finds the control socket knows that packets are taken
        control = bind_control(self.options.control)
        server = await self.loop.create_unix_server(self.hub.link, sock=control)
        watching = asyncio.create_task(self._watch_for_hangs())
        left = asyncio.create_task(stop_when_left(self.options.capsule, self.hub, self._stop))
        reading = asyncio.create_task(self._read())
        try:
            await self._stop.wait()
            if not self._has_ended:
                with contextlib.suppress(TimeoutError):
                    await self._recorded(time.time_ns(), _END_SECONDS)
        finally:
            for task in (watching, reading, left, *self._tasks):
                task.cancel()
            self.loop.remove_reader(self._spool.fileno())
            self._spool.close()
            server.close()
            self.options.control.unlink(missing_ok=True)
            self.sights.close()
            self.writer.close()
        if reading.done() and not reading.cancelled() and (error := reading.exception()) is not None:
            raise error
        if self._has_ended:
            raise CapsuleStartFailed(
                "packets are not taken any more",
                cause="relive-capture has ended",
                remedy="another is started",
            )

    async def _begun(self) -> None:
        """Wait until packets are taken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGUN_WITHIN):
                while not (self._spool.until or self._has_ended):
                    await self._more.wait()
                    self._more.clear()
        self._more.set()

    def _begin(self, act: Any) -> None:
        task = asyncio.ensure_future(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hear(self) -> None:
        if not self._spool.hear():
            self._has_ended = True
            self.loop.remove_reader(self._spool.fileno())
            self._stop.set()
        self._more.set()

    async def _read(self) -> None:
        """Take packets as they come, as long as this runs."""
        try:
            while True:
                self._note_logs()
                until = self._spool.until  # first: what came before it is among the blocks that are there now
                await self._read_blocks()
                self._recorded_until = max(self._recorded_until, until)
                self._progressed.set()
                self._flush_soon()
                self._pace()
                await self._more.wait()
                self._more.clear()
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._stop.set()
            raise

    def _flush_soon(self) -> None:
        """Many events at once: where much comes, each block would else be a write of its own."""
        if self._flushing is None:
            self._flushing = self.loop.call_later(_FLUSH_PAUSE, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        self.writer.flush_all()

    async def _read_blocks(self) -> None:
        slice_end = time.monotonic() + _SLICE
        for block in self._spool.blocks():
            if block.lost:
                self._lost += block.lost
                self.table.lose(block.lost)
                self.hub.broadcast({"op": "packets-lost", "packets": block.lost})
            self.writer.set_clock()
            self.sights.begin_block(block.packets)
            while (verdict := self._take(block)) is not Verdict.BLOCK_OVER:
                if verdict is Verdict.GONE:
                    block = self._spool.copy_of(block)  # noqa: PLW2901  the same, to go on with
                elif verdict is Verdict.TOO_LATE:
                    await self._take_late(self.sights.found)
                elif verdict is not Verdict.PAUSED:
                    self.table.observe_given(verdict, self.sights.found)
                if time.monotonic() > slice_end:
                    self._pace()
                    await asyncio.sleep(0)
                    slice_end = time.monotonic() + _SLICE
            self.traffic.hear_relay()
            # Who waits need not wait for the end of all that comes.
            self._recorded_until = max(self._recorded_until, self.sights.latest_ns - _DISORDER_NS)
            self._progressed.set()

    def _take(self, block: Block) -> Verdict:
        return self.sights.take(
            *(block.data, block.size, self._stand, self.writer.apart_ns, _AT_ONCE), block.in_ring
        )

    async def _take_late(self, segment: Segment) -> None:
        """It came after the moment at which a commit is being placed."""
        while self._stand is not None and segment.wall_ns > self._stand and self._ahead is None:
            await self._wait_at(self._stand)
        if self._ahead is None or self._stand is None or segment.wall_ns <= self._stand:
            self.table.observe(segment)
        elif not self.table.observe_written(segment):
            self._ahead.append(segment)

    def _note_logs(self) -> None:
        now = time.time_ns()
        if self.traffic.noted_logs:
            self.sights.note_logs(now, self.traffic.noted_logs.note(now))

    async def _wait_at(self, stand: int) -> None:
        """A packet came after the moment at which a commit is being placed: what came before that is recorded."""
        self._recorded_until = max(self._recorded_until, stand)
        self._progressed.set()
        self.writer.flush_all()
        self._more.clear()
        await self._more.wait()

    def _pace(self) -> None:
        if self._owner is None:
            _be_nice(0 if self._spool.waiting > _MUCH else NICE)

    async def _watch_for_hangs(self) -> None:
        limit = self.options.hang_after
        while True:
            await asyncio.sleep(max(0.02, min((limit or 4.0) / 4, 1.0)))
            self._note_logs()
            if limit is None or self._spool.has_more or self._stand is not None:
                continue  # the answer may be among what waits
            now = time.monotonic() - self.traffic.packet_gate.stood_still - _LATEST
            for flight, connection in list(self.traffic.flights.values()):
                seconds = now - flight.touched
                if seconds >= limit and not flight.reported and connection.waits_on_service(flight):
                    flight.reported = True
                    self.writer.flush_all()
                    self.traffic.publish_unanswered(flight.number, seconds, time.time_ns())
            self.writer.flush_all()
            self.sights.look_for_hangs(round(limit * 1e9), round(now * 1e9))
            self.traffic.hear_relay()


@contextlib.contextmanager
def _port_program(port: int, options: ProxyOptions) -> Iterator[int | None]:
    """The descriptor of what cuts long answers; None: nothing does."""
    program = None
    if options.answer_limit < options.body_limit:
        try:
            program = load_port_program(port, max(options.answer_limit, BEGINNING))
        except OSError as error:
            _say(f"long answers are recorded as a whole: BPF: {error.strerror}")
    try:
        yield program
    finally:
        if program is not None:
            os.close(program)


def _own_address(host: str) -> bytes | None:
    """Where the service listens, packed; None for all addresses, and for a name of several."""
    named = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    address = ipaddress.ip_address(str(named.pop()).partition("%")[0])
    return None if named or address.is_unspecified else address.packed


def _be_nice(value: int) -> None:
    """Take a priority, among all processes: where the kernel groups by sessions (sched_autogroup) also that of this one's.

    A priority may be given up, and not always be had again. A session that has others in it keeps its own.
    """
    if os.getpriority(os.PRIO_PROCESS, 0) == value:
        return
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, value)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(value))


def _say(text: str) -> None:
    sys.stderr.write(f"relive capture: {text}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; returns its exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)

    def sentence_of(error: ReliveError) -> str:
        hint = f"Hint: {error.remedy}\n" if error.remedy is not None else ""
        return f"Error: {error}\n{hint}"

    serve: Callable[[], Any] = lambda: PacketRecorder(options, asyncio.get_running_loop()).serve()  # noqa: E731
    return run(serve, sentence_of)


if __name__ == "__main__":
    sys.exit(main())
