"""Replays under varied schedules, until one ends otherwise or it is sure enough that few do."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.incidents.report.outcomes import masked_replay, masked_run
from relive.intervention.chaos import ChaosSearch, Found
from relive.intervention.living import Bounds
from relive.intervention.schedules import clean_runs_wanted, rate_below
from relive.intervention.swaps import words_at
from relive.intervention.varying import Variation, VariedRun
from relive.kernel import procfs
from relive.model.chaos import Chaos, Delay
from relive.model.outcome import Replay
from relive.model.token_scope import Scope
from relive.operations.bisect_params import BisectParams
from relive.operations.bisecting import bisect
from relive.operations.operation import Effect, Faces, Operation, Route, Tool
from relive.operations.policies import (
    IgnoredDifferences,
    MissPolicies,
    RequestLimit,
    SentPace,
    check_ignore,
    parse_stub_policy,
)
from relive.operations.progress import Progress
from relive.operations.replays import ReplayedMoment, case_of_moment, look_up_moment
from relive.operations.runs import save_replay
from relive.operations.targets import tend
from relive.replay.branch_supply import lasting_branches
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import outcome_words
from relive.store import Store

__all__ = ["CHAOS", "ChaosParams", "chaos"]

_MOST_DELAYS = 100  # that are told


class ChaosParams(ReplayedMoment):
    """What is replayed under varied schedules, and when that is enough."""

    seed: int = Field(
        default=1, ge=1, le=(1 << 53) - 1, description="The first seed; the next ones follow it"
    )
    rate: float = Field(
        default=0.05,
        ge=0.001,
        le=0.5,
        description="Stop once it is so sure that fewer than this share of schedules ends otherwise",
    )
    confidence: float = Field(default=0.95, ge=0.5, le=0.9999, description="How sure")
    most: int = Field(
        default=300, ge=3, le=100_000, description="At most so many replays, each in a branch of its own"
    )
    within: float = Field(
        default=600, gt=0, le=86_400, description="Seconds after which no further replay begins"
    )
    pace: SentPace = Pace.RECORDED
    ignore: IgnoredDifferences = Field(default=[])
    on_miss: MissPolicies = Field(default=[])
    limit: RequestLimit = None


def chaos(settings: Settings, params: ChaosParams, progress: Progress) -> Chaos:
    """Replay under one schedule after another; secrets are masked in what is told.

    Raises:
        UsageError: what is asked for cannot be meant.
        IncidentUnknown, RefUnknown, RecordingError, StoreError: there is nothing that could be replayed.
        RestoreFailed: a process of a branch could not be given a schedule.
    """
    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    case = case_of_moment(settings, store, params)
    options = ReplayOptions(
        ignore=tuple(check_ignore(text) for text in params.ignore),
        on_miss=dict(parse_stub_policy(text) for text in params.on_miss),
        limit=params.limit,
        pace=params.pace,
        sees=lambda root: mask.learn_environment(procfs.environment_of(root)),
    )
    bounds = Bounds(params.most, params.within)
    wanted = clean_runs_wanted(params.rate, params.confidence)
    began_wall_ns = time.time_ns()
    with progress.progress("replaying", params.most) as done, lasting_branches(settings, store) as supply:
        options = replace(options, supply=supply)
        lab = Variation(
            settings, store, case, options, bounds, lambda run: mask.model(masked_run(run, mask)), done
        )
        earlier = _Earlier(lab, params, progress)
        search = ChaosSearch(lab, wanted, progress.status, earlier)
        search.run(params.seed)
    found = _answer_of(earlier.case or case, search, bounds, params)
    if earlier.case is not None:
        found = found.model_copy(update={"harmed": case.commit})
        case = earlier.case
    if search.found is not None:
        number = _store_runs(settings, case, search.found, mask, began_wall_ns, bounds.spent)
        found = found.model_copy(update={"run": number})
    found = mask.model(found)
    return found.model_copy(update={"sentence": _sentence(found)})


CHAOS = Operation(
    "chaos",
    ChaosParams,
    Chaos,
    chaos,
    Faces(
        cli=("replay",),
        rest=Route(
            "POST",
            "/chaos",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Replay under varied schedules until one ends otherwise, and narrow it to the delays that do it",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "Replay a failure, or a request that went well, under varied schedules (delays at events, held-back requests, thread "
            "switching) until one ends otherwise; narrowed to the fewest delays, with the pair of events that changed places.",
        ),
    ),
    look_up=look_up_moment,
)


@dataclass(slots=True)
class _Earlier:
    """What is asked where it fails each time; ``case``: of the earlier commit, once it was looked for and found."""

    lab: Variation
    params: ChaosParams
    progress: Progress
    case: ReplayInput | None = None

    def __call__(self) -> Variation | None:
        self.case = _before_the_harm(self.lab, self.params, self.progress)
        return replace(self.lab, case=self.case) if self.case is not None else None


def _before_the_harm(lab: Variation, params: ChaosParams, progress: Progress) -> ReplayInput | None:
    """From the commit before the one in which the failing request alone begins to fail; None where there is none."""
    if params.request is not None or params.first or lab.case.incident is None:
        return None
    progress.status("It fails each time: looking for an earlier commit, from before the harm was done.")
    try:
        found = bisect(lab.settings, BisectParams(replay=lab.case.incident, further=0), progress)
    except UsageError:  # no commit before the nearest
        return None
    begins = [jump for jump in found.jumps if jump.begins]
    if not begins:
        return None
    commit = begins[-1].before.commit
    incident = Incidents(lab.settings.incidents).get(lab.case.incident)
    occurrence = incident.occurrence(first=False).model_copy(update={"before": commit})
    case = case_of_incident(lab.settings, lab.store, incident, occurrence)
    progress.status(
        f"From commit {commit[:10]} on: {len(case.plan.steps) - 1} requests come before the failing one."
    )
    return case


def _answer_of(case: ReplayInput, search: ChaosSearch, bounds: Bounds, params: ChaosParams) -> Chaos:
    found = search.found
    sure = found is None and search.clean > 0 and search.why_not is None
    return Chaos(
        service=case.service,
        incident=case.incident,
        request=case.plan.subject,
        commit=case.commit,
        plain=[bool(one.fails) for one in search.plain],
        tried=search.tried,
        clean=search.clean,
        seed=found.schedule.seed if found is not None else None,
        varied=found.schedule.words if found is not None else None,
        result=_result(found.other) if found is not None else None,
        narrowed=found is not None and found.narrowed,
        delays=_delays(found) if found is not None else [],
        again=found.again if found is not None else None,
        swap=found.swap if found is not None else None,
        rate_below=rate_below(search.clean, params.confidence) if sure else None,
        confidence=params.confidence,
        why_not=search.why_not,
        replays=bounds.replays,
        seconds=bounds.spent,
        sentence="",
    )


def _result(lived: VariedRun) -> str:
    outcome = lived.run.outcome
    assert outcome is not None
    words = outcome_words(outcome)
    return f"{words}: {outcome.stack.exception}" if outcome.stack is not None else words


def _delays(found: Found) -> list[Delay]:
    return [
        Delay(place=place, ms=round(ms, 1), at=_at(found, place))
        for place, ms in list(found.delays.items())[:_MOST_DELAYS]
    ]


def _at(found: Found, place: str) -> str:
    if place.startswith("request:"):
        return f"before request {place.partition(':')[2]}"
    return words_at(found.other.order, place)


def _store_runs(
    settings: Settings, case: ReplayInput, found: Found, mask: Mask, began_wall_ns: int, seconds: float
) -> int:
    """As a run of two: the usual end first, so that they can be compared."""
    runs = [
        one.run.model_copy(update={"number": number})
        for number, one in enumerate((found.usual, found.other), 1)
    ]
    result = Replay(
        service=case.service,
        incident=case.incident,
        request=case.plan.subject,
        commit=case.commit,
        recorded=case.recorded,
        unrecorded=list(case.unrecorded),
        runs=runs,
        prepare_seconds=case.prepare_seconds,
        changed=[f"schedule of seed {found.schedule.seed} (the second run)"],
    )
    return save_replay(settings, mask.model(masked_replay(result, mask)), began_wall_ns, seconds)


def _sentence(chaos: Chaos) -> str:
    usual = "fails" if chaos.plain and all(chaos.plain) else "passes"
    other = "passes" if usual == "fails" else "fails"
    if chaos.seed is not None:
        again = f"; again in {chaos.again[0]} of {chaos.again[1]} replays" if chaos.again is not None else ""
        if len(set(chaos.plain)) > 1:
            usual = f"failed in {sum(chaos.plain)} of {len(chaos.plain)} replays"
        return f"under no schedule it {usual}, with seed {chaos.seed} it {other}{again}"
    if chaos.rate_below is not None:
        return (
            f"it {usual} under {chaos.clean} of {chaos.tried} schedules: with {chaos.confidence:.0%} confidence fewer than "
            f"{chaos.rate_below:.1%} of schedules make it end otherwise (each rate as likely as any other before)"
        )
    failed, passed = sum(chaos.plain), len(chaos.plain) - sum(chaos.plain)
    plain = f"under no schedule it failed in {failed} of {failed + passed} replays, " if chaos.plain else ""
    return f"nobody can tell: {plain}{chaos.clean} of {chaos.tried} schedules ended so, too; {chaos.why_not}"
