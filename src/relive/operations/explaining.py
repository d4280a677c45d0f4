"""Why it failed, found by search: the fewest changes of the recording with which the failure goes away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from relive.config import Settings
from relive.errors import RecordingError
from relive.incidents.incidents import Incidents
from relive.incidents.report.earlier import last_good, near_good_ones
from relive.incidents.report.handled import handled
from relive.incidents.report.masking import mask_for
from relive.intervention.candidates import candidates
from relive.intervention.grammar import AnswerChange
from relive.intervention.judging import counted, fails_as_recorded, is_now_and_then
from relive.intervention.living import Bounds, Lab
from relive.intervention.schedules import clean_runs_wanted, rate_below
from relive.intervention.searching import RATE_RUNS, Scene, Search, earlier_cases
from relive.intervention.steps import Step, steps_of, steps_of_request
from relive.intervention.telling import request_words
from relive.model.commit import CommitId
from relive.model.intervention import Explanation, Tested
from relive.model.life_paths import LifePaths
from relive.model.token_scope import Scope
from relive.model.trial import FixRun
from relive.operations.interventions import ReplayWithChanges, commits_before, lab_of
from relive.operations.named import look_up_incident
from relive.operations.operation import Effect, Faces, Operation, Route, Tool
from relive.operations.policies import SentPace
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.protocols.call import Call
from relive.protocols.egress_window import read_egress
from relive.protocols.registry import ProtocolRegistry
from relive.recording.dialogues import Tls
from relive.recording.exchanges import Exchange
from relive.recording.reader import Recording
from relive.replay.plan import Pace
from relive.replay.replay_input import ReplayInput, case_of_incident
from relive.store import Store

__all__ = ["WHY", "WhyParams", "sentence_of", "why"]

_SELDOM, _SURE = 0.05, 0.95  # a rate of failure that more replays would show, and how surely
_ENOUGH = {
    True: " No other request since commit {commit} is needed, given the state that it holds.",
    False: " Others since commit {commit} are needed, too, or their number.",
    None: " Whether more is needed, of the state of commit {commit} or since, is not known.",
}
_NAMES = {
    "answers": "answers of dependencies",
    "clock": "readings of the clock",
    "random": "readings of chance",
}


class WhyParams(ReplayWithChanges):
    """Which failure is explained, and what that may cost."""

    most: int = Field(
        default=100, ge=2, le=10_000, description="At most so many replays, each in a branch of its own"
    )
    within: float = Field(
        default=600, gt=0, le=86_400, description="Seconds after which no further replay begins"
    )
    pace: SentPace = Pace.FAST


def why(settings: Settings, params: WhyParams, progress: Progress) -> Explanation:
    """Search for the changes of a failure's recording with which it goes away; secrets are masked in what is told.

    Raises:
        IncidentUnknown, RefUnknown, RecordingError, StoreError, UsageError: there is nothing that could be replayed.
    """
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(params.incident)
    occurrence = incident.occurrence(first=params.first)
    case = case_of_incident(settings, store, incident, occurrence)
    mask = mask_for(settings, incident.service, incident.life)
    paths = LifePaths(settings.capsules / incident.service / incident.life)
    bounds = Bounds(params.most, params.within)

    def case_from(commit: str) -> ReplayInput:
        earlier = occurrence.model_copy(update={"before": CommitId(commit)})
        return case_of_incident(settings, store, incident, earlier)

    with progress.progress("replaying", params.most) as done:
        lab = lab_of(settings, store, params, params.pace, mask, bounds, done)
        control = _control(lab, case, min(params.times, params.most), params.most)
        search = Search(
            lab, params.times, progress.status, lambda scene, number: _answers_of(paths, scene, number)
        )
        search.varies = is_now_and_then(control)
        good: Exchange | None = None
        if search.varies or all(map(fails_as_recorded, control)):
            steps = steps_of(case)
            good, groups = _groups(paths, case, steps, search.notes)
            commits = [one.id for one in commits_before(store, incident, store.get(case.commit))]
            search.run(Scene(case, steps, control), groups, earlier_cases(commits, case_from))
    explanation = Explanation(
        incident=incident.number,
        service=incident.service,
        failing=request_words(case),
        commit=case.commit,
        control=control,
        causes=search.causes,
        tried=search.tried,
        compared_with=f"request {good.number} ({good.method} {good.target})" if good is not None else None,
        lead=search.lead,
        sentence="",
        why_not=_why_not(control, search),
        replays=bounds.replays,
        seconds=bounds.spent,
        most_replays=params.most,
        most_seconds=params.within,
    )
    return mask.model(explanation.model_copy(update={"sentence": sentence_of(explanation)}))


WHY = Operation(
    "why",
    WhyParams,
    Explanation,
    why,
    Faces(
        cli=("why",),
        rest=Route(
            "POST",
            "/explanations",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Find the changes of a failure's recording with which it goes away, proved by replays",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "Find what a failure is caused by, proved by replays in sealed branches: the fewest answers, rows, readings or earlier "
            "requests without which it does not fail. `why_not` says what could not be told; that is an answer, too.",
        ),
    ),
    look_up=look_up_incident,
)


def _control(lab: Lab, case: ReplayInput, times: int, most: int) -> list[FixRun]:
    """Unchanged replays; more of them where it does not fail each time, since the rate counts then."""
    control = lab.unchanged(case, times)
    passes = [run for run in control if run.fails is False]
    if passes and all(run.fails is False or fails_as_recorded(run) for run in control):
        more = min(RATE_RUNS, most) - len(control)
        control += lab.unchanged(case, more) if more > 0 else []
    return control


def _groups(
    paths: LifePaths, case: ReplayInput, steps: Sequence[Step], notes: list[str]
) -> tuple[Exchange | None, list[tuple[str, list[AnswerChange]]]]:
    """(the last good request to its route, groups of changes that make the failing one like it)."""
    if case.exchange is None:
        return None, []
    try:
        good, found = _like_a_good_one(
            paths, case.exchange, [one for one in steps if one.name.request is None]
        )
    except RecordingError as error:
        notes.append(f"the last good request to its route cannot be read: {error}")
        return None, []
    if good is None:
        notes.append(
            "no request to the same route went well before, so its answers and readings are compared with nothing"
        )
    return good, [(_NAMES[name], changes) for name, changes in found.items()]


def _answers_of(paths: LifePaths, scene: Scene, number: int) -> list[AnswerChange]:
    """Changes that make an earlier request's answers like those of the last good one to its route before it."""
    exchange = next((one.exchange for one in scene.case.plan.steps if one.exchange.number == number), None)
    if exchange is None:
        return []
    try:
        _, found = _like_a_good_one(paths, exchange, [one for one in scene.steps if one.request == number])
    except RecordingError:
        return []
    return found.get("answers", [])


