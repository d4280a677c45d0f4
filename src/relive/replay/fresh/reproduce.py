"""``reproduce``: from what lies beside an incident alone, a fresh process of the service, the request, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.config import Settings
from relive.model.outcome import Outcome
from relive.model.reproduction import Attempt, Reproduction
from relive.replay.fresh.attempt import attempt
from relive.replay.fresh.attempt_plan import AttemptPlan, ReproduceOptions
from relive.replay.fresh.command import start_for
from relive.replay.fresh.environment import environment_for
from relive.replay.fresh.evidence import FreshInput, case_of
from relive.replay.fresh.recorded_answers import ANSWERS
from relive.replay.fresh.request import request_for
from relive.replay.fresh.tree import choose_tree
from relive.replay.fresh.unpackaged import EnvironmentOf, unpackaged_input
from relive.replay.verdict import outcome_words

__all__ = ["PreparedReproduction", "What", "prepare", "reproduce"]


@dataclass(frozen=True, slots=True)
class What:
    """What is reproduced, and as what.

    Attributes:
        directory: where the incident lies; None: among those of this host.
        command: in the place of the recorded one; empty: that.
        checkout: a revision of git, "." for the files as they are, None: the recorded one where it is there.
        environment: variables over the recorded ones.
        port: where the service listens; None: as recorded, else wherever it does.
        times: number of attempts.
    """

    incident: int
    directory: Path | None = None
    command: Sequence[str] = ()
    checkout: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class PreparedReproduction:
    """What is going to be reproduced: ``plan`` for every attempt, and what is known of the whole before the first one."""

    plan: AttemptPlan
    times: int
    whole: Reproduction


def prepare(settings: Settings, what: What, committed: EnvironmentOf) -> PreparedReproduction:
    """Gather what is kept of the failure, and decide what is started.

    Args:
        committed: as for ``unpackaged_input``.

    Raises:
        IncidentUnknown, PackageMissing: there is nothing to reproduce.
        RequestTruncated, UsageError: what is kept is not enough, or what was asked for is not there.
        RecordingCorrupt: what is kept cannot be read.
    """
    case = case_of(
        what.directory or settings.incidents,
        what.incident,
        lambda incident: unpackaged_input(settings, incident, committed),
    )
    request = request_for(case)
    start = start_for(case, what.command, what.port)
    made = environment_for(_recorded_environment(case), case.launch, settings, what.environment, ANSWERS)
    tree = choose_tree(case.package, start.directory, what.checkout)
    whole = Reproduction(
        service=case.incident.service,
        incident=what.incident,
        command=start.command,
        directory=start.directory,
        user=start.user,
        tree=tree,
        request=request.words if request is not None else None,
        recorded=case.raised,
        recorded_status=case.recorded_status if request is not None else None,
        recorded_end=_ended_words(case.ended) if case.ended is not None else None,
        placeholders=made.placeholders,
        notes=[*start.notes, *made.notes, *(request.notes if request is not None else [])],
        attempts=[],
    )
    return PreparedReproduction(AttemptPlan(case, start, request, made.variables, tree), what.times, whole)


def _ended_words(ended: Outcome) -> str:
    stack = f", and its log has {ended.stack.exception}" if ended.stack is not None else ""
    return f"no exception was seen from inside, {outcome_words(ended)}{stack}"


def reproduce(
    settings: Settings,
    prepared: PreparedReproduction,
    options: ReproduceOptions,
    tell: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int], None] = lambda _done: None,
    *,
    had: Collection[Attempt] = (),
    ended: Callable[[Attempt], None] = lambda _attempt: None,
) -> Reproduction:
    """Do it, as often as asked, one after the other. Call it from a process with one thread.

    Args:
        tell: called with sentences on what is being done.
        progress: called with the number of attempts that are done.
        had: attempts that were made before; they count, and only the others are made.
        ended: called with each attempt as soon as it has ended; what it raises ends the reproduction.
    """
    attempts = {one.number: one for one in had}
    if attempts:
        progress(len(attempts))
    for number in range(1, prepared.times + 1):
        if number in attempts:
            continue
        attempts[number] = attempt(settings, prepared.plan, options, number, tell)
        ended(attempts[number])
        progress(len(attempts))
    return prepared.whole.model_copy(update={"attempts": [attempts[number] for number in sorted(attempts)]})


def _recorded_environment(case: FreshInput) -> Mapping[str, str]:
    return case.package.environment if case.package is not None else case.environment
