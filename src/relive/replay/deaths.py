"""Fatal signals in a branch, seen as they are in a capsule: by the tracer, before the process dies of them."""

from __future__ import annotations

import asyncio
import contextlib

from relive.errors import ReliveError
from relive.kernel import procfs
from relive.kernel.callers import callers_of
from relive.model.outcome import Fault, ThreadPlace
from relive.sandbox.branch import Branch
from relive.watch.client import Tracer
from relive.watch.messages import Fatal

__all__ = ["Deaths", "places_of"]


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


def _place(pid: int, thread: int) -> ThreadPlace | None:
    inside, registers = procfs.number_inside(pid, thread), procfs.registers_of(pid, thread)
    if inside is None or registers is None:
        return None
    return ThreadPlace(thread=inside, instruction=registers[0], stack=registers[1])


def places_of(root: int) -> list[ThreadPlace]:
    """Where all threads of a tree stand that wait for something."""
    found = (_place(pid, thread) for pid in procfs.tree_of(root) for thread in procfs.threads_of(pid))
    return [place for place in found if place is not None]
