"""The stubs of one branch from before its restore to its end."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping

from relive.images.sockets import TcpConnection
from relive.model.commit import Manifest
from relive.model.outcome import Miss, Stubbed
from relive.protocols.registry import ProtocolRegistry
from relive.replay.stubs.plan import StubPlan, Stubs, position_of
from relive.replay.stubs.report import misses_of_stubs, stubbed
from relive.replay.stubs.server import StubServer
from relive.replay.stubs.speed import AS_RECORDED, Speed
from relive.sandbox.branch import Branch
from relive.sandbox.endpoints import OpenedEndpoints, Outside, open_endpoints

__all__ = ["StubLifecycle"]


class StubLifecycle:
    """For one event loop, and one branch. Without stubs it does nothing.

    Args:
        ignore: names of what may differ between a question and the recorded one.
        on_miss: what becomes of a question without a recorded answer, see ``protocols.registry``.

    Attributes:
        seconds: what deciding took, within the restore.
        plan: what was decided; None before, and without stubs.
    """

    def __init__(
        self,
        stubs: Stubs | None,
        speed: Speed = AS_RECORDED,
        ignore: Collection[str] = (),
        on_miss: Mapping[str, str] | None = None,
    ) -> None:
        self.seconds = 0.0
        self.plan: StubPlan | None = None
        self._stubs = stubs
        self._speed = speed
        self._ignore = ignore
        self._on_miss = on_miss
        self._server: StubServer | None = None
        self._watches: list[
            int
        ] = []  # the branch's, over all its runs: closing one takes the kernel 11 ms (``packet_release()``)

    @property
    def outside(self) -> Callable[[list[TcpConnection]], Outside] | None:
        """What ``restore`` asks."""
        return self._decide if self._stubs is not None else None

    def _decide(self, connections: list[TcpConnection]) -> Outside:
        assert self._stubs is not None
        began = time.monotonic()
        self.plan = self._stubs.plan(position_of(one) for one in connections)
        self.seconds = time.monotonic() - began
        return self.plan.outside

    @property
    def can_begin_anew(self) -> bool:
        """What stands for the outside can be made again, as it is not where connections of the commit go on."""
        return self.plan is None or not self.plan.resumes

    def begin_as(self, earlier: StubLifecycle) -> None:
        """With what was decided for an earlier run of the same branch, which is closed, and what is kept for all of them."""
        self.plan = earlier.plan
        self._watches, earlier._watches = earlier._watches, []

    def release(self) -> None:
        """Let go of what is kept for all runs. May be called again."""
        while self._watches:
            os.close(self._watches.pop())

    def open_ends(self, branch: Branch, manifest: Manifest) -> None:
        """Have what stands for the outside be there again, in the branch's network, where that thread has to be.

        Raises:
            OSError: it is not as it was.
        """
        if self.plan is None:
            return
        for watch in self._watches:
            _drain(watch)
        ends = OpenedEndpoints(handshakes=[os.dup(watch) for watch in self._watches])
        branch.ends = ends
        open_endpoints(self.plan.outside, manifest.listening, ends)

    def open(self, branch: Branch, manifest: Manifest) -> None:
        """Begin to answer a branch that was just restored, or put back."""
        if self.plan is None:
            return
        self._watches = self._watches or [os.dup(watch) for watch in branch.ends.handshakes]
        self._server = StubServer(
            self.plan,
            branch.ends,
            ProtocolRegistry(self._on_miss),
            init=branch.facts.init,
            authority=self.plan.authority,
            speed=self._speed,
            ignore=self._ignore,
            own_ports={port for _, port in manifest.listening},
        )
        self._server.start()

    async def close(self) -> None:
        """End it. May be called again."""
        if self._server is not None:
            await self._server.close()

    def report(self, until_ns: int | None) -> Stubbed | None:
        """What they did, see ``stubbed``; None where there were none."""
        if self._server is None or self.plan is None:
            return None
        return stubbed(self._server, self.plan, until_ns)

    @property
    def given(self) -> frozenset[tuple[int, int]]:
        """Recorded calls that were given: (dialogue, index)."""
        return frozenset(self._server.given_calls) if self._server is not None else frozenset()

    def misses(self) -> list[Miss]:
        """Questions without a recorded answer, the first hundred."""
        return misses_of_stubs(self._server) if self._server is not None else []


def _drain(watch: int) -> None:
    with socket.socket(fileno=os.dup(watch)) as sock, contextlib.suppress(BlockingIOError):
        while sock.recv(1, socket.MSG_DONTWAIT):
            pass
