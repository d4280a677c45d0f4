"""A branch as a value: one life of a commit in a sandbox."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from relive.model.commit import CommitId

__all__ = ["BranchFacts", "Clock", "Publication"]


class Clock(StrEnum):
    """What a branch sees as the wall clock; the monotonic clock always goes on from the commit."""

    RECORDED = "recorded"
    NOW = "now"


class Publication(BaseModel):
    """A port of the branch that can be reached from the host.

    Attributes:
        forwarder: host pid of the process that carries the bytes.
    """

    model_config = ConfigDict(frozen=True)

    host: str
    host_port: int
    port: int
    forwarder: int


class BranchFacts(BaseModel):
    """What is written into the branch's ``state.json``.

    Attributes:
        init: host pid of the branch's process 1; with ``init_started`` (clock ticks after boot) it names it for good.
        root: host pid of the restored tree's root.
        restore_us: microseconds from the request to the running branch.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    commit: CommitId
    name: str
    init: int
    init_started: int
    root: int
    clock: Clock
    created_wall_ns: int
    restore_us: int
    publications: list[Publication] = []