def _like_a_good_one(
    paths: LifePaths, exchange: Exchange, steps: Sequence[Step]
) -> tuple[Exchange | None, dict[str, list[AnswerChange]]]:
    """(the last request to its route that went well before, or else of a near one; changes of steps to what that one had).

    Of near ones it is the latest that asked the like, so that a health check does not hide them; or else the latest.
    """
    recording = Recording(paths.recording)
    good = last_good(recording, exchange)
    if good is not None:
        return good, candidates(steps, _steps_of(paths, good))
    latest: tuple[Exchange | None, dict[str, list[AnswerChange]]] = None, {}
    for near in near_good_ones(recording, exchange):
        found = candidates(steps, _steps_of(paths, near))
        if found["answers"]:
            return near, found
        latest = latest if latest[0] is not None else (near, found)
    return latest


def _steps_of(paths: LifePaths, good: Exchange) -> list[Step]:
    return steps_of_request(good, handled(Recording(paths.inside), good).events, list(_calls(paths, good)))


def _calls(paths: LifePaths, exchange: Exchange) -> Iterator[Call]:
    """Of the border, while a request was served."""
    ended = exchange.ended_mono_ns or exchange.started_mono_ns
    egress = read_egress(paths.egress, exchange.started_mono_ns, ended)
    protocols = ProtocolRegistry()
    for dialogue in egress.dialogues if egress is not None else ():
        if dialogue.error is None and dialogue.tls is not Tls.CLOSED and dialogue.pieces:
            for call in protocols.protocol_of(dialogue).calls(dialogue):
                if exchange.started_mono_ns <= call.asked_mono_ns <= ended:
                    yield call


def _why_not(control: Sequence[FixRun], search: Search) -> str | None:
    if not all(map(fails_as_recorded, control)) and not is_now_and_then(control):
        ran = [run for run in control if run.fails is not None]
        if not ran:
            return f"the unchanged replay could not be run: {control[0].difference}"
        if all(run.fails is False for run in control):
            return _too_seldom(len(control))
        return f"the unchanged replay does not fail as recorded in each run: {counted(control)}"
    notes = list(search.notes)
    if not search.causes:
        notes = [*dict.fromkeys(one.why for one in search.tried if one.why is not None), *notes]
    return "; ".join(notes) or (None if search.causes else "nothing that could be changed makes a difference")


def _too_seldom(clean: int) -> str:
    more = clean_runs_wanted(_SELDOM, _SURE) - clean
    further = (
        f"; {more} more replays would show one that comes in {_SELDOM:.0%} (--times)" if more > 0 else ""
    )
    return (
        f"unchanged it passes {clean} of {clean}, so it fails in fewer than {rate_below(clean, _SURE):.0%} of replays "
        f"({_SURE:.0%} sure){further}; `relive replay --chaos` varies the schedule"
    )


def sentence_of(explanation: Explanation) -> str:
    """The answer in words."""
    lead = explanation.lead
    if not explanation.causes and lead is not None:
        without = " and ".join(one.about for one in lead.changes)
        return (
            f"Cannot tell for sure why {explanation.failing} failed. A lead: without {without} it no longer fails as recorded. "
            f"That proves nothing, since then {lead.why}."
        )
    if not explanation.causes:
        return f"Cannot tell why {explanation.failing} failed: {explanation.why_not}."
    return " ".join(
        f"{_cause_words(one)}: as recorded it {counted(one.control)}, changed it {counted(one.runs)}."
        + (_ENOUGH[one.enough].format(commit=one.commit[:10]) if _is_left_out(one) else "")
        for one in explanation.causes
    )


def _cause_words(cause: Tested) -> str:
    abouts = [one.about for one in cause.changes]
    shown = " and ".join(abouts[:3]) + (f" and {len(abouts) - 3} more" if len(abouts) > 3 else "")
    if _is_left_out(cause):
        return f"It fails because of {shown}" if cause.enough else f"It does not fail without {shown}"
    if cause.changes[0].option.startswith("--answer"):
        values = ", ".join(f"{one.recorded} -> {one.instead}" for one in cause.changes[:3])
        return f"It fails because of {shown} ({values})"
    return f"It fails because of the order of {shown}"


def _is_left_out(cause: Tested) -> bool:
    return all(one.instead == "left out" for one in cause.changes)
