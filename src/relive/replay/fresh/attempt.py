"""One attempt: a sandbox with the right files in it, and the life of a fresh process there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from relive.config import Settings
from relive.errors import ReliveError
from relive.model.reproduction import Attempt, ReproductionKind
from relive.replay.fresh.attempt_plan import AttemptPlan, ReproduceOptions
from relive.replay.fresh.life import FreshLife, last_lines
from relive.replay.fresh.recorded_answers import write_answers
from relive.replay.fresh.sending import is_loopback
from relive.replay.fresh.tree import lay_tree
from relive.replay.fresh.watching import SandboxWatch
from relive.replay.ring_collector import BranchDrain
from relive.sandbox.fresh_process import (
    FreshProcessSpec,
    SandboxDirectory,
    prepared_place,
    start_fresh_process,
)

__all__ = ["attempt"]


def attempt(
    settings: Settings, plan: AttemptPlan, options: ReproduceOptions, number: int, tell: Callable[[str], None]
) -> Attempt:
    """Make one. Call it from a process with one thread.

    A service that does not start gives an attempt that says so.

    Args:
        tell: called with a sentence on what is being done.

    Raises:
        UsageError: a file cannot be laid; PermissionMissing; DiskFull, OSError: there is no room.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(prepared_place(settings))
        tell(f"Laying out {plan.tree.words}.")
        notes = lay_tree(plan.tree, place.laying)
        for path, source in options.databases.items():
            place.laying.file(source, path)
        has_request = plan.request is not None
        write_answers(plan.case, place.rings, options.on_miss, has_request=has_request)
        tell(f"Starting {' '.join(plan.start.command)} in a sealed sandbox.")
        watch = stack.enter_context(contextlib.closing(SandboxWatch()))
        try:
            sandbox = start_fresh_process(settings, place, _spec(plan, place), watch.begin)
        except ReliveError as error:
            return Attempt(
                number=number,
                kind=ReproductionKind.COULD_NOT_START,
                difference=f"{error.message}: {error.cause}" if error.cause else error.message,
                notes=[error.remedy] if error.remedy else [],
                log=last_lines(place),
                seconds=time.monotonic() - began,
            )
        with contextlib.closing(sandbox), contextlib.closing(BranchDrain(place.rings)) as drain:
            made = FreshLife(plan, options, sandbox, watch, drain, tell).live()
        return made.model_copy(
            update={"number": number, "notes": [*made.notes, *notes], "seconds": time.monotonic() - began}
        )


def _spec(plan: AttemptPlan, place: SandboxDirectory) -> FreshProcessSpec:
    start = plan.start
    address = start.address
    return FreshProcessSpec(
        command=start.command,
        directory=start.directory,
        environment=plan.environment,
        user=start.user,
        addresses=[address] if address is not None and not is_loopback(address) else [],
        hostname=f"reproduce-{place.directory.name}",
        memory=plan.case.memory,
    )
