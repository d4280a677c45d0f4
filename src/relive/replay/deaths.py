"""Deaths in a branch, seen as they are in a capsule: by the tracer, fatal signals before the process dies of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from relive.errors import ReliveError
from relive.kernel import pidfds, procfs
from relive.kernel.return_addresses import callers_of
from relive.model.outcome import End, Fault, Outcome, ThreadPlace
from relive.recording.connections import Connections
from relive.recording.exchanges import Exchange, ExchangeEnd
from relive.signals.client import TracerClient
from relive.signals.messages import Exited, Fatal

__all__ = ["SETTLE", "Deaths", "Watched", "places_of", "seconds_from_last_message", "seconds_left_to_die"]

# At a thread that runs: a loop of an interpreter goes through some thousand bytes of instructions.
_LOOKS = 300
_BETWEEN_LOOKS = 0.001  # [s]
_STOP_LOOKS = 100
SETTLE, _SLOWER = 0.5, 3.0  # [s] and times what it had taken, that a death is waited for which has not come
_AFTER_MESSAGE = 3.0  # [s] the same after a message of a conversation, at least


class _Awaited(Enum):
    """What a replay waits for of the processes of a branch."""

    SIGNAL = auto()
    EXIT = auto()
    MEMORY = auto()

    @classmethod
    def by(cls, recorded: Outcome) -> _Awaited | None:
        """What has to be watched for, so that it can be compared with that; None: nothing but the end of the first process."""
        if recorded.out_of_memory:
            return cls.MEMORY
        if recorded.worker:
            return cls.EXIT
        return cls.SIGNAL if recorded.fault is not None else None


@dataclass(frozen=True, slots=True)
class Watched:
    """The processes that are watched: those of a branch, or of a fresh process.

    Attributes:
        root: host pid of the service's first process; init: of the sandbox's process 1.
        oom_kills: how many of them the kernel has killed for want of memory.
        sees: told the host pid of a process that got a fatal signal, while it stands stopped.
    """

    root: int
    init: int
    oom_kills: Callable[[], int]
    sees: Callable[[int], None] = lambda _pid: None


class Deaths:
    """Watches the processes of one sandbox. For one event loop; made by ``watch``.

    Attributes:
        seen: set at the first fatal signal.
        faults: in the order they came.
        exit_status: of the first worker that ended with a failure, or of another that ended as was recorded; None: none has.
    """

    def __init__(
        self, tracer: TracerClient, watched: Watched, awaited: _Awaited, exit_status: int | None
    ) -> None:
        root = watched.root
        self.seen = asyncio.Event()
        self.faults: list[Fault] = []
        self.exit_status: int | None = None
        self._watched = watched
        self._awaited = awaited
        self._expected = exit_status
        self._workers = _workers_of(watched)
        self._tracer = tracer
        self._root = root
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def watch(cls, watched: Watched, recorded: Outcome) -> Deaths | None:
        """Begin; None where nothing is awaited but the end of the first process, or it has ended, or may not be traced."""
        awaited = _Awaited.by(recorded)
        if awaited is None:
            return None
        tracer = await TracerClient.start()
        try:
            await tracer.attach(watched.root)
        except ReliveError:
            await tracer.close()
            return None
        return cls(tracer, watched, awaited, recorded.exit_status)

    async def _follow(self) -> None:
        async for event in self._tracer.events():
            if isinstance(event, Fatal):
                # It stands stopped until the release, so that its registers can be read.
                self.faults.append(_fault(event, self._root))
                self._watched.sees(event.pid)
                self.seen.set()
                with contextlib.suppress(ReliveError):
                    await self._tracer.release()
            elif isinstance(event, Exited) and event.pid != self._root:
                self._note_end(event)

    def _note_end(self, event: Exited) -> None:
        if self._awaited is _Awaited.MEMORY and event.signal == signal.SIGKILL:
            if self._watched.oom_kills():
                self.seen.set()
        elif self._awaited is _Awaited.EXIT and self.exit_status is None and event.status is not None:
            status = os.waitstatus_to_exitcode(event.status)
            # Shells and build tools end with a failure all the time: of those only one that ends as was recorded counts.
            if status > 0 and (event.pid in self._workers or status == self._expected):
                self.exit_status = status
                self.seen.set()

    async def close(self) -> None:
        """End. May be called again."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._tracer.close()


