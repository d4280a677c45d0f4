"""The agent's side of the recorder at a capsule's border: started before the service, or with its first call."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from relive.agent.capsule.waiting_calls import WaitingCalls
from relive.agent.control.supervised_process import ProcessSupervisor
from relive.checkpoint.criu import CriuTools
from relive.config import Settings
from relive.errors import CapsuleError, CapsuleStartFailed
from relive.forkserver.starting import start_module
from relive.model.capsule import BorderFacts, CapsuleSpec, EgressWay
from relive.model.life_paths import LifePaths
from relive.proxies.ingress.options import RELAY
from relive.recording.reader import Recording

if TYPE_CHECKING:  # the capsule is started with the recorder at its border
    from relive.agent.capsule.lives import Capsule
    from relive.agent.commits.committer import Committer

__all__ = ["EgressSupervisor", "make_authority", "start_border"]

_MODULES = {
    EgressWay.THROUGH: "relive.proxies.egress.recorder",
    EgressWay.BESIDE: "relive.proxies.egress.beside",
}
_READY_WITHIN = 20.0  # [s]
_BEGINS_WITHIN = 5.0  # [s] so long an incident waits for what was said before it
_LOOK = 0.02  # [s]


def make_authority(paths: LifePaths, name: str) -> bytes:
    """Make the authority of a life and return its certificate (PEM)."""
    from relive.proxies.egress.authority import Authority  # noqa: PLC0415 - `cryptography` takes its time to be imported

    return Authority.make(paths.authority, name).certificate


def start_border(
    settings: Settings, spec: CapsuleSpec, paths: LifePaths, init: int, border: BorderFacts
) -> None:
    """Start the recorder at a border that is there; returns when it takes connections.

    Raises:
        CapsuleStartFailed: it did not start.
    """
    line = _start(settings, spec, paths, init, border)
    if not line or "pid" not in json.loads(line):
        lines = paths.agent_log.read_text(errors="replace").splitlines()
        raise CapsuleStartFailed(
            "the recorder at the capsule's border did not start",
            cause=lines[-1] if lines else "it said nothing",
            remedy="run `relive doctor`, or leave out --record-egress",
        )


def _start(settings: Settings, spec: CapsuleSpec, paths: LifePaths, init: int, border: BorderFacts) -> str:
    """Returns what it says when it is ready; nothing where it has ended before."""
    reading, writing = os.pipe()
    try:
        with paths.agent_log.open("ab") as log:
            start_module(
                _MODULES[spec.egress],
                [*_options(settings, spec, paths, init, border), "--ready-fd", str(writing)],
                streams=(subprocess.DEVNULL, log.fileno(), log.fileno()),
                handed=[writing],
                may_fork=settings.fork_server,
            )
    finally:
        os.close(writing)
    with os.fdopen(reading) as pipe:
        ready, _, _ = select.select([pipe], [], [], _READY_WITHIN)
        return pipe.readline() if ready else ""


def _options(
    settings: Settings, spec: CapsuleSpec, paths: LifePaths, init: int, border: BorderFacts
) -> list[str]:
    options = [
        *("--group", border.group, "--capsule", str(init)),
        *("--recording", str(paths.egress)),
        *("--control", str(paths.egress_socket), "--keep-bytes", str(settings.egress_keep)),
    ]
    if spec.egress is EgressWay.BESIDE:
        return [*options, "--relay", str(settings.tools_path / RELAY)]
    options += ["--border", str(border.number)]
    if spec.opens_tls:
        options += ["--authority", str(paths.authority)]
    relay, keeper = settings.tools_path / RELAY, CriuTools(settings.tools_path).keeper
    if (
        relay.exists() and keeper.exists()
    ):  # else Python carries all, which costs more; see the proxy's warning
        options += ["--relay", str(relay), "--keeper", str(keeper)]
    return options


class EgressSupervisor:
    """Belongs to the agent's event loop.

    The recorder beside the way is started when the service asks others for the first time; what is said before waits in the kernel.
    """

    def __init__(self, settings: Settings, capsule: Capsule, committer: Committer) -> None:
        self._settings = settings
        self._capsule = capsule
        self._recorder: ProcessSupervisor | None = None
        self._waiting: WaitingCalls | None = None
        self._rest: asyncio.Task[None] | None = None
        self._has_ended = False
        border = capsule.facts.border
        if border is None:
            return
        paths = capsule.paths
        self._recorder = committer.border = ProcessSupervisor(
            "the recorder at the border",
            _MODULES[capsule.facts.spec.egress],
            _options(settings, capsule.facts.spec, paths, capsule.facts.init, border),
            paths.egress_socket,
            paths.agent_log,
            _heard,
            may_fork=settings.fork_server,
        )
        if capsule.facts.egress is EgressWay.BESIDE:
            committer.border_has_begun = self._begun
            self._waiting = WaitingCalls.of(Path(border.group))

    async def run(self) -> None:
        """Keep it running as long as the capsule lives; returns at once when there is none."""
        if self._recorder is None:
            return
        if self._waiting is not None and not Recording(self._capsule.paths.egress).segments():
            await self._waiting.first()  # nobody is woken for what comes later, see ``beside``
        try:
            await self._recorder.run(lambda: self._capsule.is_alive)
        except CapsuleError:
            if self._capsule.is_alive:
                raise
            self._has_ended = True  # as it recorded what was left

    async def end(self) -> None:
        """End it; what the service said is recorded by then."""
        if self._recorder is not None:
            if self._recorder.link is None:
                await self._record_the_rest(may_be_under_way=not self._has_ended)
            await self._recorder.end()
        if self._waiting is not None:
            self._waiting.close()

    async def _begun(self) -> None:
        """Wait for a while until a recorder is there, if something was said."""
        if self._recorder is None or self._waiting is None or not self._waiting.are_there():
            return
        until = time.monotonic() + _BEGINS_WITHIN
        while self._recorder.link is None and time.monotonic() < until:
            if not self._capsule.is_alive:
                await self._record_the_rest()
                return
            await asyncio.sleep(_LOOK)

    async def _record_the_rest(self, *, may_be_under_way: bool = False) -> None:
        """What a service that has ended said, where no recorder has begun on it, or one that nobody waits for otherwise."""
        if self._waiting is None or self._capsule.is_alive:
            return
        has_begun = may_be_under_way and Recording(self._capsule.paths.egress).segments()
        if not self._waiting.are_there() and not has_begun:
            return
        if self._rest is None:
            self._rest = asyncio.create_task(asyncio.to_thread(self._record_at_the_end))
        await asyncio.shield(self._rest)

    def _record_at_the_end(self) -> None:
        """It is never ready, and has ended when this returns; the agent's log has what it says."""
        facts = self._capsule.facts
        if facts.border is not None:
            _start(self._settings, facts.spec, self._capsule.paths, 0, facts.border)


def _heard(message: dict[str, Any]) -> None:
    structlog.get_logger().info("the recorder at the border", **message)
