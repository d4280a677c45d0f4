"""What is kept of a failing answer of which no exception was seen, read from the recordings of its life on the host where they lie.

Such an incident has no error package. The proxy has the request and its answer, the life its command and environment, and the
recorder inside, if there is one, what was asked of others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from relive.config import Settings
from relive.errors import PackageMissing, RecordingError
from relive.incidents.evidence import read_events
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, LifePaths
from relive.model.incident import FailureKind, Incident
from relive.model.launch import launch_of
from relive.model.outcome import Outcome
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.replay.fresh.evidence import FreshInput
from relive.replay.inprocess_events import read_window, request_inside
from relive.replay.outcomes import read_log, recorded_answer

__all__ = ["case_of_answer"]

_KINDS = (FailureKind.ANSWER, FailureKind.BROKEN)


def case_of_answer(settings: Settings, incident: Incident) -> FreshInput:
    """Gather it.

    Raises:
        PackageMissing: it is no failing answer, or what was recorded of it is not here (any more).
    """
    number = incident.sighting.request
    if incident.sighting.kind not in _KINDS or number is None:
        raise _missing(
            incident, "no Python exception was seen to escape, and it is not the answer to one request"
        )
    paths = LifePaths(settings.capsules / incident.service / incident.life)
    try:
        facts = CapsuleFacts.model_validate_json(paths.state.read_bytes())
        exchange = Exchanges(Recording(paths.recording)).by_number(number)
        wire = exchange.request_bytes()
    except (OSError, ValidationError, RecordingError) as error:
        raise _missing(incident, f"what was recorded of its request is not here: {error}") from error
    case = FreshInput(
        incident=incident,
        package=None,
        events=[],
        beginning=[],
        launch=launch_of(facts.spec, settings),
        wire=wire,
        bodies=paths.inside / "bodies",
        environment=_environment(facts),
        answered=_answered(paths.logs[-1], exchange),
    )
    return _with_inside(case, paths, exchange)


def _missing(incident: Incident, cause: str) -> PackageMissing:
    return PackageMissing(
        f"incident {incident.number} has no error package",
        cause=cause,
        remedy=f"`relive replay {incident.number}` brings the failure back from a commit",
    )


def _environment(facts: CapsuleFacts) -> dict[str, str]:
    """Of the service, while it lives: it is written down nowhere, since secrets stand in it."""
    if not procfs.is_same_process(facts.init, facts.init_started):
        return {}
    return procfs.environment_of(facts.root)


def _answered(log: Path, exchange: Exchange) -> Outcome:
    begin, end = exchange.log_offsets_before.get(str(log), 0), exchange.log_offsets_after.get(str(log))
    return recorded_answer(exchange, read_log(log, begin, end))


def _with_inside(case: FreshInput, paths: LifePaths, exchange: Exchange) -> FreshInput:
    """With what the recorder inside knows of the request; of a server that it does not know, of all that was asked meanwhile."""
    end = exchange.ended_mono_ns or exchange.started_mono_ns
    window = read_window(paths.inside, exchange.started_mono_ns, end)
    if window is None:
        return case
    try:
        beginning = read_events(paths.beginnings)
    except RecordingError:
        beginning = []
    found = request_inside(window.events, exchange)
    if found is None:
        meanwhile = [one for one in window.events if one.request == 0 and one.mono_ns <= end]
        return replace(case, beginning=[*beginning, *meanwhile])
    events = [one for one in window.events if (one.fields.get("pid"), one.request) == found]
    return replace(case, beginning=beginning, events=events, number=found[1])
