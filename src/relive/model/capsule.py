"""A capsule as a value: what was asked for, and what runs."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from relive.errors import UsageError
from relive.model.budget import parse_budget
from relive.model.text import NativeText
from relive.model.value import Value

__all__ = [
    "INPROCESS_DIRECTORY",
    "RUN_DIRECTORY",
    "BorderFacts",
    "CapsuleFacts",
    "CapsuleSpec",
    "CaptureWay",
    "DataChoice",
    "EgressWay",
    "Every",
    "FilesWay",
    "LifePaths",
    "Policy",
    "check_name",
    "has_front",
    "parse_address",
    "parse_data",
    "parse_every",
    "parse_publication",
]

# Where a capsule and its branches find what is Relive's.
RUN_DIRECTORY = Path("/run/relive")
INPROCESS_DIRECTORY = RUN_DIRECTORY / "inprocess"

_EVERY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LOOK = 1.0  # [s] between two looks whether a service has done anything
_ADDRESS = re.compile(r"(?:(?P<host>[^\[\]:\s]*|\[(?P<six>[^\[\]\s]+)\]):)?(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class FilesWay(StrEnum):
    """Where what a service writes goes.

    HOST: where it writes it, as without Relive; OVERLAY: to an upper layer that ends with the service.
    """

    HOST = "host"
    OVERLAY = "overlay"


class DataChoice(StrEnum):
    """What becomes of a directory of data in commits.

    COPY: each commit holds all of it, from the first one on; EXCLUDE: none holds it, and branches see the host's.
    """

    COPY = "copy"
    EXCLUDE = "exclude"


class Policy(Value):
    """When commits are taken without being asked for, and how.

    Attributes:
        at_start: once, when the service is ready.
        seconds: again and again; None: not by the clock.
        on_change: only when the service has done something since the last commit; ``seconds`` is between two looks.
        on_deploy: only when another revision of its code is seen; ``seconds`` as above.
        each_request: before each request is handed on.
        pause_limit: seconds; a commit that would stop the service for longer is not taken, at the start or by the clock;
            None: each is.
        pause_share: of the time, 0 to 1, for which the service may stand still; the clock waits so long; None: no cap.
        budget: bytes an hour by which the store may grow; the clock waits so long; None: no cap.
        cost_share: of the service's time, 0 to 1, that commits may cost it (``agent.commits.service_cost``); as above.
        micro: micro-commits are taken where they are certain to be right; None: as the agent's settings say.
        full_because: why they are not taken on this host, though so many commits would be; None: they are, or nobody wants them.
    """

    at_start: bool
    seconds: float | None = None
    on_change: bool = False
    on_deploy: bool = False
    each_request: bool = False
    pause_limit: float | None = None
    pause_share: float | None = None
    budget: int | None = None
    cost_share: float | None = None
    micro: bool | None = None
    full_because: str | None = None

    @property
    def interval(self) -> float | None:
        """Seconds between two commits by the clock; None: it does not decide alone, or not at all."""
        return None if self.on_change or self.on_deploy else self.seconds

    def limited(self, limit_s: float, share_percent: float, budget: str) -> Policy:
        """With these limits, as users write them: 0 seconds, 100 percent and "none" mean none.

        A share of the time in the budget has pauses in it: then ``share_percent`` is to be 100 where it was not asked for, too.

        Raises:
            UsageError: the budget is none.
        """
        limits = parse_budget(budget)
        return self.model_copy(
            update={
                "pause_limit": limit_s or None,
                "pause_share": share_percent / 100 if share_percent < 100 else None,
                "budget": limits.bytes,
                "cost_share": limits.share,
            }
        )


Every = str
"""What ``--every`` takes: "30s", "500ms", "2m", "change", "deploy", "request", "start" or "never"."""


def parse_every(text: Every) -> Policy:
    """Read ``--every``; raises UsageError."""
    if text == "never":
        return Policy(at_start=False)
    if text == "start":
        return Policy(at_start=True)
    if text == "request":
        return Policy(at_start=True, each_request=True)
    if text == "change":
        return Policy(at_start=True, seconds=_LOOK, on_change=True)
    if text == "deploy":
        return Policy(at_start=True, seconds=_LOOK, on_deploy=True)
    match = _EVERY.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match is not None else 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"--every cannot be {text!r}",
            remedy="write a time such as 30s or 500ms, or change, deploy, request, start, never",
        )
    return Policy(at_start=True, seconds=seconds)


def parse_data(texts: Iterable[str]) -> dict[str, DataChoice]:
    """Read ``--data DIRECTORY=CHOICE``, as often as it was given; raises UsageError."""
    found: dict[str, DataChoice] = {}
    for text in texts:
        path, _, choice = text.rpartition("=")
        if choice not in set(DataChoice) or not path.startswith("/") or path == "/":
            raise UsageError(
                f"--data cannot be {text!r}",
                remedy="write an absolute DIRECTORY=copy, so that each commit holds it whole, or DIRECTORY=exclude",
            )
        found[os.path.realpath(path)] = DataChoice(choice)
    return found


def parse_publication(text: str) -> tuple[str, int, int]:
    """(host's address, host's port, inner port) of ``[ADDRESS:]PORT:PORT``; raises UsageError as ``parse_address``."""
    outer, _, inner = text.rpartition(":")
    host, host_port = parse_address(outer)
    return host, host_port, parse_address(inner)[1]


def parse_address(text: str, *, default_host: str = "127.0.0.1", least_port: int = 1) -> tuple[str, int]:
    """Read ``HOST:PORT``, ``[V6]:PORT`` or ``PORT``; raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"]) if match is not None else 0
    if match is None or not least_port <= port < 65536 or not _is_v6(match["six"]):
        raise UsageError(
            f"{text!r} is no address", remedy="write HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000"
        )
    return match["six"] or match["host"] or default_host, port


