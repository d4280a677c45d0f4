"""The recorder at the border of a capsule: carries all that the service asks of others, and records it.

    python -m relive.proxies.egress.recorder --border NUMBER --group DIRECTORY --capsule PID --recording DIR --control UNIXSOCKET
        [--ready-fd N] [--keep-bytes BYTES] [--authority DIR] [--relay FILE] [--keeper FILE]

The border (``relive.sandbox.border``) brings it the connections of the service, and it makes the real ones. When it is ready it
writes one JSON line to descriptor N and closes it: ``{"pid": PID}``. It ends by itself when process PID, the capsule's first, has
ended and what its service had said last has been handed on, and on SIGTERM.

The service comes first: no state of the recording or of the disk keeps traffic from flowing. With ``--relay``
(``relay_library.so``) connections whose bytes go as they come are carried by threads in C, and with ``--keeper``
(``relive-keeper``) as well those outlive the recorder: the next one goes on with them. Others (TLS that is opened) end with it.
New ones wait until the next recorder is there.

The control socket and its messages ``close``, ``open`` and ``status`` are those of the proxy (``proxy.py``). Between ``closed`` and
``opened`` no byte, end or new connection reaches the service; what the service says flows on.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import HostIncapable
from relive.kernel.packets import read_packet
from relive.proxies.control import ControlHub, ControlLink, error_reply, refuse_opening
from relive.proxies.egress._calls import EgressConnections
from relive.proxies.egress._carrier import Carrier, Opening
from relive.proxies.egress._datagrams import Datagrams
from relive.proxies.egress._keeper import Keeper
from relive.proxies.egress._pairs import Pairs
from relive.proxies.egress._process import recorder_parser, run_recorder, say, say_ready
from relive.proxies.egress._tls_detection import Trust, WatchedCarrier
from relive.proxies.egress._undecided import Undecided
from relive.proxies.egress.entrance import Entrance
from relive.proxies.gate import Gate, GateKeeper
from relive.proxies.listeners import bind_control
from relive.proxies.relay_writer import RelayWriter
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

__all__ = ["EgressOptions", "EgressRecorder", "main"]

DRAIN_SECONDS = 5.0
_CALLS, _DATAGRAMS, _PAIRS = 0, -1, -2  # at the gate; connections are numbered from 1


@dataclass(frozen=True, slots=True)
class EgressOptions:
    """What the command line says; see the module.

    Attributes:
        keep_bytes: bound of the recording's size; None keeps everything.
        authority: directory of what TLS is opened with (see ``authority.py``); None: it is not.
        relay: ``relay_library.so``; None: Python carries everything, and all connections end with the recorder.
        keeper: ``relive-keeper``; None: they do so too.
    """

    border: int
    group: Path
    capsule: int
    recording: Path
    control: Path
    ready_fd: int | None = None
    keep_bytes: int | None = None
    authority: Path | None = None
    relay: Path | None = None
    keeper: Path | None = None


class EgressRecorder:
    """The recorder's state. Lives in one event loop.

    Raises:
        HostIncapable: the kernel refuses what is needed.
    """

    def __init__(self, options: EgressOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.writer = _writer(options)
        try:
            self.entrance = Entrance(options.border, options.group)
        except OSError as error:
            raise HostIncapable(
                "the border cannot be watched", cause=str(error), remedy="run `relive doctor`"
            ) from error
        self.gate: Gate[GateKeeper] = Gate(loop, self.writer)
        self.hub = ControlHub(self)
        self.calls = EgressConnections(loop, self.entrance, self.writer, self._stands)
        self.datagrams = Datagrams(loop, self.entrance, self.writer)
        self.carriers: dict[int, Carrier | Undecided] = {}
        self.gate.keepers |= {_CALLS: self.calls, _DATAGRAMS: self.datagrams}
        self.trust = _trust(options.authority) if options.authority is not None else None
        self.pairs = self._pairs()

    def _pairs(self) -> Pairs | None:
        if not isinstance(self.writer, RelayWriter):
            return None
        pairs = Pairs(self.loop, self.writer)
        if not pairs.start():
            say("all traffic is carried by Python, which is slower: no thread can be made")
            return None
        self.gate.keepers[_PAIRS] = pairs
        return pairs

    def _go_on(self, pairs: Pairs, program: Path, capsule: int) -> None:
        """With what an earlier recorder has left."""
        path = self.options.control.with_suffix(".keeper")
        pairs.keeper = Keeper(self.loop, program, path, capsule, pairs.all_kept, say)
        for kept in pairs.keeper.meet():
            silent = pairs.resume(kept)
            if silent is not None:
                self._wait_for_words(pairs, *silent, told_in=0)

    def _stands(self, opening: Opening, inner: socket.socket, outer: socket.socket) -> None:
        if self.pairs is None:
            self._watch(opening, inner, outer)
            return
        self.pairs.hand_to_keeper(opening, inner, outer)
        opening.record(self.writer)
        self._wait_for_words(self.pairs, opening, inner, outer, told_in=self.writer.segment)

    def _wait_for_words(
        self, pairs: Pairs, opening: Opening, inner: socket.socket, outer: socket.socket, *, told_in: int
    ) -> None:
        number = opening.number
        pairs.waiting[number] = inner, outer
        silent = Undecided(
            *(self.loop, opening, inner, outer, self._decided), told_in=told_in, frozen=self.gate.is_closed
        )
        self.carriers[number] = self.gate.keepers[number] = silent

    def _decided(self, silent: Undecided, may_be_encrypted: bool) -> None:
        assert self.pairs is not None
        number = silent.opening.number
        del self.carriers[number], self.gate.keepers[number], self.pairs.waiting[number]
        if may_be_encrypted:
            self.pairs.let_go(number)  # bytes of it are in this process's memory from now on
            self._watch(silent.opening, silent.inner, silent.outer, is_told=bool(silent.told_in))
        else:
            self.pairs.carry(silent.opening, silent.inner, silent.outer, told_in=silent.told_in)

    def _watch(
        self, opening: Opening, inner: socket.socket, outer: socket.socket, *, is_told: bool = False
    ) -> None:
        carrier = WatchedCarrier(
            *(self.loop, self.writer, opening, inner, outer, self._carried),
            frozen=self.gate.is_closed,
            trust=self.trust,
            plain=self._plain if self.pairs is not None else None,
            is_told=is_told,
        )
        self.carriers[opening.number] = self.gate.keepers[opening.number] = carrier

    def _plain(
        self,
        opening: Opening,
        inner: socket.socket,
        outer: socket.socket,
        said: tuple[int, int],
        told_in: int,
    ) -> None:
        assert self.pairs is not None
        self.pairs.hand_to_keeper(opening, inner, outer, said)
        self.pairs.carry(opening, inner, outer, said, told_in)

    def _carried(self, carrier: Carrier) -> None:
        self.carriers.pop(carrier.opening.number, None)
        self.gate.keepers.pop(carrier.opening.number, None)

    def _packets(self) -> None:
        for waiting in self.entrance.queue.waiting():
            packet = read_packet(waiting.data)
            if packet is None:
                self.entrance.queue.drop(waiting.number)
            elif packet.protocol == socket.IPPROTO_TCP:
                self.calls.begins(waiting, packet)
            else:
                self.datagrams.leaves(waiting, packet)

    # For agents

    def control_message(self, link: ControlLink, op: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a message of an agent; see the proxy's table."""
        acts: dict[str, Callable[[ControlLink, dict[str, Any]], dict[str, Any]]] = {
            "close": self._close,
            "open": self._open,
            "status": self._status,
        }
        act = acts.get(op)
        return (
            act(link, message) if act is not None else error_reply("unknown-op", f"there is no op {op!r:.50}")
        )

    def control_lost(self, link: ControlLink, *, was_last: bool) -> None:  # noqa: ARG002 - of the protocol
        """An agent went away: what it had stopped goes on."""
        self.gate.owner_gone(link)

    def _close(self, link: ControlLink, _message: dict[str, Any]) -> dict[str, Any]:
        if self.gate.is_closed:
            return error_reply("gate-closed", "the gate is closed already")
        return {"op": "closed", "cursor": self.gate.close(link), "connections": []}

    def _open(self, link: ControlLink, message: dict[str, Any]) -> dict[str, Any]:
        commit = message.get("commit")
        refused = refuse_opening(self.gate, link, commit)
        if refused is not None:
            return refused
        return {"op": "opened", "cursor": self.gate.open(commit)}

    def _status(self, _link: ControlLink, _message: dict[str, Any]) -> dict[str, Any]:
        return {
            "op": "status",
            "pid": os.getpid(),
            "gate": "closed" if self.gate.is_closed else "open",
            "connections": len(self.carriers) + (self.pairs.count if self.pairs is not None else 0),
            "cursor": self.writer.last_seq,
            "recording": self.writer.is_on,
            "events_lost": self.writer.lost,
        }

    # Life

    async def serve(self) -> None:
        """Carry until SIGTERM, SIGINT or the capsule's end.

        Raises:
            CapsuleStartFailed: the control socket cannot be bound.
        """
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, stop.set)
        capsule = os.pidfd_open(self.options.capsule)
        self.loop.add_reader(capsule, stop.set)
        control = bind_control(self.options.control)
        self.writer.append(EventKind.RECORDER_STARTED, fields={"pid": os.getpid(), "logs": []})
        self.writer.flush()
        server = await self.loop.create_unix_server(self.hub.link, sock=control)
        if self.pairs is not None and self.options.keeper is not None:
            self._go_on(self.pairs, self.options.keeper, capsule)
        self.loop.add_reader(self.entrance.queue.fileno(), self._packets)
        say_ready(self.options.ready_fd)
        gc.collect()
        gc.freeze()
        try:
            await stop.wait()
            self.loop.remove_reader(capsule)
            if select.select([capsule], [], [], 0)[0]:
                await self._drain()
        finally:
            self.loop.remove_reader(capsule)
            self.loop.remove_reader(self.entrance.queue.fileno())
            server.close()
            self.calls.close()
            self.datagrams.close()
            for carrier in list(self.carriers.values()):
                carrier.shut()
            if self.pairs is not None:
                self.pairs.shut()
            self.entrance.close()
            self.options.control.unlink(missing_ok=True)
            self.writer.close()
            os.close(capsule)

    async def _drain(self) -> None:
        """The capsule has ended: what its service has said last is still on its way."""
        end = self.loop.time() + DRAIN_SECONDS
        while self.loop.time() < end and not (
            all(one.has_said_all for one in self.carriers.values())
            and (self.pairs is None or self.pairs.has_said_all)
        ):
            await asyncio.sleep(0.01)


