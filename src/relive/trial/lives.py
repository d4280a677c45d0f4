"""One life of a branch with other code: restored, changed, asked, judged, gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.config import Settings
from relive.errors import KeptInvalid
from relive.model.outcome import Outcome, Run
from relive.model.trial import Swapped
from relive.replay.replay import replay
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.sandbox.branch import Branch
from relive.store import Store
from relive.trial.source import SourceChange, read_in_branch
from relive.trial.swapping import change_code, loaded_files

__all__ = ["Change", "TrialLife", "live_once", "with_files_here"]

Change = Callable[[Branch], Swapped]


@dataclass(frozen=True, slots=True)
class TrialLife:
    """What came of one.

    Attributes:
        swapped: what it was given; None where nothing was to be, or it could not be restored.
        others: how the other requests ended, by their numbers.
    """

    run: Run
    swapped: Swapped | None = None
    others: Mapping[int, Outcome] = field(default_factory=dict)


def live_once(
    settings: Settings,
    store: Store,
    case: ReplayInput,
    options: ReplayOptions,
    change: Change | None = None,
    number: int = 1,
) -> TrialLife:
    """Replay a case once, with a change of its branch before anything is sent.

    Call it from a process with one thread.

    Raises:
        PatchUnfit, RestoreFailed, UsageError: the change cannot be made; the branch is gone.
    """
    changed: list[Swapped] = []
    heard: dict[int, Outcome] = {}

    def carry_out(branch: Branch) -> None:
        options.changes(branch)
        if change is not None:
            changed.append(change(branch))

    def hear(others: Mapping[int, Outcome]) -> None:
        heard.update(others)
        options.hears(others)

    once = replace(options, times=1, jobs=1, changes=carry_out, hears=hear)
    (run,) = asyncio.run(replay(settings, store, case, once)).runs
    return TrialLife(run.model_copy(update={"number": number}), changed[0] if changed else None, heard)


def with_files_here(places: Sequence[tuple[str, Path]]) -> Change:
    """A change that gives a branch the files of this host for those that it has loaded.

    Args:
        places: (directory of the service, directory of this host) each.

    The change raises KeptInvalid where no loaded file is in any of them: a test would say nothing of the code here.
    """

    def change(branch: Branch) -> Swapped:
        changes = []
        for path in loaded_files(branch):
            here = _place_here(path, places)
            if here is None:
                continue
            try:
                text = here.read_text()
            except (OSError, UnicodeDecodeError):
                continue  # it is not there any more: the state keeps what it has
            before = read_in_branch(branch.facts.root, path)
            # Of a branch that sees this host's own files these are new already, and tell nothing of what it runs.
            changes.append(SourceChange(path, before if before != text else None, text))
        if not changes:
            listed = ", ".join(f"{at} ({here})" for at, here in places)
            raise KeptInvalid(
                "none of the service's code is tried",
                cause=f"no file that it has loaded lies in {listed} and is here, too",
                remedy="correct `code` in the kept file: `at` is where the service has its files, `here` where they are now",
            )
        return change_code(branch, changes)

    return change


def _place_here(path: str, places: Sequence[tuple[str, Path]]) -> Path | None:
    for at, here in places:
        if path.startswith(at.rstrip("/") + "/"):
            return here / path.removeprefix(at.rstrip("/") + "/")
    return None
