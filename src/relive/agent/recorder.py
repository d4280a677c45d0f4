"""The agent's side of the recording: keeps the proxy running, answers its requests for commits, passes on what it saw."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from relive.agent.capsule import Capsule
from relive.agent.committer import Committer
from relive.agent.gate import ProxyLink
from relive.agent.keeper import Keeper
from relive.agent.tasks import Tasks
from relive.config import Settings
from relive.errors import ReliveError
from relive.model.commit import Trigger

__all__ = ["Recorder"]

_TRIES = 100
_END_LIMIT = 12.0  # [s] the proxy lets answers under way end first


class Recorder:
    """Belongs to the agent's event loop.

    Args:
        on_trouble: called with each message of the proxy about a failing request (see ``relive.record.proxy``).
    """

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        committer: Committer,
        keeper: Keeper,
        tasks: Tasks,
        on_trouble: Callable[[dict[str, Any]], None],
    ) -> None:
        self._settings = settings
        self._capsule = capsule
        self._committer = committer
        self._keeper = keeper
        self._tasks = tasks
        self._on_trouble = on_trouble
        self._log = structlog.get_logger()
        self._proxy_pid: int | None = None
        self._held: list[int] = []
        self._held_changed = asyncio.Event()

    async def run(self) -> None:
        """Keep a proxy running as long as the capsule lives; returns at once when nothing is to be recorded."""
        spec = self._capsule.facts.spec
        if spec.listen is None:
            return
        if spec.policy.each_request:
            self._tasks.begin(self._commit_before_requests())
        while self._capsule.is_alive:
            gone = asyncio.Event()
            try:
                self._committer.link = await self._reach_proxy(gone)
            except OSError as error:
                self._log.error("the recording proxy does not start", cause=str(error))
                return
            await gone.wait()
            self._log.warning("the recording proxy ended; starting another")

    async def _reach_proxy(self, gone: asyncio.Event) -> ProxyLink:
        path = self._capsule.paths.proxy_socket

        def on_event(message: dict[str, Any]) -> None:
            if message.get("op") == "proxy-gone":
                gone.set()
            else:
                self._heard(message)

        link = await self._connect(path, on_event)  # one that outlived an earlier agent
        if link is not None:
            return link
        proxy = await self._start_proxy()
        for attempt in range(_TRIES):
            link = await self._connect(path, on_event)
            if link is not None:
                return link
            if proxy.returncode is not None:
                raise OSError(f"it ended with status {proxy.returncode}")
            await asyncio.sleep(min(0.05 * (attempt + 1), 0.5))
        raise OSError("it does not take commands")

    async def _connect(self, path: Path, on_event: Callable[[dict[str, Any]], None]) -> ProxyLink | None:
        try:
            link = await ProxyLink.connect(path, on_event)
        except OSError:
            return None
        self._proxy_pid = link.proxy_pid
        return link

    async def _start_proxy(self) -> asyncio.subprocess.Process:
        spec, paths = self._capsule.facts.spec, self._capsule.paths
        assert spec.listen is not None
        assert spec.upstream is not None
        command = [
            *("--listen", _address(spec.listen), "--upstream", _address(spec.upstream)),
            *("--recording", str(paths.recording), "--control", str(paths.proxy_socket)),
            *("--body-limit", str(self._settings.body_limit)),
        ]
        for log in paths.logs:
            command += ["--log", str(log)]
        if spec.policy.each_request:
            command.append("--every-request")
        if spec.hang_after is not None:
            command += ["--hang-after", str(spec.hang_after)]
        with paths.agent_log.open("ab") as log_file:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "relive.record.proxy",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )

    def _heard(self, message: dict[str, Any]) -> None:
        if message.get("op") == "hold":
            self._held.append(message["request"])
            self._held_changed.set()
        else:
            self._on_trouble(message)

    async def _commit_before_requests(self) -> None:
        """Serve held requests. All that wait when a commit begins are covered by it; later ones wait for the next."""
        while True:
            await self._held_changed.wait()
            self._held_changed.clear()
            if not self._held:
                continue
            requests, self._held = self._held, []
            name = None
            try:
                taken = await self._committer.capture(Trigger.REQUEST)
                name = taken.name
                self._tasks.begin(self._keeper.keep(taken))
            except ReliveError as error:
                self._log.error("commit failed", error=error.as_json())
            if self._committer.link is not None:
                self._committer.link.tell("go", requests=requests, commit=name)

    async def end(self) -> None:
        """End the proxy, which lets answers that are under way end first."""
        link = self._committer.link
        if link is None:  # a proxy of an earlier agent, perhaps
            link = await self._connect(self._capsule.paths.proxy_socket, lambda _message: None)
        if link is None or self._proxy_pid is None:
            return
        if link.is_open:
            with contextlib.suppress(ProcessLookupError):
                await self._end_process(self._proxy_pid)
        await link.close()

    @staticmethod
    async def _end_process(pid: int) -> None:
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            readable, _, _ = await asyncio.to_thread(select.select, [handle], [], [], _END_LIMIT)
            if not readable:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _address(pair: tuple[str, int]) -> str:
    host, port = pair
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
