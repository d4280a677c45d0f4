"""A capsule as a value: what was asked for, and what runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from relive.errors import UsageError
from relive.model.commit_policy import Policy
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
    "FilesWay",
    "check_name",
    "has_front",
    "parse_data",
]

# Where a capsule and its branches find what is Relive's.
RUN_DIRECTORY = Path("/run/relive")
INPROCESS_DIRECTORY = RUN_DIRECTORY / "inprocess"

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
