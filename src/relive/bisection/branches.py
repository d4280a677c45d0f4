"""Probes that ask a branch from outside: a command run in it, an HTTP request sent to it. Each has a sealed branch of its own.

What the service says to others meanwhile is answered from the recording, where there is one, as ``relive restore`` does.
Connections that clients had are closed: a server that serves one client after the other would wait for them for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from relive.bisection.judgement import Judged, Judgement
from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.incidents.report.masking import Mask
from relive.kernel.namespaces import in_network_of
from relive.model.branch import Clients
from relive.model.commit import CommitId, Manifest
from relive.model.expectation import Expectation
from relive.model.life_paths import LifePaths
from relive.model.outcome import End
from relive.protocols.egress_window import read_egress
from relive.protocols.registry import protocol_of
from relive.replay.http1_connection import Http1Connection
from relive.replay.outcomes import replayed_answer
from relive.replay.received import ReceivedAnswer
from relive.replay.sender import service_address
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.stubs.plan import Stubs
from relive.sandbox.branch import Branch
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

__all__ = ["CommandProbe", "HttpProbe", "judged_status"]

_SKIP = 125  # the convention of `git bisect run`
_MOST_BAD = 124
_NOT_ENTERED = b"relive-enter: "  # native/enter.c ends with 125, too, where there is nothing to enter
_KEPT = 4096  # [bytes] of what a command said, the last ones


@dataclass(frozen=True, slots=True)
class CommandProbe:
    """A shell command, run in a branch: its exit status says what the commit is, as to ``git bisect run``.

    Args:
        environment: of the command; limit: seconds that it has.
    """

    settings: Settings
    store: Store
    command: str
    environment: Mapping[str, str]
    limit: float

    def __call__(self, commit: CommitId) -> Judged:
        """Raises ReliveError where there is no branch."""
        return asyncio.run(_in_branch(self.settings, self.store, commit, self._ask))

    async def _ask(self, branch: Branch, _manifest: Manifest) -> Judged:
        mask = Mask.configured(self.settings)
        mask.learn_process(branch.facts.root)
        said = bytearray()
        process = subprocess.Popen(
            branch.command_inside(["/bin/sh", "-c", self.command]),
            env=dict(self.environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process, _heard(process.stdout, said):
            ended = await _ended(process.pid, self.limit)
            # Before it is reaped: until then its group's number is nobody else's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if not ended:
            return Judged(judgement=Judgement.FAILED, seen=f"the command did not end within {self.limit:g} s")
        lines = said.decode("utf-8", "backslashreplace").strip().splitlines()
        return judged_status(process.returncode, mask.sentence(lines[-1]) if lines else "")


def judged_status(status: int, last: str) -> Judged:
    """What an exit status says: 0 good, 125 skipped, 1 to 124 bad; 126 and more, or a signal (negative), is no answer at all.

    Args:
        last: the last line that the command said.
    """
    said = f": {last}" if last else ""
    if status == _SKIP and last.startswith(_NOT_ENTERED.decode()):
        return Judged(judgement=Judgement.FAILED, seen=f"the service ended before the command began{said}")
    if status == 0:
        return Judged(judgement=Judgement.GOOD, seen="exit status 0")
    if status == _SKIP:
        return Judged(judgement=Judgement.SKIPPED, seen=f"exit status 125{said}")
    if 0 < status <= _MOST_BAD:
        return Judged(judgement=Judgement.BAD, seen=f"exit status {status}{said}")
    how = f"ended with {status}" if status > 0 else f"died of signal {-status}"
    return Judged(judgement=Judgement.FAILED, seen=f"the command {how}{said}", is_final=True)


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """A request sent to the service in a branch: an answer that is as expected is good, another is bad, none is neither.

    Args:
        limit: seconds until the whole answer is there.
    """

    settings: Settings
    store: Store
    method: str
    target: str
    expectation: Expectation
    limit: float

    def __call__(self, commit: CommitId) -> Judged:
        """Raises ReliveError where there is no branch."""
        return asyncio.run(_in_branch(self.settings, self.store, commit, self._ask))

    async def _ask(self, branch: Branch, manifest: Manifest) -> Judged:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.limit):
                received = await self._answer(branch.facts.init, service_address(manifest))
        except TimeoutError:
            return Judged(judgement=Judgement.FAILED, seen=f"no whole answer within {self.limit:g} s")
        except OSError as error:
            return Judged(judgement=Judgement.FAILED, seen=f"it cannot be reached: {error.strerror or error}")
        if received.end is not End.ANSWERED or received.status is None:
            return Judged(judgement=Judgement.FAILED, seen="the connection broke before the answer was whole")
        answer = replayed_answer(received, []).model_copy(update={"seconds": time.monotonic() - began})
        try:
            is_good = self.expectation.holds(answer)
        except ValueError as error:
            return Judged(judgement=Judgement.FAILED, seen=f"status {received.status}: {error}")
        return Judged(
            judgement=Judgement.GOOD if is_good else Judgement.BAD, seen=f"status {received.status}"
        )

    async def _answer(self, init: int, address: tuple[str, int]) -> ReceivedAnswer:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = in_network_of(init, lambda: socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        with sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
            head = f"{self.method} {self.target} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nConnection: close\r\n\r\n"
            answer = ReceivedAnswer()
            await Http1Connection(sock).exchange(head.encode(), [self.method.encode()], answer)
            return answer


async def _in_branch(
    settings: Settings,
    store: Store,
    commit: CommitId,
    ask: Callable[[Branch, Manifest], Awaitable[Judged]],
) -> Judged:
    async with _answered_branch(settings, store, commit) as (branch, manifest):
        judged = await ask(branch, manifest)
        lost = branch.cut_short
    if lost is not None:  # whatever was seen of it is not the service's doing
        raise lost
    return judged


@contextlib.asynccontextmanager
async def _answered_branch(
    settings: Settings, store: Store, commit: CommitId
) -> AsyncIterator[tuple[Branch, Manifest]]:
    """A branch for the block, whose calls are answered from the recording; it is gone at the end, whatever happened."""
    manifest = store.facts(commit)
    stage = StubLifecycle(_stubs(settings, manifest))
    request = RestoreRequest(is_owned=True, outside=stage.outside, clients=Clients.CLOSE)
    branch = restore(settings, store, commit, request)
    try:
        stage.open(branch, manifest)
        yield branch, manifest
    finally:
        await stage.close()
        branch.stop()


def _stubs(settings: Settings, manifest: Manifest) -> Stubs | None:
    if manifest.target.life is None:
        return None
    paths = LifePaths(settings.capsules / manifest.target.name / manifest.target.life)
    egress = read_egress(paths.egress, manifest.taken_monotonic_ns)
    return Stubs(egress, protocol_of, authority=paths.authority) if egress is not None else None


@contextlib.contextmanager
def _heard(stream: IO[bytes], said: bytearray) -> Iterator[None]:
    """Read a stream for the block, so that nobody waits who writes to it, and keep the last of it."""
    loop, descriptor = asyncio.get_running_loop(), stream.fileno()
    os.set_blocking(descriptor, False)

    def read() -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            loop.remove_reader(descriptor)
        said.extend(data)
        del said[:-_KEPT]

    loop.add_reader(descriptor, read)
    try:
        yield
        read()
    finally:
        loop.remove_reader(descriptor)


async def _ended(pid: int, limit: float) -> bool:
    """Wait for the end of a child, without reaping it; False: it did not end within so many seconds."""
    loop, handle, ended = asyncio.get_running_loop(), os.pidfd_open(pid), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(limit):
            await ended.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    return True
