"""What every attempt of a reproduction does, and how."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from relive.model.reproduction import Tree
from relive.replay.fresh.command import StartCommand
from relive.replay.fresh.evidence import FreshInput
from relive.replay.fresh.request import SentRequest

__all__ = ["AttemptPlan", "ReproduceOptions"]


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """How to reproduce.

    Attributes:
        ignore: parts of events that may differ, see ``replay.sequence.first_differing_event``.
        limit: seconds until the service listens, and again until its answer is whole (or the program has ended).
        on_miss: kind of event, or "*", to "fail" or "pass": what becomes of a call in the request without a recorded answer.
        databases: path in the sandbox to the file that is laid over it.
    """

    ignore: Collection[str] = ()
    limit: float = 30.0
    on_miss: Mapping[str, str] = field(default_factory=dict)
    databases: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """What every attempt does.

    Attributes:
        request: what is sent; None: the program is only run.
        environment: all variables, the recorder's own among them.
    """

    case: FreshInput
    start: StartCommand
    request: SentRequest | None
    environment: Mapping[str, str]
    tree: Tree
