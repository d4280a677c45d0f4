"""Ending what runs: branches, services in capsules, watches."""

from __future__ import annotations

from pydantic import Field

from relive.agent.capsule.lives import living_capsules
from relive.agent.capsule.stopping import STOP_LIMIT
from relive.config import Settings
from relive.model.signals import parse_signal
from relive.model.token_scope import Scope
from relive.operations.branches import Stopped
from relive.operations.branches import stop as stop_named
from relive.operations.operation import Effect, Faces, Operation, Params, Route, Tool
from relive.operations.progress import Progress
from relive.watching.life import living_watches

__all__ = ["STOP", "StopParams", "stop"]


class StopParams(Params):
    """What ends, and how."""

    names: list[str] = Field(
        default=[], description="Branches (ids), capsules (names), or what is watched (targets, names)"
    )
    all_branches: bool = Field(
        default=False,
        description="All branches, also those that have ended; no service and no watch, which --capsules and --watches name",
    )
    capsules: bool = Field(
        default=False, description="The services of all capsules of this RELIVE_HOME: they go down"
    )
    watches: bool = Field(default=False, description="All watches; what is watched runs on")
    signal: str | None = Field(
        default=None,
        description="The signal by which a capsule's service is asked to end; default: its --stop-signal, or TERM",
    )
    timeout: float = Field(
        default=STOP_LIMIT,
        ge=0,
        description="Seconds until what is left of a capsule's service is killed; 0: at once",
    )


def stop(settings: Settings, params: StopParams, progress: Progress) -> Stopped:
    """End them; raises UsageError, and as ``branches.stop``."""
    number = parse_signal(params.signal) if params.signal is not None else None
    capsules = [one.facts.spec.name for one in living_capsules(settings)]
    watches = [one.target for one in living_watches(settings)]
    names = [*params.names, *(capsules if params.capsules else []), *(watches if params.watches else [])]
    done = stop_named(
        settings,
        list(dict.fromkeys(names)),
        progress,
        every_branch=params.all_branches,
        number=number,
        limit=params.timeout,
    )
    if params.all_branches:
        _report_left(progress, "capsule", set(capsules) - set(names))
        _report_left(progress, "watch", set(watches) - set(names))
    return done


def _report_left(progress: Progress, what: str, left: set[str]) -> None:
    if left:
        plural = "watches" if what == "watch" else "capsules"
        runs = f"{plural} go on" if len(left) > 1 else f"{what} goes on"
        progress.status(f"{len(left)} {runs}: --all is for branches, --{plural} ends them too.")


STOP = Operation(
    "stop",
    StopParams,
    Stopped,
    stop,
    Faces(
        cli=("stop",),
        # A branch alone is ended by DELETE /branches/{branch}, for which `operate` is enough.
        rest=Route(
            "POST",
            "/stops",
            frozenset({Scope.HOST}),
            "End branches, services in capsules and watches of the server's host",
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "End branches, services in capsules, or watches. A service goes down; what is watched runs on.",
            is_for_host=True,
        ),
    ),
)
