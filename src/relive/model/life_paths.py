"""Where the files of one life of a capsule, or of a watch, lie below ``capsules`` in Relive's home."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LifePaths"]


@dataclass(frozen=True, slots=True)
class LifePaths:
    """Where the files of one life lie."""

    directory: Path

    @property
    def state(self) -> Path:
        """CapsuleFacts as JSON."""
        return self.directory / "state.json"

    @property
    def watch(self) -> Path:
        """WatchFacts as JSON, in the place of ``state``: of a container that is watched."""
        return self.directory / "watch.json"

    @property
    def output_position(self) -> Path:
        """Time of the last line of a watched container's output that is in the files of ``io``."""
        return self.directory / "output-position"

    @property
    def files(self) -> Path:
        """Directory of the journal of files that the service changed, and of what they held before."""
        return self.directory / "files"

    @property
    def trust(self) -> Path:
        """Directory of bundles of roots that the service is to trust."""
        return self.directory / "trust"

    @property
    def followed(self) -> Path:
        """What is known of the files that a watched service has changed, a line each (see ``watching.processes.journal``)."""
        return self.directory / "followed.jsonl"

    @property
    def io(self) -> Path:
        """Directory of stdout.log and stderr.log."""
        return self.directory / "io"

    @property
    def layers(self) -> Path:
        """What the service wrote, a directory per overlay."""
        return self.directory / "layers"

    @property
    def status(self) -> Path:
        """Raw wait status of the service once it has ended."""
        return self.directory / "status"

    @property
    def recording(self) -> Path:
        """Directory of the recording."""
        return self.directory / "recording"

    @property
    def rings(self) -> Path:
        """Link to the directory of the rings, which lies in memory (``/dev/shm``)."""
        return self.directory / "rings"

    @property
    def inside(self) -> Path:
        """Directory of the recording of what happened inside the service's Python processes."""
        return self.directory / "inside"

    @property
    def beginnings(self) -> Path:
        """What its Python processes did when they began."""
        return self.directory / "beginnings.jsonl"

    @property
    def egress(self) -> Path:
        """Directory of the recording of what the service asked of others."""
        return self.directory / "egress"

    @property
    def authority(self) -> Path:
        """Directory of what TLS is opened with (see ``relive.proxies.egress.authority``); never within the service's reach."""
        return self.directory / "authority"

    @property
    def egress_socket(self) -> Path:
        """Where the recorder at the border takes commands."""
        return self.directory / "egress.sock"

    @property
    def agent_socket(self) -> Path:
        """Where the agent takes commands."""
        return self.directory / "agent.sock"

    @property
    def proxy_socket(self) -> Path:
        """Where the recording proxy takes commands."""
        return self.directory / "proxy.sock"

    @property
    def front_socket(self) -> Path:
        """Where process 1, or ``relive-front``, gives the listener of the public port away; absent where neither keeps one."""
        return self.directory / "front.sock"

    @property
    def agent_log(self) -> Path:
        """The agent's own log, JSON lines."""
        return self.directory / "agent.log"

    @property
    def agent_pid(self) -> Path:
        """Host pid of the agent and its start in clock ticks after boot."""
        return self.directory / "agent.pid"

    @property
    def closed(self) -> Path:
        """Exists when the life has ended and everything about its end is written down."""
        return self.directory / "closed"

    @property
    def pace(self) -> Path:
        """PaceState as JSON: how often it is committed by the clock, and why not as often as asked for."""
        return self.directory / "pace.json"

    @property
    def logs(self) -> list[Path]:
        """The service's output files, stdout first."""
        return [self.io / "stdout.log", self.io / "stderr.log"]
