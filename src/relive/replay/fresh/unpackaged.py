"""What is kept of a failure of which no exception was seen, read from the recordings of its life on the host where they lie.

Such an incident has no error package: a failing answer, a request without an answer, a fatal signal or an exit while a request
was being served. The proxy has the request, the life its command and environment, and the recorder inside, if there is one, what
was asked of others.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from relive.config import Settings
from relive.errors import PackageMissing, RecordingError, StoreError
from relive.images.code_mappings import read_code_mappings
from relive.images.registers import read_places
from relive.incidents.evidence import read_events
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts
from relive.model.incident import ENDS, FailureKind, Incident
from relive.model.launch import launch_of
from relive.model.life_paths import LifePaths
from relive.model.outcome import Fault
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.replay.fresh.evidence import FreshInput
from relive.replay.inprocess_events import read_window, request_inside
from relive.replay.outcomes import read_log, read_log_of, recorded_answer, recorded_outcome, with_fault
from relive.replay.replay_input import fault_place
from relive.replay.usual_log import usual_log
from relive.store import Store

__all__ = ["EnvironmentOf", "asked_in_order", "unpackaged_input"]

EnvironmentOf = Callable[[Incident], Mapping[str, str]]

_ANSWERS = (FailureKind.ANSWER, FailureKind.BROKEN)


def unpackaged_input(settings: Settings, incident: Incident, committed: EnvironmentOf) -> FreshInput:
    """Gather it.

    Args:
        committed: the environment as a commit of the incident has it; empty where none does.

    Raises:
        PackageMissing: it did not happen to one request, or what was recorded of that is not here (any more).
    """
    number = _request_of(incident)
    paths = LifePaths(settings.capsules / incident.service / incident.life)
    if not paths.state.exists():
        raise _missing(incident, _why_no_state(paths))
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
        environment=_environment(facts) or committed(incident),
        memory=facts.spec.memory,
        usual=usual_log(Recording(paths.recording), paths.logs[1], exchange.started_seq),
    )
    return _with_inside(_with_outcome(settings, case, paths, exchange), paths, exchange)


def _request_of(incident: Incident) -> int:
    """Number of the one request that it happened to; raises PackageMissing where there is none, or several."""
    sighting = incident.sighting
    number = sighting.sent_alone
    if number is not None:
        return number
    count = len(sighting.open_requests)
    if sighting.from_outside:
        cause = f"the signal was sent {sighting.sender}, so no process of the service can bring it back"
    elif sighting.kind in ENDS and count > 1:
        cause = f"{count} requests were being served, and which of them is to blame is not known"
    else:
        cause = "no Python exception was seen to escape, and it did not happen to one request"
    raise _missing(incident, cause)


def _why_no_state(paths: LifePaths) -> str:
    if paths.watch.exists():
        return (
            "its service is watched (`relive watch`), not run by Relive, so how a fresh one is started is kept only with exceptions"
            " that the recorder inside it saw"
        )
    if paths.directory.exists():
        return f"how its service was started is not here any more: {paths.state} is gone"
    return f"what was recorded of its request is not here any more: {paths.directory} is gone"


def _missing(incident: Incident, cause: str) -> PackageMissing:
    return PackageMissing(
        f"incident {incident.number} has no error package",
        cause=cause,
        remedy=f"`relive replay {incident.number}` brings the failure back from a commit",
    )


def _environment(facts: CapsuleFacts) -> dict[str, str]:
    """Of the service, while it lives: it is written down nowhere but in commits, since secrets stand in it."""
    if not procfs.is_same_process(facts.init, facts.init_started):
        return {}
    return procfs.environment_of(facts.root)


def _with_outcome(settings: Settings, case: FreshInput, paths: LifePaths, exchange: Exchange) -> FreshInput:
    """With how it had ended."""
    incident, sighting, log = case.incident, case.incident.sighting, paths.logs[-1]
    if sighting.kind in _ANSWERS:
        begin, end = exchange.log_offsets_before.get(str(log), 0), exchange.log_offsets_after.get(str(log))
        return replace(case, ended=recorded_answer(exchange, read_log(log, begin, end)))
    begin = sighting.log_begin or exchange.log_offsets_before.get(str(log), 0)
    lines = read_log_of(log, sighting, begin, incident.log_end, exchange)
    ended = recorded_outcome(sighting, exchange, *lines)
    if sighting.kind is FailureKind.HANG:
        hung = max(0.0, (sighting.seen_wall_ns - exchange.started_wall_ns) / 1e9)
        return replace(case, ended=ended, hung_seconds=hung)
    if sighting.kind is not FailureKind.SIGNAL:
        return replace(case, ended=ended)
    fault, code = _fault(settings, incident)
    return replace(case, ended=with_fault(ended, fault), code=code)


def _fault(settings: Settings, incident: Incident) -> tuple[Fault, Sequence[procfs.Mapping]]:
    """The fatal signal, and the code of the process that got it: from the commit at the failure, where there is one."""
    sighting = incident.sighting
    assert sighting.signal is not None
    fault = Fault(
        process=sighting.pid or 0,
        is_root=not sighting.worker,
        signal=sighting.signal,
        code=sighting.signal_code,
        address=sighting.address,
        callers=sighting.callers,
    )
    if incident.at is None or sighting.pid is None:
        return fault, []
    with contextlib.suppress(StoreError, OSError), tempfile.TemporaryDirectory(prefix="relive-") as scratch:
        store, images = Store(settings.store), Path(scratch)
        store.images.lay_out_small(store.facts(incident.at), images)
        place = fault_place(sighting, read_places(images))
        return fault.model_copy(update={"place": place}), read_code_mappings(images, sighting.pid)
    return fault, []


def _first_request_ns(paths: LifePaths) -> int:
    """When the first request that is recorded began."""
    for event in Recording(paths.recording).events_naming([b"log_offsets"]):
        if event.kind is EventKind.REQUEST_STARTED:
            return event.mono_ns
    return 0


def asked_in_order(
    beginning: Sequence[Event], meanwhile: Sequence[Event], first_request_ns: int
) -> list[Event]:
    """What a fresh process is answered that does not tell its requests apart: equal calls get these answers one after the other.

    What was asked at the start comes first, then what was asked in the failing request. An earlier request may have had another
    answer to the same call: it is of use only for calls that came in neither.
    """
    start = [one for one in beginning if one.mono_ns < first_request_ns]
    known = {_asked(one) for one in (*start, *meanwhile)}
    later = [one for one in beginning if one.mono_ns >= first_request_ns and _asked(one) not in known]
    return [*start, *meanwhile, *later]


def _asked(event: Event) -> tuple[str, str]:
    return event.kind.value, json.dumps(event.fields.get("asked"), sort_keys=True, default=str)


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
        meanwhile = [
            one
            for one in window.events
            if one.request == 0 and exchange.started_mono_ns <= one.mono_ns <= end
        ]
        return replace(case, beginning=asked_in_order(beginning, meanwhile, _first_request_ns(paths)))
    events = [one for one in window.events if (one.fields.get("pid"), one.request) == found]
    return replace(case, beginning=beginning, events=events, number=found[1])
