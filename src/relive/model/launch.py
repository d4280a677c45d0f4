"""How a service had been started, as it is kept beside an incident: what a fresh process of it needs besides its error package."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from relive.config import Settings
from relive.model.capsule import CapsuleSpec
from relive.model.recorded import read_recorded
from relive.model.text import NativeText
from relive.model.value import Value

__all__ = ["Launch", "launch_of", "read_launch"]

_MOST_BYTES = 4 << 20


class Launch(Value):
    """What ``relive run`` had been asked for, but for the environment, which the error package has without secrets.

    Attributes:
        user: name of the user it ran as; None: the one who ran Relive.
        address: where it listened itself (host, port), behind the proxy; None when nothing was said of that.
        ring, inline_limit, body_limit: bytes, record_not, secret_names, secret_patterns: settings of the recorder in it. With
            others a call would be described otherwise, and its recorded answer not be found.
    """

    version: Literal[1] = 1
    command: list[NativeText] = Field(min_length=1, max_length=10_000)
    directory: NativeText
    user: str | None = None
    address: tuple[str, int] | None = None
    ring: int = Field(4 << 20, ge=1 << 16, le=1 << 30)
    inline_limit: int = Field(64 << 10, ge=0, le=1 << 30)
    body_limit: int = Field(16 << 20, ge=0, le=1 << 40)
    record_not: list[str] = []
    secret_names: list[str] = []
    secret_patterns: list[str] = []


def launch_of(spec: CapsuleSpec, settings: Settings) -> Launch:
    """How the service of a capsule was started, with these settings of its recorder."""
    return Launch(
        command=spec.command,
        directory=spec.directory,
        user=spec.user,
        address=spec.upstream,
        ring=settings.ring,
        inline_limit=settings.inline_limit,
        body_limit=settings.body_limit,
        record_not=settings.record_not,
        secret_names=settings.secret_names,
        secret_patterns=settings.secret_patterns,
    )


def read_launch(data: bytes) -> Launch:
    """Read it; raises RecordingCorrupt when it is none."""
    return read_recorded(Launch, data, _MOST_BYTES, "how a service had been started")
