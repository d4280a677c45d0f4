"""The recording reverse proxy: stands before one service, numbers its requests, records what crosses.

    python -m relive.proxies.ingress.proxy --listen ADDR:PORT --upstream HOST:PORT --recording DIR --control UNIXSOCKET
        [--ready-fd N] [--every-request] [--hang-after SECONDS] [--body-limit BYTES] [--keep-bytes BYTES]
        [--keep-seconds SECONDS] [--capsule PID]
        [--log FILE ...] [--stand-in | --front UNIXSOCKET] [--relay FILE]

With ``--stand-in`` it takes the new connections of the upstream's own port (see ``takeover``) instead of listening anywhere.

With ``--front`` it gets the listening socket of ``--listen`` from who keeps the port open when it dies (process 1 of a capsule,
``relive-front``), and tells another of those, should one follow, that it is there.

With ``--relay`` plain HTTP/1 is carried by threads in C (``native/relay_library.c``), and every connection on which something else
comes by this process's event loop, to which it is handed. With ``--every-request`` the event loop carries all.

When it listens it writes one JSON line to descriptor N and closes it: ``{"listen": [ADDR, PORT], "pid": PID}``.
On SIGTERM it takes no more connections, lets requests in flight end for up to ``DRAIN_SECONDS``, and exits 0. It does
the same when the process of ``--capsule`` has ended and no agent is there.

The service comes first: no state of the recording, of the disk or of an agent keeps traffic from flowing for longer
than the limits said here. The service's connection is opened at the client's first byte; while the service starts,
for up to 10 s, requests wait for it; later a service that refuses connections for 1 s is answered for with a 502. One whose
queue of connections is full refuses none: a request waits as long as its client, up to the two minutes for which the
kernel tries.

Clients may speak something else than HTTP/1, or wait for the service to speak first: their bytes are passed on, and no requests
are told apart (see ``_speech.py``).

The control socket (SOCK_STREAM, JSON lines, peer root or the same user, at most 4 connections, each equal):

==================================================  ============================================================
agent to proxy (``id``: any value, comes back)      reply
==================================================  ============================================================
``{"op":"close","id":I}``                           ``{"op":"closed","id":I,"cursor":SEQ,"connections":[{
                                                    "connection":C,"local_port":P,"request":N|null,"sent":B}]}``
``{"op":"open","id":I,"commit":ID|null}``           ``{"op":"opened","id":I,"cursor":SEQ}``
``{"op":"go","requests":[N..],"commit":ID|null}``   none; with an ``id``: ``{"op":"gone","id":I,"requests":[N..]}``
``{"op":"status","id":I}``                          ``{"op":"status","id":I, ...counters}``
anything wrong                                      ``{"op":"error","id":I,"error":{code,message,cause,remedy}}``
==================================================  ============================================================

Error codes: ``bad-message``, ``unknown-op``, ``gate-closed`` (a second close), ``gate-not-closed`` (an open of a gate
that is open, also because it opened by itself: the commit then has no exact cursor), ``not-yours``, ``refused``.

Between ``closed`` and ``opened`` no byte, FIN or new connection reaches the service; its answers flow on. ``request``
is the oldest request of the connection whose answer is not whole, ``sent`` the bytes the kernel took for the service
over the life of the connection. The gate opens by itself after 10 s, or when the connection that closed it ends.

==================================================  ============================================================
proxy to every agent, or to the next that comes     when
==================================================  ============================================================
``{"op":"hold","request":N}``                       with --every-request: the request waits for ``go``, at most 30 s
                                                    and only while an agent is connected
``{"op":"answered","request":N,"status":S,          a 5xx answer of the service is whole
"seconds":X,"wall_ns":T,"seq":SEQ}``
``{"op":"broken","request":N,"how":H,               the service ended the connection before the answer was whole:
"reused":R,"seconds":X,"wall_ns":T}``               ``closed`` or ``reset``; or took none: ``refused``, or within
                                                    two minutes ``timed-out``. R answers came on it before
``{"op":"unanswered","request":N,"seconds":X,       once, when no final answer's head came for --hang-after seconds
"wall_ns":T}``                                      since the service last got something to do for it
``{"op":"unframed","connection":C,"text":T}``       once, when the first connection is passed on that carries no HTTP/1
==================================================  ============================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from relive.errors import ReliveError
from relive.proxies.capsule_end import stop_when_left
from relive.proxies.control import ControlHub, ControlLink, error_reply, refuse_opening
from relive.proxies.ingress._carriage import AT_THE_GATE, Carriage
from relive.proxies.ingress._connection import ClientConnection
from relive.proxies.ingress._traffic import Traffic
from relive.proxies.ingress.options import ProxyOptions, parse_options
from relive.proxies.ingress.takeover import StandIn
from relive.proxies.listeners import (
    BACKLOG,
    bind_control,
    bind_listener,
    receive_listener,
    split_address,
)
from relive.proxies.relay import RelayCounts
from relive.proxies.relay_writer import RelayWriter
from relive.proxies.running import run
from relive.recording.events import EventKind

__all__ = ["Proxy", "main"]

DRAIN_SECONDS = 5.0
_LAST_ACCEPTS = 0.05  # [s]
_LINE_PAUSE = 0.1  # [s]


class Proxy:
    """Listens, answers agents, and ends in order. Lives in one event loop."""

    def __init__(self, options: ProxyOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.hub = ControlHub(self)
        self.traffic = Traffic(options, loop, self.hub, on_trouble=_say)
        self.writer, self.gate, self.holds = self.traffic.writer, self.traffic.gate, self.traffic.holds
        self._line: socket.socket | None = None  # to who keeps the port: while it is open, it takes none
        self._commits: set[str] = set()
        self.carriage: Carriage | None = None

    # For agents

    def control_message(self, link: ControlLink, op: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a message of an agent; see the module's table."""
        acts: dict[str, Callable[[ControlLink, dict[str, Any]], dict[str, Any] | None]] = {
            "close": self._close,
            "open": self._open,
            "go": self._go,
            "status": self._status,
        }
        act = acts.get(op)
        return (
            act(link, message) if act is not None else error_reply("unknown-op", f"there is no op {op!r:.50}")
        )

    def control_lost(self, link: ControlLink, *, was_last: bool) -> None:
        """An agent went away: what it had stopped goes on."""
        self.gate.owner_gone(link)
        if was_last:
            self.holds.release_all("handed on without the agent's word: no agent is connected")

    def _close(self, link: ControlLink, _message: dict[str, Any]) -> dict[str, Any]:
        if self.gate.is_closed:
            return error_reply("gate-closed", "the gate is closed already")
        cursor = self.gate.close(link)
        if self.carriage is not None:
            self.carriage.hear()  # connections that it has handed over before the gate closed
        connections = [report for one in self.gate.keepers.values() for report in one.reports()]
        return {"op": "closed", "cursor": cursor, "connections": connections}

    def _open(self, link: ControlLink, message: dict[str, Any]) -> dict[str, Any]:
        commit = message.get("commit")
        refused = refuse_opening(self.gate, link, commit)
        if refused is not None:
            return refused
        if commit is not None:
            self._commits.add(commit)
        return {"op": "opened", "cursor": self.gate.open(commit)}

    def _go(self, _link: ControlLink, message: dict[str, Any]) -> dict[str, Any] | None:
        requests, commit = message.get("requests"), message.get("commit")
        if not isinstance(requests, list) or not (commit is None or isinstance(commit, str)):
            return error_reply("bad-message", "requests is no list, or commit neither text nor null")
        # Else ``open`` has recorded it, with its cursor.
        if commit is not None and commit not in self._commits:
            self._commits.add(commit)
            self.gate.record_commit(commit, self.writer.last_seq, None)
        gone = self.holds.release(number for number in requests if isinstance(number, int))
        return {"op": "gone", "requests": gone} if "id" in message else None

    def _status(self, _link: ControlLink, _message: dict[str, Any]) -> dict[str, Any]:
        carried = self._carried()
        python_ways = len(self.gate.keepers) - (AT_THE_GATE in self.gate.keepers)
        return {
            "op": "status",
            "pid": os.getpid(),
            "gate": "closed" if self.gate.is_closed else "open",
            "opened_by_itself": self.gate.opened_by_itself,
            "connections": python_ways + carried.connections,
            "in_flight": len(self.traffic.flights) + carried.in_flight,
            "held": len(self.holds),
            "requests": self.writer.last_request,
            "answered": self.traffic.answered_count + carried.answered,
            "server_errors": self.traffic.errors + carried.errors,
            "broken": self.traffic.broken_count + carried.broken,
            "refused": self.traffic.refused,
            "unframed": self.traffic.unframed,
            "cursor": self.writer.last_seq,
            "recording": self.writer.is_on,
            "events_lost": self.writer.lost,
        }

    # Life

    async def serve(self) -> None:
        """Listen until SIGTERM or SIGINT, or until nobody is left.

        Raises:
            CapsuleStartFailed: one of the two sockets cannot be bound.
        """
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, stop.set)
        stand_in = self._stand_in() if self.options.stand_in else None
        listeners = stand_in.listeners if stand_in is not None else [self._listener()]
        control = bind_control(self.options.control)
        logs = list(self.options.logs)
        fields = {
            "listen": self.options.listen,
            "upstream": self.options.upstream,
            "pid": os.getpid(),
            "logs": logs,
        }
        self.writer.append(EventKind.RECORDER_STARTED, fields=fields)
        self.writer.flush()
        servers = [await self.loop.create_unix_server(self.hub.link, sock=control)]
        servers += await self._accept(listeners)
        self._say_ready(listeners[0])
        watching = [
            asyncio.create_task(self._watch_for_hangs()),
            asyncio.create_task(self._stay_in_line()),
            asyncio.create_task(stop_when_left(self.options.capsule, self.hub, stop)),
        ]
        gc.collect()
        gc.freeze()
        try:
            await stop.wait()
            if stand_in is not None:
                stand_in.give_back()
                await asyncio.sleep(_LAST_ACCEPTS)  # of connections that the kernel has made for us already
            for server in servers[1:]:
                server.close()
            if self.carriage is not None:
                self.carriage.stop_accepting()
                for listener in listeners:
                    listener.close()
                self.carriage.hear()
            await self._drain()
        finally:
            for task in watching:
                task.cancel()
            for server in servers:
                server.close()
            if self.carriage is not None:
                self.carriage.shut()  # first: what it hands over now is shut with the others
            for keeper in list(self.gate.keepers.values()):
                keeper.shut()
            self.options.control.unlink(missing_ok=True)
            self.writer.close()

    async def _accept(self, listeners: list[socket.socket]) -> list[asyncio.Server]:
        """Take connections, by the relay if there is one; else by the servers that are returned."""
        if isinstance(self.writer, RelayWriter):
            carriage = Carriage(self.traffic, self.writer)
            if carriage.start(listeners):
                self.carriage = carriage
                return []
            _say("all traffic is carried by Python, which is slower: the relay did not start")
        return [
            await self.loop.create_server(lambda: ClientConnection(self.traffic), sock=one, backlog=BACKLOG)
            for one in listeners
        ]

    def _carried(self) -> RelayCounts:
        return self.carriage.counts() if self.carriage is not None else RelayCounts()

    def _listener(self) -> socket.socket:
        if self.options.front is None:
            return bind_listener(self.options.listen)
        listener, self._line, _ = receive_listener(self.options.front)
        return listener

    async def _stay_in_line(self) -> None:
        """Tell each who keeps the port from now on that connections are taken here, before they carry any themselves."""
        front = self.options.front
        while front is not None and self._line is not None:
            await _hung_up(self._line)
            self._line.close()
            self._line = None
            while self._line is None:
                await asyncio.sleep(_LINE_PAUSE)
                with contextlib.suppress(ReliveError):
                    listener, self._line, _ = await asyncio.to_thread(receive_listener, front)
                    listener.close()  # it is the same

    def _stand_in(self) -> StandIn:
        host, _ = split_address(self.options.listen)
        port = split_address(self.options.upstream)[1]
        return StandIn((host, port), everywhere=host == "0.0.0.0")

    async def _drain(self) -> None:
        end = self.loop.time() + DRAIN_SECONDS
        while (self.traffic.flights or self._carried().in_flight) and self.loop.time() < end:
            await asyncio.sleep(0.02)

    async def _watch_for_hangs(self) -> None:
        limit = self.options.hang_after
        while limit is not None:
            await asyncio.sleep(max(0.02, min(limit / 4, 1.0)))
            if self.carriage is not None:
                self.carriage.look_for_hangs(limit)
            now = self.gate.clock()
            for flight, connection in self.traffic.flights.values():
                seconds = now - flight.touched
                if seconds >= limit and not flight.reported and connection.waits_on_service(flight):
                    flight.reported = True
                    self.traffic.publish_unanswered(flight.number, seconds, time.time_ns())

    def _say_ready(self, listener: socket.socket) -> None:
        if self.options.ready_fd is not None:
            line = json.dumps({"listen": listener.getsockname()[:2], "pid": os.getpid()}) + "\n"
            os.write(self.options.ready_fd, line.encode())
            os.close(self.options.ready_fd)


async def _hung_up(line: socket.socket) -> None:
    """Wait until the other end, which says nothing, has hung up."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(line, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(line)


def _say(text: str) -> None:
    sys.stderr.write(f"relive proxy: {text}\n")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        return importlib.import_module("uvloop").new_event_loop  # type: ignore[no-any-return]
    except ImportError:
        return asyncio.new_event_loop


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proxy; returns its exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)

    def sentence_of(error: ReliveError) -> str:
        hint = f"Hint: {error.remedy}\n" if error.remedy is not None else ""
        return f"Error: {error}\n{hint}"

    return run(
        lambda: Proxy(options, asyncio.get_running_loop()).serve(), sentence_of, loop_factory=_loop_factory()
    )


if __name__ == "__main__":
    sys.exit(main())
