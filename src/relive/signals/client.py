"""The agent's side of the tracer: starts it, commands it, hands out its events. For one asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from relive.errors import CapsuleError, ProcessGone, ReliveError
from relive.forkserver.starting import start_module
from relive.kernel.children import wait_or_kill
from relive.signals.crash import HOLD_LIMIT
from relive.signals.messages import Event, parse_event

__all__ = ["Attached", "Released", "TracerClient", "TracerProcess"]

_CLOSE_LIMIT = 10.0  # [s] for the tracer to end after its socket closed; first it may wait for a death


@dataclass(frozen=True, slots=True)
class Attached:
    """What is traced now.

    Attributes:
        tasks: number of traced threads in all processes of the tree.
        held: nothing is traced yet, since a process stands stopped after a fatal signal; ``release`` goes on.
        skipped: {pid, tracer, reason} of each process that cannot be traced, mostly one under a debugger.
    """

    tasks: int
    held: bool
    skipped: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Released:
    """How the held processes went on.

    Attributes:
        died: all of them died of their own signals. If False, one runs on.
        tasks: number of threads of the rest of the tree that are traced again; 0 when none is left.
    """

    died: bool
    tasks: int


class TracerProcess:
    """A tracer that was just started, and what it was told, for ``TracerClient.adopt``; needs no event loop, and makes no thread.

    Attributes:
        root: what it is to trace; None when it was not told.
    """

    def __init__(self, hold_limit: float = HOLD_LIMIT, *, may_fork: bool = False) -> None:
        """Start it.

        Args:
            hold_limit: seconds after which a process that it holds is let go though nobody says so.
            may_fork: from the fork server.
        """
        self.root: int | None = None
        self.socket, theirs = socket.socketpair()
        with theirs:
            # In a session of its own, out of reach of the terminal's Ctrl-C: it ends when the agent does, and not before.
            self.process = start_module(
                "relive.signals.tracer",
                [
                    *("--socket", str(theirs.fileno()), "--hold-limit", str(hold_limit)),
                    *("--agent", str(os.getpid())),
                ],
                streams=(subprocess.DEVNULL, subprocess.DEVNULL, 2),
                handed=[theirs.fileno()],
                may_fork=may_fork,
            )

    def attach(self, root: int) -> None:
        """Tell it to trace a process and all its descendants; it does so when it is up. Once at most.

        If it has died already, ``TracerClient.adopt`` says so.
        """
        self.root = root
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps({"op": "attach", "root": root}).encode() + b"\n")

    def close(self) -> None:
        """End it, where nobody adopts it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()


class TracerClient:
    """A tracer process. Made by ``start``; ends with ``close``, or when this process dies.

    Commands may be given from several asyncio tasks, and are carried out in the order they were given.
    """

    def __init__(self, process: TracerProcess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process = process.process
        self._writer = writer
        self._replies: deque[asyncio.Future[dict[str, Any]]] = deque()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._root: int | None = None
        self._ended = False
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def start(cls, hold_limit: float = HOLD_LIMIT, *, may_fork: bool = False) -> TracerClient:
        """Start a tracer that traces nothing yet; arguments as for ``TracerProcess``."""
        # In a thread: for a fork server that was stopped it would be waited for seconds.
        return await cls.adopt(await asyncio.to_thread(TracerProcess, hold_limit, may_fork=may_fork))

    @classmethod
    async def adopt(cls, process: TracerProcess) -> TracerClient:
        """One that was started before there was an event loop. What it was told to trace it traces, or says that it does not.

        Raises:
            As ``attach``; then the tracer has been closed.
        """
        reader, writer = await asyncio.open_connection(sock=process.socket)
        tracer = cls(process, reader, writer)
        if process.root is not None:
            try:
                await tracer._answer()
            except ReliveError:
                await tracer.close()
                raise
            tracer._root = process.root
        return tracer

    @property
    def pid(self) -> int:
        """Process id of the tracer."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """It was killed, or has failed: commands raise CapsuleError from now on."""
        return self._ended

    async def attach(self, root: int) -> Attached:
        """Trace a process and all its descendants, now and to come.

        While a process is held, only notes that ``release`` shall go on with this tree.

        Raises:
            ProcessGone: there is no such process.
            PermissionMissing: a debugger traces it, or we may not.
            UsageError: it is a kernel thread.
            CapsuleError: the tracer itself has ended.
        """
        reply = await self._command({"op": "attach", "root": root})
        self._root = root
        return Attached(tasks=reply["tasks"], held=reply["held"], skipped=tuple(reply["skipped"]))

    async def detach(self) -> bool:
        """Let go of every task, none of which is stopped by that; afterwards somebody else may trace them.

        Returns:
            Whether a process is held: its ``Fatal`` was sent before, ``release`` is due, and a commit now is
            a commit of that moment.
        """
        reply = await self._command({"op": "detach"})
        return bool(reply["held"])

    @contextlib.asynccontextmanager
    async def stepped_aside(self) -> AsyncIterator[bool]:
        """Detach, and attach to the same tree again at the end; gives what ``detach`` returns.

        A tree that ended meanwhile is no error. A process that gets a fatal signal meanwhile dies; of its end an event tells.
        """
        held = await self.detach()
        try:
            yield held
        finally:
            if self._root is not None:
                with contextlib.suppress(ProcessGone):
                    await self.attach(self._root)

    async def release(self) -> Released:
        """After a ``Fatal``: let the process die of its signal, and trace what is left of the tree.

        With several ``Fatal`` events of one moment, one call releases all of them.
        """
        reply = await self._command({"op": "release"})
        return Released(died=reply["died"], tasks=reply["tasks"])

    async def events(self) -> AsyncIterator[Event]:
        """Fatal signals and exits as they come; ends when the tracer does. For one consumer."""
        while (event := await self._events.get()) is not None:
            yield event
        self._events.put_nowait(None)  # whoever asks again gets the same answer

    async def close(self) -> None:
        """End the tracer; held processes die of their signals, and all others run on untraced."""
        self._writer.close()
        await asyncio.to_thread(wait_or_kill, self._process, _CLOSE_LIMIT)
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading

    async def __aenter__(self) -> TracerClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _command(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._ended:
            raise _tracer_gone()
        # Not awaited further: a command is smaller than any socket buffer.
        self._writer.write(json.dumps(message).encode() + b"\n")
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        """The reply to the command that was sent last."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies.append(answer)
        if self._ended:
            answer.set_exception(_tracer_gone())
        reply = await answer
        if reply["op"] == "error":
            raise ReliveError.from_json(reply)
        return reply

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                event = parse_event(message)
                if event is not None:
                    self._events.put_nowait(event)
                    continue
                answer = self._replies.popleft()
                if not answer.done():  # its asker may have been cancelled
                    answer.set_result(message)
        except ConnectionError:
            pass
        finally:
            self._ended = True
            self._events.put_nowait(None)
            for answer in self._replies:
                if not answer.done():
                    answer.set_exception(_tracer_gone())


def _tracer_gone() -> CapsuleError:
    return CapsuleError(
        "the tracer of fatal signals has ended",
        remedy="Start another; the service runs on, and a process that was held dies of its signal.",
    )
