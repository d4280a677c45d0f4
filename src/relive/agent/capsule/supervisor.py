"""The supervisor of an agent (``native/supervisor.c``), which has another started when it has died.

Whoever of the two is killed, the other sees to it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import structlog

from relive.checkpoint.criu import CriuTools
from relive.config import Settings, store_key_variable
from relive.model.life_paths import LifePaths

__all__ = ["Supervisor"]

_PAUSE = 1.0  # [s] between two starts


class Supervisor:
    """Belongs to the agent's event loop."""

    def __init__(self, settings: Settings, paths: LifePaths) -> None:
        self._settings, self._paths = settings, paths
        self._process: asyncio.subprocess.Process | None = None

    async def keep_running(self) -> None:
        """Have one run, until it is cancelled. It outlives the agent, and ends when the life is closed."""
        log = structlog.get_logger()
        while True:
            began = time.monotonic()
            try:
                await self._start()
            except OSError as error:
                log.error("nobody looks after the agent", cause=str(error))
            else:
                assert self._process is not None
                status = await self._process.wait()
                log.warning("the agent's supervisor ended; starting another", status=status)
            await asyncio.sleep(max(0.0, _PAUSE - (time.monotonic() - began)))

    async def _start(self) -> None:
        settings, paths = self._settings, self._paths
        homes = {"RELIVE_HOME": str(settings.home), "RELIVE_TOOLS": str(settings.tools_path)}
        with paths.agent_log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(CriuTools(settings.tools_path).supervisor, paths.directory),
                *(sys.executable, "-m", "relive.operations.revive", paths.directory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(os.environ) | homes | store_key_variable(),
                start_new_session=True,
            )

    async def end(self) -> None:
        """The life is over: end one that was started here. One that was there before sees it by itself."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
