"""``debug``: a branch in which the thread that failed opens a debugger, at the failure or where its request begins.

The thread that stood still while it was committed (``failure/waiting.py`` of the recorder) finds an order in its branch's directory
of rings, and opens pdb on the frames of its exception: the process itself, with everything that was in it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.errors import RefUnknown, UsageError
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import CommitId
from relive.model.incident import FailureKind, Incident
from relive.recording.rings import RingMode
from relive.replay.debug.outcome import Sending
from relive.replay.debug.steering import hold_parents
from relive.replay.debug.terminal import DebugLine
from relive.replay.debug.watching import BranchWatch
from relive.replay.replay_input import ReplayInput, case_of_incident, open_in_commit
from relive.replay.replay_options import ReplayOptions, answers_for
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.sandbox.branch import Branch
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

__all__ = [
    "Debugged",
    "at_failure",
    "at_request",
    "case_in_request",
    "has_waiting_thread",
    "restore_for",
    "restored",
    "send_in",
]

_OPENS = 30.0  # [s] from the branch's first moment to the debugger's socket


@dataclass(slots=True)
class Debugged:
    """A branch, and the line to the debugger in it.

    Attributes:
        sending: whoever waits for the answer to the request; None where it did not fail in one that the proxy recorded.
    """

    branch: Branch
    line: DebugLine
    sending: Sending | None


def has_waiting_thread(incident: Incident) -> bool:
    """The commit at its moment holds a thread that waits at the place of failure."""
    return incident.at is not None and incident.sighting.throw is not None


def restored(settings: Settings, store: Store, incident: Incident) -> Branch:
    """A branch of the commit at an incident's moment, without a debugger; the caller stops it, or keeps it.

    Raises:
        RefUnknown: there is no such commit; else as ``restore``.
    """
    return restore(settings, store, _commit_at(incident), RestoreRequest(is_owned=True))


def _commit_at(incident: Incident) -> CommitId:
    if incident.at is None:
        raise RefUnknown(
            f"incident {incident.number} has no commit at its moment",
            cause="commits at failures are limited in number, or this one failed; the agent's log says which",
            remedy=f"`relive debug --at-request {incident.number}` begins before the failing request",
        )
    return incident.at


def _process_of(throw: str) -> int:
    """As the branch numbers it: ``throw-PID-N``."""
    return int(throw.split("-")[1])


@contextlib.contextmanager
def at_failure(
    settings: Settings, store: Store, incident: Incident, *, keep: bool = False
) -> Iterator[Debugged]:
    """Restore the commit at the failure, with the debugger open in the failing frame. The branch is the caller's to stop or, with
    ``keep``, to keep.

    Raises:
        RefUnknown: there is no such commit; UsageError: no thread waits in it; else as ``restore``.
        DebuggerSilent: the thread did not open a debugger; the branch is gone then.
    """
    commit, throw = _commit_at(incident), incident.sighting.throw
    if throw is None:
        raise UsageError(
            f"in the commit of incident {incident.number} no thread waits at the place of failure",
            remedy=f"`relive debug --at-request {incident.number}` begins before the failing request",
        )
    order = throw.replace("throw-", "debug-", 1)
    open_request = open_in_commit(settings, store, incident, commit)
    with contextlib.closing(BranchWatch(outlived=keep, is_answered=False)) as watch:
        branch = restore(
            settings,
            store,
            commit,
            RestoreRequest(
                is_owned=True,
                lay_beside=lambda rings: (rings / order).touch(),
                answered=open_request.plan.answered if open_request is not None else frozenset(),
                connects=watch.connects,
            ),
        )
        sending = None
        if open_request is not None:
            watch.begin(branch, open_request.manifest)
            sending = Sending(
                *(branch, open_request.manifest, open_request.plan, open_request.recorded, watch),
                usual=open_request.usual,
            )
        hold_parents(branch.facts.root, _process_of(throw))
        with _line(branch, branch.rings / f"{order}.sock", lambda: branch.is_alive) as line:
            yield Debugged(branch, line, sending)


@contextlib.contextmanager
def at_request(
    settings: Settings, store: Store, incident: Incident, *, keep: bool = False
) -> Iterator[Debugged]:
    """Restore the commit before the failing request, send the recorded ones again, with the debugger open where it begins.

    Raises:
        UsageError: it did not happen in a request that was recorded; else as ``case_of_incident`` and ``restore``.
        DebuggerSilent: the request came to no code of the service; the branch is gone then.
    """
    case = case_in_request(settings, store, incident)
    subject = next(step.exchange for step in case.plan.steps if step.exchange.number == case.plan.subject)
    answers = answers_for(case, ReplayOptions())
    with contextlib.closing(BranchWatch(outlived=keep, is_answered=answers is not None)) as watch:
        branch, stage = restore_for(settings, store, case, watch)
        order = branch.rings / "debug-request"
        request = json.dumps({"method": subject.method, "target": subject.target})

        def lay_order() -> None:
            if case.inside is not None:
                hold_parents(branch.facts.root, case.inside[0])
            replace_file(order, request.encode(), durability=Durability.NONE, mode=0o644)

        sending = send_in(branch, case, watch, stage, lay_order)
        with _line(branch, Path(f"{order}.sock"), sending.is_alive) as line:
            yield Debugged(branch, line, sending)


def case_in_request(settings: Settings, store: Store, incident: Incident) -> ReplayInput:
    """What is replayed where a debugger follows the request that failed, from the latest time that it did.

    Raises:
        UsageError: it did not happen in a request that was recorded; else as ``case_of_incident``.
    """
    occurrence = incident.occurrence(first=False)
    case = case_of_incident(settings, store, incident, occurrence)
    number = occurrence.sighting.request
    subject = next((step.exchange for step in case.plan.steps if step.exchange.number == number), None)
    if number is None or subject is None or incident.sighting.kind is FailureKind.HANG:
        raise UsageError(
            f"incident {incident.number} did not happen in one recorded request",
            remedy=f"`relive debug {incident.number}` opens the commit at the failure",
        )
    return replace(case, plan=replace(case.plan, subject=number))


def restore_for(
    settings: Settings, store: Store, case: ReplayInput, watch: BranchWatch
) -> tuple[Branch, StubLifecycle]:
    """A branch of the commit before a request, that is answered as recorded; nothing is sent yet. Raises as ``restore``."""
    answers = answers_for(case, ReplayOptions())
    stage = StubLifecycle(case.stubs)
    branch = restore(
        settings,
        store,
        case.commit,
        RestoreRequest(
            is_owned=True,
            recorder=RingMode.FREE if answers is None else RingMode.REPLAY,
            lay_beside=None if answers is None else answers.lay,
            outside=stage.outside,
            answered=case.plan.answered,
            connects=watch.connects,
        ),
    )
    watch.begin(branch, case.manifest, case.unrecorded)
    return branch, stage


def send_in(
    branch: Branch,
    case: ReplayInput,
    watch: BranchWatch,
    stage: StubLifecycle,
    on_subject: Callable[[], None] = lambda: None,
) -> Sending:
    """Send a branch of ``restore_for`` the recorded requests."""
    return Sending(branch, case.manifest, case.plan, case.recorded, watch, on_subject, stage, case.usual)


@contextlib.contextmanager
def _line(branch: Branch, path: Path, goes_on: Callable[[], bool]) -> Iterator[DebugLine]:
    try:
        line = DebugLine.open(path, _OPENS, goes_on)
    except BaseException:
        branch.stop()
        raise
    try:
        yield line
    finally:
        line.close()
