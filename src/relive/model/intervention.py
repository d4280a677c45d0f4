"""Interventions as values: what was changed of a recording, and what replays with and without it showed."""

from __future__ import annotations

from enum import StrEnum

from relive.model.commit import CommitId
from relive.model.trial import FixRun
from relive.model.value import Value

__all__ = ["ChangeDescription", "Changeable", "Effect", "Experiment", "Explanation", "Tested"]


class Effect(StrEnum):
    """What became of the failure with a change."""

    GOES_AWAY = "goes away"
    STAYS = "stays"
    NOT_ASKED = "not asked"
    CANNOT_TELL = "cannot tell"


class ChangeDescription(Value):
    """One change.

    Attributes:
        option: as `relive what-if` takes it.
        about: what it is a change of, in words; recorded, instead: what was answered or done, and what was done instead.
    """

    option: str
    about: str
    recorded: str
    instead: str


class Tested(Value):
    """Changes that were made together, with the runs as recorded and the runs with them, from the same commit.

    Attributes:
        commit: from which both were replayed.
        why: in a sentence, where the effect is "not asked" or "cannot tell".
        unread: names of changed steps that a run did not ask for.
        still_there: probability that the failure is still there, as for a fix (``trial.findability``); None where nothing passed.
        enough: of a cause that is requests or messages left out: it fails as recorded with these alone of all that came since the
            commit, whose state may hold more that is needed; False: then it does not fail either, so others are needed, or their
            number; None: not tried, or nobody can tell, as where no others came since the commit.
    """

    changes: list[ChangeDescription]
    commit: CommitId
    effect: Effect
    why: str | None = None
    control: list[FixRun]
    runs: list[FixRun]
    unread: list[str] = []
    still_there: float | None = None
    enough: bool | None = None


class Changeable(Value):
    """Something that can be changed: ``name`` is that of a call or reading, or the number of a request."""

    name: str
    request: int
    kind: str
    what: str
    result: str


class Experiment(Value):
    """What `relive what-if` tried; without changes only what there is to be changed.

    Attributes:
        failing: the failing request, in words.
        tested: None where nothing was to be changed.
        afresh: the same for another environment: a process that was started anew.
        changeable: the first 500 of ``changeable_count``; empty where something was tested.
    """

    incident: int
    service: str
    failing: str
    commit: CommitId
    tested: Tested | None = None
    afresh: Tested | None = None
    changeable: list[Changeable] = []
    changeable_count: int = 0


class Explanation(Value):
    """What `relive why` found.

    Attributes:
        control: the unchanged replays from the commit before the failure.
        causes: changes with which the failure goes away, each the fewest of their kind; tried: what else was tried.
        compared_with: the good request that candidates come from, in words; None where there was none.
        lead: where no cause was found, the fewest requests without which it does not fail as recorded; nobody can tell whether it
            passes. None: there are none.
        sentence: the answer; why_not: why there is none, or not all of it.
        replays, seconds: what it took; most_replays, most_seconds: what it was allowed.
    """

    incident: int
    service: str
    failing: str
    commit: CommitId
    control: list[FixRun]
    causes: list[Tested]
    tried: list[Tested]
    compared_with: str | None
    lead: Tested | None = None
    sentence: str
    why_not: str | None
    replays: int
    seconds: float
    most_replays: int
    most_seconds: float
