"""``reproduce``: from what lies beside an incident alone, a fresh process of the service, the request, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.config import Settings
from relive.model.reproduction import Raised, Reproduction
from relive.reproduce.answers import ANSWERS
from relive.reproduce.attempt import attempt
from relive.reproduce.case import case_of
from relive.reproduce.command import start_for
from relive.reproduce.environment import environment_for
from relive.reproduce.plan import Plan, Wishes
from relive.reproduce.request import request_for
from relive.reproduce.tree import choose_tree

__all__ = ["What", "reproduce"]


@dataclass(frozen=True, slots=True)
class What:
    """What is reproduced, and as what.

    Attributes:
        directory: where the incident lies; None: among those of this host.
        command: in the place of the recorded one; empty: that.
        checkout: a revision of git, "." for the files as they are, None: the recorded one where it is there.
        environment: variables over the recorded ones.
        port: where the service listens; None: as recorded, else wherever it does.
    """

    incident: int
    directory: Path | None = None
    command: Sequence[str] = ()
    checkout: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    times: int = 1


def reproduce(
    settings: Settings,
    what: What,
    wishes: Wishes,
    tell: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Reproduction:
    """Do it, as often as wished, one after the other. Call it from a process with one thread.

    Raises:
        IncidentUnknown, PackageMissing: there is nothing to reproduce.
        RequestTruncated, UsageError: what is kept is not enough, or what was asked for is not there.
        RecordingCorrupt: what is kept cannot be read.
    """
    case = case_of(what.directory or settings.incidents, what.incident)
    request = request_for(case)
    start = start_for(case, what.command, what.port)
    made = environment_for(case.package, case.launch, settings, what.environment, ANSWERS)
    tree = choose_tree(case.package, start.directory, what.checkout)
    plan = Plan(case, start, request, made.variables, tree)
    attempts = []
    for number in range(1, what.times + 1):
        attempts.append(attempt(settings, plan, wishes, number, tell))
        progress(number)
    return Reproduction(
        service=case.incident.service,
        incident=what.incident,
        command=start.command,
        directory=start.directory,
        user=start.user,
        tree=tree,
        request=request.words if request is not None else None,
        recorded=Raised.of(case.package),
        recorded_status=case.recorded_status if request is not None else None,
        placeholders=made.placeholders,
        notes=[*start.notes, *made.notes, *(request.notes if request is not None else [])],
        attempts=attempts,
    )