def seconds_left_to_die(fatal: Exchange, came: End, failed_mono_ns: int) -> float | None:
    """How long a death is still waited for once the request in which the service had died is answered; None: it is not.

    Another way is taken then, and a death that comes all the same comes soon. A request that was answered in the recording, too,
    tells nothing: the service died later.

    Args:
        fatal: the request; came: what came of it in the replay; failed_mono_ns: when the death was seen in the recording.
    """
    if came is not End.ANSWERED or fatal.ended not in (ExchangeEnd.BROKEN, ExchangeEnd.OPEN):
        return None
    took_ns = (fatal.ended_mono_ns or failed_mono_ns) - fatal.started_mono_ns
    return SETTLE + _SLOWER * max(0, took_ns) / 1e9


def seconds_from_last_message(said: Connections | None, failed_mono_ns: int) -> float | None:
    """How long a death is waited for that followed a message which is not HTTP/1; None: the service did not die of one.

    With the recorded time alone a busy machine would be too slow for a death that came at once.

    Args:
        said: what was sent again; failed_mono_ns: when the death was seen in the recording.
    """
    if said is None or not said.turns:
        return None
    return max(_AFTER_MESSAGE, _SLOWER * (failed_mono_ns - said.turns[-1].mono_ns) / 1e9)


def _workers_of(watched: Watched) -> set[int]:
    """As process 1 of a capsule has it (``native/init/ends.h``)."""
    children = procfs.children_of(watched.root)
    of_a_script = procfs.children_of(children[0]) if len(children) == 1 else []
    return {*children, *of_a_script, *procfs.children_of(watched.init)}


def _fault(event: Fatal, root: int) -> Fault:
    inside = procfs.innermost_pid(event.pid)
    return Fault(
        process=inside if inside is not None else 0,
        is_root=event.pid == root,
        signal=event.signal,
        code=event.code_name,
        address=event.address,
        command=event.comm,
        place=_place(event.pid, event.tid),
        callers=callers_of(event.pid, event.tid, event.kept),
    )


def _place(pid: int, thread: int, *, runs: bool = False) -> ThreadPlace | None:
    inside, registers = procfs.innermost_pid(pid, thread), procfs.registers_of(pid, thread)
    if inside is None or registers is None:
        return None
    return ThreadPlace(thread=inside, instruction=registers[0], stack=registers[1], runs=runs)


async def places_of(root: int) -> list[ThreadPlace]:
    """Where all threads of a branch's tree stand; of those that run, where they are found at many looks.

    To look at a thread that runs its process is stopped, for a moment each time.
    """
    found: list[ThreadPlace] = []
    for pid in procfs.tree_of(root):
        threads = procfs.threads_of(pid)
        places = {thread: _place(pid, thread) for thread in threads}
        found += [place for place in places.values() if place is not None]
        running = [thread for thread, place in places.items() if place is None]
        process = pidfds.open_process(pid) if running else None
        if process is not None:
            try:
                found += await _look_often(pid, process, running)
            finally:
                os.close(process)
    return found


async def _look_often(pid: int, process: int, threads: list[int]) -> list[ThreadPlace]:
    found: list[ThreadPlace] = []
    for _ in range(_LOOKS):
        if not pidfds.send_signal(process, signal.SIGSTOP):
            break
        if await _stopped(pid):
            places = (_place(pid, thread, runs=True) for thread in threads)
            found += [place for place in places if place is not None]
        pidfds.send_signal(process, signal.SIGCONT)
        await asyncio.sleep(_BETWEEN_LOOKS)
    return found


async def _stopped(pid: int) -> bool:
    for _ in range(_STOP_LOOKS):
        stat = procfs.read_stat(pid)
        if stat is None or stat.state == "T":
            return stat is not None
        await asyncio.sleep(_BETWEEN_LOOKS)
    return False
