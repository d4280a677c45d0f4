"""The error package: what the recorder in a Python process kept of an exception that nobody handled.

It is the data of a ``failure`` event, a JSON object of at most ``MOST_BYTES``, and lies beside its incident afterwards. The service
wrote it, so it is read as something hostile: every type is checked, and keys that are not known are passed over, so that
a later recorder can say more.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from relive.model.recorded import read_recorded
from relive.model.value import Value

__all__ = [
    "MOST_BYTES",
    "ErrorPackage",
    "FailedRequest",
    "Frame",
    "Link",
    "Relation",
    "Revision",
    "Source",
    "Versions",
    "Where",
    "read_package",
]

MOST_BYTES = 512 << 10  # [bytes] the recorder cuts what is longer, and says so in ``cut``
VERSION = 1

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]


class StrictValue(Value):
    """Base of the values here: types as they stand in the JSON."""

    model_config = ConfigDict(strict=True)


class Where(StrEnum):
    """What the exception escaped from; ``log``: it was caught, and logged with its traceback."""

    HANDLER = "handler"
    THREAD = "thread"
    TASK = "task"
    MAIN = "main"
    JOB = "job"
    LOG = "log"


class Relation(StrEnum):
    """How an exception of the chain belongs to the one before it: ``__cause__``, ``__context__``, one of its group."""

    CAUSE = "cause"
    CONTEXT = "context"
    GROUP = "group"


class Source(StrictValue):
    """Lines of a file around the one that ran.

    Attributes:
        first: number of the first of ``lines``, from 1.
    """

    first: Count
    lines: list[str]


class Frame(StrictValue):
    """One frame of a traceback.

    Attributes:
        line: where it was; 0 when Python did not know.
        own: it is the service's own code, not a library's.
        source: None when the file could not be read.
        locals: representations by name, bounded, without secrets; locals_cut: how many more there were.
    """

    file: str
    line: Count
    function: str
    module: str
    own: bool
    source: Source | None = None
    locals: dict[str, str] = {}
    locals_cut: Count = 0


class Link(StrictValue):
    """One exception of the chain; ``frames`` outermost first. ``relation`` is None for the one that escaped."""

    type: str
    text: str
    relation: Relation | None = Field(None, strict=False)
    frames: list[Frame]


class FailedRequest(StrictValue):
    """The request (or job) that was being handled.

    Attributes:
        number: as the recorder counts, in its process; not the proxy's number.
        server: "asgi", "wsgi", "aiohttp", "celery", "rq".
        peer: address and port of the client as the server saw it; [] when it did not.
        body: what had been read of it, as text; None when nothing was kept. body_cut: bytes that are missing at the end.
    """

    number: Count
    server: str
    method: str
    target: str
    peer: list[str | int] = []
    headers: list[tuple[str, str]] = []
    query: dict[str, str | list[str]] = {}
    path_params: dict[str, str] = {}
    body: str | None = None
    body_cut: Count = 0

    @property
    def is_job(self) -> bool:
        """Of a queue: no client sends it."""
        return self.server in ("rq", "celery")


class Versions(StrictValue):
    """Of Python, and of the packages that were loaded."""

    python: str
    packages: dict[str, str] = {}


class Revision(StrictValue):
    """The commit that was checked out where the service's code lies.

    Attributes:
        dirty: a tracked file differed from what git had of it when the first incident was kept; None: that could not be told.
    """

    commit: Hex
    dirty: bool | None = None
    root: str


class ErrorPackage(StrictValue):
    """See the module.

    Attributes:
        type: of the exception that escaped, "module.Class"; text: its message.
        fingerprint: equal for failures of the same type at the same place.
        pid: as the process sees itself; thread: its name; lane: see ``Event``.
        chain: the exception that escaped first, then what it came from.
        cut: sentences about what was left out.
    """

    version: Literal[1]
    type: str
    text: str
    fingerprint: Fingerprint
    where: Where = Field(strict=False)
    wall_ns: Count
    mono_ns: Count
    pid: Count
    thread: str
    lane: Count
    request: FailedRequest | None = None
    chain: list[Link] = Field(min_length=1)
    environment: dict[str, str] = {}
    versions: Versions
    revision: Revision | None = None
    argv: list[str] = []
    cwd: str = ""
    cut: list[str] = []

    def failing_frame(self) -> Frame | None:
        """The innermost frame of the service's own code, else the innermost one; None when there are none."""
        frames = self.chain[0].frames
        own = [frame for frame in frames if frame.own] or frames
        return own[-1] if own else None

    def short_path(self, file: str) -> str:
        """The file as seen from where the service's code lies."""
        for root in (self.revision.root if self.revision is not None else "", self.cwd):
            if root and root != "/" and PurePath(file).is_relative_to(root):
                return str(PurePath(file).relative_to(root))
        return file


def read_package(data: bytes) -> ErrorPackage:
    """Read an error package.

    Raises:
        RecordingCorrupt: it is none, or longer than ``MOST_BYTES``.
    """
    return read_recorded(ErrorPackage, data, MOST_BYTES, "an error package")