def _is_v6(text: str | None) -> bool:
    """What stands in brackets, if there are any, is an IPv6 address."""
    try:
        return text is None or ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def check_name(name: str) -> str:
    """A capsule's name, if it is allowed; raises UsageError."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a capsule's name", remedy="use letters, digits, dot, dash and underscore"
        )
    return name


class CaptureWay(StrEnum):
    """How the requests of a service are recorded: from packets, beside their way, or by a proxy in it."""

    BESIDE = "beside"
    PROXY = "proxy"


class EgressWay(StrEnum):
    """How what a service asks of others is recorded: by a recorder in its way, or from copies of its packets, beside it."""

    THROUGH = "through"
    BESIDE = "beside"


def has_front(listen: tuple[str, int] | None, capture: CaptureWay, *, stands_in: bool) -> bool:
    """Clients of a service that is observed so connect to a port that is not its own."""
    return listen is not None and not stands_in and capture is CaptureWay.PROXY


class CapsuleSpec(Value):
    """What ``relive run`` was asked for.

    Attributes:
        listen: where the recording proxy listens, and upstream: the service's own port; both or none. Where requests are recorded
            beside their way both are where the service itself listens.
        capture: how requests are recorded, if they are.
        stands_in: the proxy takes connections to the service's own port, at ``listen`` (see ``proxies.ingress.takeover``).
        hindrance: why there is a proxy that nobody asked for; None: there is none.
        hang_after: seconds without an answer after which a request counts as hanging; None: no limit.
        memory: bytes of memory the capsule may use; None: no limit.
        user: name of the user the service runs as; None: the caller.
        inside: Python processes of the service get the recorder.
        record_egress: what the service asks of others is recorded at its border.
        egress: how, with record_egress.
        egress_if_possible: nothing was said of it: where the host cannot record it the service is started all the same. Without
            record_egress: since the store is sealed, and recordings are not.
        tls: with record_egress, and its recorder in the way, TLS is opened with an authority of the capsule's own.
        files: where what the service writes goes.
        data: by absolute path of a directory, what becomes of it in commits.
        stop_signal: by which ``relive stop`` asks it to end; None: SIGTERM.
        daemons: its first process ends and leaves daemons: one of Relive's stays at their head (``relive_head``).
        patterns: regular expressions; a line of output in which one is found is a failure.
    """

    name: str
    command: list[NativeText]
    directory: NativeText
    environment: dict[NativeText, NativeText]
    policy: Policy
    listen: tuple[str, int] | None = None
    upstream: tuple[str, int] | None = None
    capture: CaptureWay = CaptureWay.PROXY
    stands_in: bool = False
    hindrance: str | None = None
    hang_after: float | None = None
    memory: int | None = None
    user: str | None = None
    inside: bool = True
    record_egress: bool = False
    egress: EgressWay = EgressWay.THROUGH
    egress_if_possible: bool = False
    tls: bool = True
    files: FilesWay = FilesWay.OVERLAY  # so of lives that an older Relive began
    data: dict[NativeText, DataChoice] = {}
    stop_signal: int | None = None
    daemons: bool = False
    patterns: list[str] = []

    @property
    def has_front(self) -> bool:
        """Clients connect to a port that is not the service's own."""
        return has_front(self.listen, self.capture, stands_in=self.stands_in)

    @property
    def opens_tls(self) -> bool:
        """The capsule has an authority of its own."""
        return self.record_egress and self.egress is EgressWay.THROUGH and self.tls


class BorderFacts(Value):
    """The border of one life of a capsule, at which what it asks of others is recorded.

    Attributes:
        number: that of no other in its network namespace, 1 to 255; 0: it has no rules, packets are copied beside their way.
        group: directory of the control group whose connections it concerns.
    """

    number: int
    group: NativeText


class CapsuleFacts(Value):
    """One life of a capsule, as written into its ``state.json``.

    Attributes:
        life: names this start of the service for good.
        init, root: host pids of process 1 and of the service.
        points: (mount point, layer slot) of each overlay.
        is_owned: it ends with the command that started it.
        border: None where what it asks of others is not recorded.
        unrecorded: why it is not, where it was to be recorded if that is possible.
    """

    spec: CapsuleSpec
    life: str
    init: int
    init_started: int
    root: int
    root_inside: int
    started_wall_ns: int
    points: list[tuple[NativeText, str]]
    is_owned: bool = False
    border: BorderFacts | None = None
    unrecorded: str | None = None

    @staticmethod
    @lru_cache(maxsize=8)  # many branches of one commit look at the same life
    def parse(state: bytes) -> CapsuleFacts:
        """Of the bytes of a ``state.json``; raises ValueError: they are none."""
        return CapsuleFacts.model_validate_json(state)

    @property
    def egress(self) -> EgressWay | None:
        """How what it asks of others is recorded; None: it is not."""
        return self.spec.egress if self.border is not None else None


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
