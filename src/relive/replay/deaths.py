"""Fatal signals in a branch, seen as they are in a capsule: by the tracer, before the process dies of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from relive.errors import ReliveError
from relive.kernel import pidfds, procfs
from relive.kernel.callers import callers_of
from relive.model.outcome import Fault, ThreadPlace
from relive.sandbox.branch import Branch
from relive.watch.client import Tracer
from relive.watch.messages import Fatal

__all__ = ["Deaths", "places_of"]

_LOOKS = (
    300  # at a thread that runs: a loop of an interpreter goes through some thousand bytes of instructions
)
_BETWEEN_LOOKS = 0.001  # [s]
_STOP_LOOKS = 100


class Deaths:
    """Watches the processes of one branch. For one event loop; made by ``watch``.

    Attributes:
        seen: set at the first fatal signal.
        faults: in the order they came.
    """

    def __init__(self, tracer: Tracer, root: int) -> None:
        self.seen = asyncio.Event()
        self.faults: list[Fault] = []
        self._tracer = tracer
        self._root = root
        self._following = asyncio.create_task(self._follow())

    @classmethod
    async def watch(cls, branch: Branch) -> Deaths | None:
        """Begin; None where the branch has ended already, or may not be traced."""
        tracer = await Tracer.start()
        try:
            await tracer.attach(branch.facts.root)
        except ReliveError:
            await tracer.close()
            return None
        return cls(tracer, branch.facts.root)

    async def _follow(self) -> None:
        async for event in self._tracer.events():
            if isinstance(event, Fatal):
                # It stands stopped until the release, so that its registers can be read.
                self.faults.append(_fault(event, self._root))
                self.seen.set()
                with contextlib.suppress(ReliveError):
                    await self._tracer.release()

    async def close(self) -> None:
        """End. May be called again."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._tracer.close()


def _fault(event: Fatal, root: int) -> Fault:
    inside = procfs.number_inside(event.pid)
    return Fault(
        process=inside if inside is not None else 0,
        is_root=event.pid == root,
        signal=event.signal,
        code=event.code_name,
        address=event.address,
        command=event.comm,
        place=_place(event.pid, event.tid),
        callers=callers_of(event.pid, event.tid),
    )


def _place(pid: int, thread: int, *, runs: bool = False) -> ThreadPlace | None:
    inside, registers = procfs.number_inside(pid, thread), procfs.registers_of(pid, thread)
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
