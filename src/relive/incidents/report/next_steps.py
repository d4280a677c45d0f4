"""Which command leads on from an incident: only those that will not refuse, each with what it is for."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from relive.model.incident import ENDS, FailureKind, Incident
from relive.model.value import Value

__all__ = ["NextStep", "next_steps"]


class NextStep(Value):
    """A command, as it is typed, and what for; None where only words are left."""

    command: str | None
    why: str


def next_steps(
    incident: Incident,
    *,
    held: Collection[str],
    has_request: bool,
    has_handler: bool,
    can_reproduce: bool,
    has_earlier: bool = False,
    suffices: bool = False,
) -> list[NextStep]:
    """In the order in which they are worth trying.

    Args:
        held: ids of commits that the store has.
        has_request: the request that failed last is in the recording, and can be sent again; has_handler: the recorder inside saw
            one begin.
        can_reproduce: what ``relive reproduce`` needs is kept.
        has_earlier: the store has a commit of the same start of the service that is older than the one before it.
        suffices: ``relive reproduce`` has shown that the request alone brings it back: then no commit's state did, and
            none is searched.
    """
    replaying = list(_replay(incident, held, has_request=has_request))
    steps = [*replaying, *_debug(incident, held, has_handler=has_handler)]
    if can_reproduce:
        why = "try it in a fresh process, without any commit: tells whether the request alone suffices"
        if suffices:
            why = "it came back in a fresh process, so the request alone suffices: --checkout REVISION tries a fix"
        steps.append(NextStep(command=f"relive reproduce {incident.number}", why=why))
    if has_earlier and not suffices and has_request and any(one.command is not None for one in replaying):
        steps.append(
            NextStep(
                command=f"relive bisect --replay {incident.number}",
                why="if it needs the state: the first commit in which it fails, the requests before it, what they changed",
            )
        )
    if has_request and _is_judged(incident) and any(one.command is not None for one in replaying):
        steps.append(
            NextStep(
                command=f"relive why {incident.number}",
                why="what it is caused by: replays with answers, readings and earlier requests changed, until it goes away",
            )
        )
    if incident.sighting.kind in (FailureKind.HANG, FailureKind.SIGNAL):
        steps.sort(key=lambda one: "relive debug" not in (one.command or ""))
    return steps


def _replay(incident: Incident, held: Collection[str], *, has_request: bool) -> Iterator[NextStep]:
    occurrence = incident.occurrence(first=False)
    sighting = occurrence.sighting
    ends = sighting.kind in ENDS or sighting.exit_status is not None
    if occurrence.before is None:
        why = "no replay: there is no commit before it; `--every request` takes one before each request"
        yield NextStep(command=None, why=why)
    elif occurrence.before not in held:
        yield NextStep(command=None, why="no replay: the commit before it is no longer in the store")
    elif sighting.from_outside:
        yield NextStep(
            command=None, why="no replay: the signal came from outside of the service, so it cannot come back"
        )
    elif sighting.kind is FailureKind.EXCEPTION and not ends and sighting.request is None:
        why = "no replay: it did not happen in a request that the proxy recorded, and the service went on"
        yield NextStep(command=None, why=why)
    elif sighting.request is not None and not has_request:
        why = "no replay: the request is not in the recording any more, or was not kept whole"
        yield NextStep(command=None, why=why)
    else:
        yield NextStep(
            command=f"relive replay {incident.number}",
            why="does it happen again from the commit before it, in a sealed branch?",
        )


def _debug(incident: Incident, held: Collection[str], *, has_handler: bool) -> Iterator[NextStep]:
    sighting = incident.sighting
    if incident.at is not None and incident.at in held:
        if sighting.throw is not None:
            yield _step(incident, "a debugger in the frame that failed, with the real objects")
        elif sighting.kind is FailureKind.SIGNAL:
            yield _step(incident, "gdb where the signal struck")
        elif sighting.kind is FailureKind.HANG:
            yield _step(incident, "where each thread of the hanging service stood (Python stacks)")
    before = incident.occurrence(first=False).before
    if has_handler and _is_judged(incident) and before in held:
        yield NextStep(
            command=f"relive debug {incident.number} --at-request",
            why="a debugger where the service takes the request, to step towards the failure",
        )
    if sighting.throw is not None and _is_judged(incident) and before in held:
        yield NextStep(
            command=f"relive debug {incident.number} --step",
            why="forward and back through the request, line by line, from the line that failed",
        )


def _is_judged(incident: Incident) -> bool:
    """By the answer to a request."""
    sighting = incident.sighting
    return sighting.request is not None and sighting.kind not in (*ENDS, FailureKind.HANG)


def _step(incident: Incident, why: str) -> NextStep:
    return NextStep(command=f"relive debug {incident.number}", why=why)