def parse_options(arguments: Sequence[str]) -> EgressOptions:
    """The options of a command line; argparse ends the process with status 2 if it is wrong."""
    parser = recorder_parser("relive.proxies.egress.recorder", "Record what leaves.")
    parser.add_argument("--border", required=True, type=int, metavar="NUMBER")
    parser.add_argument("--authority", type=Path, metavar="DIR")
    parser.add_argument("--relay", type=Path, metavar="FILE")
    parser.add_argument("--keeper", type=Path, metavar="FILE")
    return EgressOptions(**vars(parser.parse_args(arguments)))


def _writer(options: EgressOptions) -> RecordingWriter:
    if options.relay is not None:
        try:
            return RelayWriter(
                options.relay,
                options.recording,
                keep_bytes=options.keep_bytes,
                keep_seconds=None,
                on_trouble=say,
            )
        except OSError as error:
            say(f"all traffic is carried by Python, which is slower: {error}")
    return RecordingWriter(options.recording, keep_bytes=options.keep_bytes, on_trouble=say)


def _trust(directory: Path) -> Trust | None:
    from relive.proxies.egress._tls import Roots  # noqa: PLC0415 - `cryptography` takes its time to be imported
    from relive.proxies.egress.authority import Authority  # noqa: PLC0415

    try:
        return Trust(Authority.load(directory), Roots())
    except (OSError, ValueError) as error:
        say(f"TLS is not opened: {directory} cannot be read: {error}")
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; returns its exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)

    # Not uvloop: when an error comes with data, libuv takes the descriptor out of its epoll set after one callback
    # (uv__poll_io), and of a socket that takes errors for single datagrams nothing is heard again.
    return run_recorder(lambda: EgressRecorder(options, asyncio.get_running_loop()).serve())


if __name__ == "__main__":
    sys.exit(main())
