"""A process beside the service that the agent keeps running, and its line to it: the recording proxy, the recorder at the border.

It outlives the agent. An agent that finds one running takes it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from relive.agent.control.proxy_client import ProxyLink
from relive.errors import CapsuleError
from relive.forkserver.starting import ForkedProcess, fork_module, module_command

__all__ = ["ProcessSupervisor"]

_TRIES = 100
_SOON = 0.5  # [s] somebody waits for the agent's state
_END_LIMIT = 12.0  # [s] it lets what is under way end first


@dataclass(slots=True)
class ProcessSupervisor:
    """Belongs to the agent's event loop.

    Attributes:
        name: in the log.
        module: what Python runs, and the options of its command line.
        socket: where it takes commands.
        log: file for what it says.
        on_message: called with each message of it that is no answer.
        may_fork: from the fork server.
        link: the line to it; None while there is none.
    """

    name: str
    module: str
    options: Sequence[str]
    socket: Path
    log: Path
    on_message: Callable[[dict[str, Any]], None]
    may_fork: bool = False
    link: ProxyLink | None = None
    _pid: int | None = None
    _gone: asyncio.Event | None = None  # for ``run``: the line is closed

    async def run(self, is_wanted: Callable[[], bool]) -> None:
        """Have it run as long as it is wanted.

        Raises:
            CapsuleError: it does not start; to be called again (see ``Tasks``): the service may be out of reach without it.
        """
        log = structlog.get_logger()
        while is_wanted():
            gone = self._gone = asyncio.Event()
            try:
                self.link = await self._reach(gone)
            except OSError as error:
                raise CapsuleError(
                    f"{self.name} does not start",
                    cause=str(error),
                    remedy=f"it is tried again; {self.log} holds what it says",
                ) from error
            await gone.wait()
            if is_wanted():
                log.warning(f"{self.name} ended; starting another")

    async def _reach(self, gone: asyncio.Event) -> ProxyLink:
        def on_event(message: dict[str, Any]) -> None:
            if message.get("op") == "proxy-gone":
                gone.set()
            else:
                self.on_message(message)

        link = await self._connect(on_event)  # one that outlived an earlier agent
        if link is not None:
            return link
        process = await self._start()
        for attempt in range(_TRIES):
            link = await self._connect(on_event)
            if link is not None:
                return link
            if process.returncode is not None:
                raise OSError(f"it ended with status {process.returncode}")
            await asyncio.sleep(min(0.05 * (attempt + 1), 0.5))
        raise OSError("it does not take commands")

    async def _connect(self, on_event: Callable[[dict[str, Any]], None]) -> ProxyLink | None:
        try:
            link = await ProxyLink.connect(self.socket, on_event)
        except OSError:
            return None
        self._pid = link.proxy_pid
        return link

    async def _start(self) -> ForkedProcess | asyncio.subprocess.Process:
        with self.log.open("ab") as log_file:
            if self.may_fork:
                streams = (subprocess.DEVNULL, log_file.fileno(), log_file.fileno())
                # In a thread: for a fork server that was stopped it would be waited for seconds.
                forking = asyncio.create_task(
                    asyncio.to_thread(fork_module, self.module, self.options, streams=streams)
                )
                try:
                    forked = await asyncio.shield(forking)
                except asyncio.CancelledError:
                    # The thread goes on, with the number of the log file; nobody would know of what it starts.
                    unwanted = await forking
                    if unwanted is not None:
                        unwanted.kill()
                    raise
                if forked is not None:
                    return forked
            return await asyncio.create_subprocess_exec(
                *module_command(self.module, self.options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )

    async def status(self) -> dict[str, Any]:
        """What it says of itself, also one that outlived an earlier agent; nothing where none says so at once."""
        has_own = self.link is not None and self.link.is_open
        link = self.link if has_own else await self._connect(lambda _message: None)
        if link is None:
            return {}
        try:
            return await link.ask("status", _SOON)
        except (ConnectionError, TimeoutError):
            return {}
        finally:
            if not has_own:
                await link.close()

    async def end(self) -> None:
        """End it; it lets what is under way end first."""
        link = self.link
        if link is None:  # one of an earlier agent, perhaps
            link = await self._connect(lambda _message: None)
        if link is None or self._pid is None:
            return
        if link.is_open:
            with contextlib.suppress(ProcessLookupError):
                await _end_process(self._pid)
        await link.close()
        if self._gone is not None:  # a line that was closed here may not have told any more
            self._gone.set()


async def _end_process(pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        readable, _, _ = await asyncio.to_thread(select.select, [handle], [], [], _END_LIMIT)
        if not readable:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)
