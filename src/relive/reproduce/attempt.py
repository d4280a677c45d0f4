"""One attempt: a sandbox, a fresh process in it, the request sent to it, and what came of that."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relive.config import Settings
from relive.errors import RecordingError, ReliveError
from relive.kernel.namespaces import in_network
from relive.model.failure import Where, read_package
from relive.model.outcome import InsideEvent
from relive.model.reproduction import Attempt, Raised, ReproductionKind, Tree
from relive.record.events import Event, EventKind
from relive.replay.drain import BranchDrain
from relive.replay.outcomes import read_log
from relive.replay.sender import Answer, Connection
from relive.replay.sequence import miss_words, misses_of, sequence_of
from relive.reproduce.answers import is_whole, judged_events, lay
from relive.reproduce.case import Case
from relive.reproduce.command import Start
from relive.reproduce.judge import Came, Judgement, judge
from relive.reproduce.request import SentRequest
from relive.reproduce.tree import lay_tree
from relive.reproduce.waiting import wait_until
from relive.sandbox.afresh import Afresh, AfreshSpec, Place, prepared_place, start_afresh

__all__ = ["Plan", "Wishes", "attempt"]

_SETTLE = 1.0  # [s] after the answer, for the end of its handler
_SETTLE_LATE = 5.0  # [s] the same, where what failed had not been the handler
_LOG_LINES = 40
_NOTED = 5
_CONNECT_LIMIT = 5.0  # [s]
_LOCAL = frozenset({"0.0.0.0", "127.0.0.1", "::", "::1", "localhost", ""})


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to reproduce.

    Attributes:
        ignore: parts of events that may differ, see ``replay.sequence.first_differing_event``.
        limit: seconds until the service listens, and again until its answer is whole (or the program has ended).
        on_miss: kind of event, or "*", to "fail" or "pass": what becomes of a call in the request without a recorded answer.
        databases: path in the sandbox to the file that is laid over it.
    """

    ignore: Collection[str] = ()
    limit: float = 30.0
    on_miss: Mapping[str, str] = field(default_factory=dict)
    databases: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What every attempt does.

    Attributes:
        request: what is sent; None: the program is only run.
        environment: all variables, the recorder's own among them.
    """

    case: Case
    start: Start
    request: SentRequest | None
    environment: Mapping[str, str]
    tree: Tree


def attempt(
    settings: Settings, plan: Plan, wishes: Wishes, number: int, tell: Callable[[str], None]
) -> Attempt:
    """Make one. Call it from a process with one thread.

    A service that does not start gives an attempt that says so.

    Args:
        tell: called with a sentence on what is being done.

    Raises:
        UsageError: a file cannot be laid; PermissionMissing; DiskFull, OSError: there is no room.
    """
    began = time.monotonic()
    with prepared_place(settings) as place:
        tell(f"Laying out {plan.tree.words}.")
        notes = lay_tree(plan.tree, place.laying)
        for path, source in wishes.databases.items():
            place.laying.file(source, path)
        has_request = plan.request is not None
        lay(plan.case, place.rings, wishes.on_miss, has_request=has_request)
        tell(f"Starting {' '.join(plan.start.command)} in a sealed sandbox.")
        try:
            sandbox = start_afresh(settings, place, _spec(plan, place))
        except ReliveError as error:
            return Attempt(
                number=number,
                kind=ReproductionKind.COULD_NOT_START,
                difference=f"{error.message}: {error.cause}" if error.cause else error.message,
                notes=[error.remedy] if error.remedy else [],
                log=_log(place),
                seconds=time.monotonic() - began,
            )
        with contextlib.closing(sandbox), contextlib.closing(BranchDrain(place.rings)) as drain:
            made = _Life(plan, wishes, sandbox, drain, tell).live()
        return made.model_copy(
            update={"number": number, "notes": [*made.notes, *notes], "seconds": time.monotonic() - began}
        )


def _spec(plan: Plan, place: Place) -> AfreshSpec:
    start = plan.start
    address = start.address
    return AfreshSpec(
        command=start.command,
        directory=start.directory,
        environment=plan.environment,
        user=start.user,
        addresses=[address] if address is not None and address not in _LOCAL else [],
        hostname=f"reproduce-{place.directory.name}",
    )


def _log(place: Place) -> list[str]:
    return read_log(place.log("stderr"), 0)[-_LOG_LINES:]


@dataclass(slots=True)
class _Life:
    """The life of one sandbox, from its start to its judgement."""

    plan: Plan
    wishes: Wishes
    sandbox: Afresh
    drain: BranchDrain
    tell: Callable[[str], None]
    ready: float | None = None

    def live(self) -> Attempt:
        if self.plan.request is None:
            return self._judged(self._run_program())
        began = time.monotonic()
        if not wait_until(self.sandbox, self.drain, lambda: self._port() is not None, self.wishes.limit):
            return self._not_started()
        self.ready = time.monotonic() - began
        port = self._port()
        assert port is not None
        self.tell(f"It listens on port {port} after {self.ready:.1f} s; sending {self.plan.request.words}.")
        return self._judged(self._send(self.plan.request, port))

    def _port(self) -> int | None:
        """Where to send the request; None as long as nobody listens there."""
        ports = self.sandbox.listening_ports()
        wanted = self.plan.start.port
        if wanted is not None:
            return wanted if wanted in ports else None
        return min(ports, default=None)

    # -- a request -----------------------------------------------------------------------------------------------

    def _send(self, request: SentRequest, port: int) -> Came:
        answer = Answer()
        how = ""
        try:
            asyncio.run(self._exchange(request, port, answer))
        except TimeoutError:
            how = f"no answer came within {self.wishes.limit:g} s"
        except OSError as error:
            how = f"the service took no connection: {error.strerror or error}"
        number = self.plan.case.judged if self.plan.case.started is not None else None
        # What a thread or a task dies of may come after the answer.
        is_late = self.plan.case.package.where is not Where.HANDLER
        wait_until(
            self.sandbox,
            self.drain,
            lambda: self._has_handled(number) and (not is_late or bool(_raised(self.drain.events, number))),
            _SETTLE_LATE if is_late else _SETTLE,
        )
        is_answered = answer.end.value == "answered"
        return Came(
            raised=_raised(self.drain.events, number),
            status=answer.status,
            how=how or ("" if is_answered else "the connection broke before the answer was whole"),
            exit_status=self._exit_status(),
            events=self._events(number),
            is_answered=is_answered,
            missed=self._missed(),
        )

    async def _exchange(self, request: SentRequest, port: int, answer: Answer) -> None:
        async with asyncio.timeout(self.wishes.limit):
            looking = asyncio.create_task(self.drain.run())  # so that no ring runs over meanwhile
            connection = Connection(await self._connect(port))
            try:
                await connection.exchange(request.data, request.method.encode("latin-1"), answer)
            finally:
                connection.sock.close()
                looking.cancel()

    async def _connect(self, port: int) -> socket.socket:
        """A connection to whoever listens on that port, on its address of either family."""
        known = self.plan.start.address
        tried = [known] if known is not None and known not in _LOCAL else []
        failure: OSError = ConnectionRefusedError("nobody listens there")
        for address in (*tried, "127.0.0.1", "::1"):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            kind = socket.SOCK_STREAM | socket.SOCK_CLOEXEC
            sock = in_network(self.sandbox.network, functools.partial(socket.socket, family, kind))
            sock.setblocking(False)
            try:
                async with asyncio.timeout(_CONNECT_LIMIT):
                    await asyncio.get_running_loop().sock_connect(sock, (address, port))
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure

    def _has_handled(self, number: int | None) -> bool:
        """With None: whichever number it has here."""
        ended = (event for event in self.drain.events if event.kind is EventKind.HANDLING_ENDED)
        return any(number in (None, event.request) for event in ended)

    def _events(self, number: int | None) -> list[InsideEvent]:
        began = (e for e in self.drain.events if e.kind is EventKind.HANDLING_STARTED and e.request == number)
        first = next(began, None)
        return sequence_of(self.drain.events, first.fields["pid"], first.request) if first is not None else []

    # -- a program -----------------------------------------------------------------------------------------------

    def _run_program(self) -> Came:
        recorded = Raised.of(self.plan.case.package)

        def is_over() -> bool:
            return any(one.fingerprint == recorded.fingerprint for one in _raised(self.drain.events, None))

        ends = self.plan.case.package.where is Where.MAIN and not self.plan.case.is_job
        if wait_until(self.sandbox, self.drain, is_over, self.wishes.limit) and ends:
            # Its end follows; a service goes on after an exception in a thread.
            wait_until(self.sandbox, self.drain, lambda: self._exit_status() is not None, self.wishes.limit)
        self.drain.look()
        raised = _raised(self.drain.events, None)
        pid = next((e.fields["pid"] for e in self.drain.events if e.kind is EventKind.FAILURE), None)
        if pid is None:
            pid = next((e.fields["pid"] for e in self.drain.events), 0)
        return Came(
            raised=raised,
            how=f"it went on for {self.wishes.limit:g} s without failing",
            exit_status=self._exit_status(),
            events=sequence_of(self.drain.events, pid, 0),
            is_request=False,
            missed=self._missed(),
        )

    def _missed(self) -> str | None:
        return next(
            (miss_words(miss) for miss in misses_of(self.drain.events) if miss.policy != "pass"), None
        )

    # -- what is said of it --------------------------------------------------------------------------------------

    def _exit_status(self) -> int | None:
        status = self.sandbox.wait_status
        if status is None:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _judged(self, came: Came) -> Attempt:
        case = self.plan.case
        recorded: list[InsideEvent] = []
        if self.plan.request is not None or (is_whole(case) and not case.is_job):
            events = judged_events(case, has_request=self.plan.request is not None)
            recorded = sequence_of(events, case.package.pid, case.judged if self.plan.request else 0)
        status = case.recorded_status if self.plan.request is not None else None
        made = judge(Raised.of(case.package), status, recorded, came, self.wishes.ignore)
        return self._told(made, came)

    def _told(self, made: Judgement, came: Came) -> Attempt:
        misses = misses_of(self.drain.events)
        seal = self.sandbox.seal()
        return Attempt(
            number=0,
            kind=made.kind,
            difference=made.difference,
            notes=[note for note in (*made.notes, *self._notes()) if note != made.difference],
            raised=made.raised,
            status=came.status,
            exit_status=came.exit_status,
            log=_log(self.sandbox.place),
            misses=misses,
            packets_left=seal.packets_left,
            refused=seal.refused,
            ready_seconds=self.ready,
        )

    def _notes(self) -> list[str]:
        """What had no recorded answer, was answered from elsewhere, or was lost."""
        misses = misses_of(self.drain.events)
        notes = [miss_words(miss) for miss in misses if miss.policy != "pass"][:_NOTED]
        early = [miss for miss in misses if miss.policy == "pass"]
        notes += [f"{miss_words(miss)}; it found a sealed network" for miss in early[:_NOTED]]
        left = len(misses) - len(notes)
        if left > 0:
            notes.append(f"{left} more calls had no recorded answer")
        borrowed = [
            e for e in self.drain.events if e.kind is EventKind.NOTE and e.fields.get("about") == "beginning"
        ]
        if borrowed:
            notes.append(
                f"{len(borrowed)} calls of the request were answered with what the recorded process had been told when it began"
            )
        return [*notes, *self.drain.troubles]

    def _not_started(self) -> Attempt:
        status = self._exit_status()
        raised = _raised(self.drain.events, None)
        seal = self.sandbox.seal()
        port = self.plan.start.port
        where = f"on port {port}" if port is not None else "anywhere"
        how = f"it does not listen {where} after {self.wishes.limit:g} s"
        if status is not None:
            how = f"it ended with status {status}"
        if raised and status is not None:
            how += f": {raised[-1].type}: {raised[-1].text}"
        elsewhere = sorted(self.sandbox.listening_ports()) if status is None else []
        notes = (
            [f"it listens on port {', '.join(map(str, elsewhere))}: name one with --port"]
            if elsewhere
            else []
        )
        return Attempt(
            number=0,
            kind=ReproductionKind.COULD_NOT_START,
            difference=how,
            notes=[*notes, *self._notes()],
            raised=raised[-1] if raised else None,
            exit_status=status,
            log=_log(self.sandbox.place),
            misses=misses_of(self.drain.events),
            packets_left=seal.packets_left,
            refused=seal.refused,
        )


def _raised(events: list[Event], request: int | None) -> list[Raised]:
    """Exceptions that escaped from a request, or with None from anything."""
    found = []
    for event in events:
        if event.kind is EventKind.FAILURE and request in (None, event.request):
            found.append(_one_raised(event))
    return found


def _one_raised(event: Event) -> Raised:
    with contextlib.suppress(RecordingError):
        if event.data:
            return Raised.of(read_package(event.data))
    told = event.fields
    at: dict[str, object] = {}
    match told.get("at"):
        case (str(file), int(line), str(function)):
            at = {"file": file, "line": line, "function": function}
    words = {name: str(told.get(name, "")) for name in ("type", "text", "fingerprint")}
    return Raised.model_validate({**words, **at})
