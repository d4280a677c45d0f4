"""The agent's side of the recorder at a capsule's border: started before the service, kept running."""

from __future__ import annotations

import json
import os
import select
import subprocess
from typing import TYPE_CHECKING, Any

import structlog

from relive.agent.control.supervised_process import ProcessSupervisor
from relive.checkpoint.criu import CriuTools
from relive.config import Settings
from relive.errors import CapsuleStartFailed
from relive.forkserver.starting import start_module
from relive.model.capsule import BorderFacts, CapsuleSpec, EgressWay, LifePaths
from relive.proxies.ingress.options import RELAY

if TYPE_CHECKING:  # the capsule is started with the recorder at its border
    from relive.agent.capsule.lives import Capsule
    from relive.agent.commits.committer import Committer

__all__ = ["EgressSupervisor", "make_authority", "start_border"]

_MODULES = {
    EgressWay.THROUGH: "relive.proxies.egress.recorder",
    EgressWay.BESIDE: "relive.proxies.egress.beside",
}
_READY_WITHIN = 20.0  # [s]


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
        line = pipe.readline() if ready else ""
    if not line or "pid" not in json.loads(line):
        lines = paths.agent_log.read_text(errors="replace").splitlines()
        raise CapsuleStartFailed(
            "the recorder at the capsule's border did not start",
            cause=lines[-1] if lines else "it said nothing",
            remedy="run `relive doctor`, or leave out --record-egress",
        )


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
    """Belongs to the agent's event loop."""

    def __init__(self, settings: Settings, capsule: Capsule, committer: Committer) -> None:
        self._capsule = capsule
        self._recorder: ProcessSupervisor | None = None
        border = capsule.facts.border
        if border is not None:
            paths = capsule.paths
            self._recorder = ProcessSupervisor(
                "the recorder at the border",
                _MODULES[capsule.facts.spec.egress],
                _options(settings, capsule.facts.spec, paths, capsule.facts.init, border),
                paths.egress_socket,
                paths.agent_log,
                _heard,
                may_fork=settings.fork_server,
            )
        committer.border = self._recorder
        committer.border_is_beside = capsule.facts.spec.egress is EgressWay.BESIDE

    async def run(self) -> None:
        """Keep it running as long as the capsule lives; returns at once when there is none."""
        if self._recorder is not None:
            await self._recorder.run(lambda: self._capsule.is_alive)

    async def end(self) -> None:
        """End it."""
        if self._recorder is not None:
            await self._recorder.end()


def _heard(message: dict[str, Any]) -> None:
    structlog.get_logger().info("the recorder at the border", **message)
