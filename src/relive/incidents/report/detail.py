"""All that is known of an incident, gathered from where it lies: beside the incident, in the recordings, in the store.

Whatever of it is missing or cannot be read leaves a note; the rest is told all the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from relive.config import Settings
from relive.errors import ReliveError
from relive.incidents.evidence import events_of, package_of
from relive.incidents.report.earlier import last_good
from relive.incidents.report.egress import egress_events
from relive.incidents.report.handled import SLACK_NS, Handled, handled, is_of, seq_before
from relive.incidents.report.last_good import Contrast, contrast
from relive.incidents.report.masking import Mask, mask_for, masked_incident
from relive.incidents.report.messages import Message, last_messages
from relive.incidents.report.next_steps import NextStep, next_steps
from relive.incidents.report.origins import ValueOrigin
from relive.incidents.report.printed import Printed, printed_during
from relive.incidents.report.proxied import Proxied, masked_exchange
from relive.incidents.report.request_events import events_since, origins_of_values, recorded_events, sentence
from relive.incidents.report.timeline import Row, Timeline, make_timeline
from relive.incidents.report.worst import worst_calls
from relive.incidents.runs import Runs
from relive.model.capsule import CapsuleFacts, CaptureWay, EgressWay
from relive.model.commit import CommitId, Connection
from relive.model.dependency import Dependency
from relive.model.failure import ErrorPackage, read_package
from relive.model.failure_stack import stack_of_failure
from relive.model.incident import FailureKind, Incident
from relive.model.life_paths import LifePaths
from relive.model.outcome import Stack
from relive.model.value import Value
from relive.protocols.dependencies import unrecorded
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.store import Store

__all__ = [
    "Account",
    "IncidentCommit",
    "RecordingFacts",
    "account_of",
    "exception_of",
    "inside_of",
]

_SEEN_IN_REQUEST = frozenset(
    {FailureKind.ANSWER, FailureKind.BROKEN, FailureKind.HANG, FailureKind.EXCEPTION}
)
_CALLS = 12  # calls that are told apart from the timeline


class IncidentCommit(Value):
    """A commit of an incident.

    Attributes:
        role: "before" the failing request, "at" the moment of failure, before the "latest" time.
        taken_wall_ns, pause_us, size: None when the commit is not in the store any more.
    """

    role: str
    id: CommitId
    taken_wall_ns: int | None = None
    pause_us: int | None = None
    size: int | None = None


class RecordingFacts(Value):
    """Where the recordings are and what of them belongs to the incident.

    Attributes:
        proxy, inside: directories; None when there is none.
        request: number in the proxy's recording; sequence: of the event at which it began.
        pid, own_request: the process that handled it (as in its capsule) and the number it gave to the request.
        events: how many events from inside belong to it.
        egress: directory of the recording of the border; None when there is none; calls: how many of its calls are told.
        capture, egress_way: how requests, and what the service asks of others, are recorded; None: not, or nothing is known of it.
    """

    proxy: str | None = None
    inside: str | None = None
    request: int | None = None
    sequence: int | None = None
    pid: int | None = None
    own_request: int | None = None
    events: int = 0
    egress: str | None = None
    calls: int = 0
    capture: CaptureWay | None = None
    egress_way: EgressWay | None = None


class Account(Value):
    """See the module.

    Attributes:
        stack: as the service printed it; where there is a package its frames say more.
        printed: what it wrote while it served the request.
        messages: what clients without HTTP/1 and the service last said to each other, where no request is to blame.
        calls: what the request asked others for, what failed first, then the slowest.
        contrast: what differs from the last request to the same route that went well; None where there was none.
        origins: who had written what the request read.
        unrecorded: servers that the service was connected to and nobody recorded; a replay lacks them.
        next_steps: commands that lead on.
        notes: what is missing or could not be read, and what was cut.
    """

    incident: Incident
    package: ErrorPackage | None
    stack: Stack | None
    timeline: Timeline | None
    printed: list[Printed] = []
    messages: list[Message] = []
    calls: list[Row] = []
    contrast: Contrast | None = None
    origins: list[ValueOrigin] = []
    proxied: Proxied | None
    commits: list[IncidentCommit]
    recording: RecordingFacts
    unrecorded: list[Dependency] = []
    next_steps: list[NextStep] = []
    notes: list[str]


def exception_of(settings: Settings, incident: Incident) -> str:
    """The exception in short, ``KeyError: 'EUR'``; empty where none is known."""
    try:
        package = package_of(settings.incidents, incident.number)
    except ReliveError:
        package = None
    if package is not None:
        kind = package.type.rpartition(".")[2]
        return f"{kind}: {package.text}" if package.text else kind
    stack = stack_of_failure(incident.sighting, incident.log_tail)
    return stack.exception if stack is not None else ""


def account_of(settings: Settings, incident: Incident) -> Account:
    """Gather it. Raises nothing but for settings: what cannot be read is said in ``notes``."""
    notes: list[str] = []
    directory = settings.capsules / incident.service / incident.life
    kept = _package(settings, incident, notes)
    inside, exchange = _inside(settings, incident, kept, notes)
    package = kept if kept is not None else _recorded_package(inside.events, notes)
    mask = mask_for(settings, incident.service, incident.life)
    proxied = _masked(exchange, mask, notes)
    events = [_masked_event(event, mask) for event in inside.events]
    if inside.by_time and events:
        notes += _of_others(directory, exchange)
    egress = _egress(directory, exchange, events, mask, notes)
    timeline = make_timeline(
        events, proxied, _commits_during(settings, directory / "recording", exchange), egress
    )
    commits = list(_commits(settings, incident))
    facts = _facts(directory, exchange, inside, len(egress))
    account = Account(
        incident=masked_incident(incident, mask),
        package=_masked_package(package, mask),
        stack=stack_of_failure(incident.sighting, [mask.sentence(line) for line in incident.log_tail]),
        timeline=timeline,
        printed=printed_during(LifePaths(directory), exchange, incident, mask),
        messages=_messages(directory / "recording", incident, mask, notes),
        calls=worst_calls(timeline.rows, _CALLS) if timeline is not None else [],
        contrast=_contrast(directory, exchange, timeline, mask, notes),
        origins=origins_of_values(directory / "inside", events, notes),
        proxied=proxied,
        commits=commits,
        recording=facts,
        unrecorded=_unrecorded(settings, directory, commits),
        next_steps=next_steps(
            incident,
            held={one.id for one in commits if one.taken_wall_ns is not None},
            has_request=_can_be_sent(directory / "recording", incident, exchange),
            has_handler=facts.own_request is not None,
            can_reproduce=_can_be_reproduced(directory, incident, kept, exchange),
            has_earlier=_has_earlier(settings, incident),
            suffices=_request_suffices(settings, incident),
        ),
        notes=[*notes, *(f"left out: {what}" for what in (package.cut if package is not None else []))],
    )
    return mask.model(account)  # all that was learned on the way, in all of it


def _messages(directory: Path, incident: Incident, mask: Mask, notes: list[str]) -> list[Message]:
    try:
        return last_messages(Recording(directory), incident.sighting, mask)
    except ReliveError as error:
        notes.append(sentence(error))
        return []


def _contrast(
    directory: Path, exchange: Exchange | None, now: Timeline | None, mask: Mask, notes: list[str]
) -> Contrast | None:
    """With the last request to the same route that went well, as far back as the recording is looked through."""
    if exchange is None or now is None:
        return None
    try:
        good = last_good(Recording(directory / "recording"), exchange)
        if good is None:
            return None
        proxied = masked_exchange(good, mask)
        inside = handled(Recording(directory / "inside"), good).events
        egress = egress_events(
            directory / "egress",
            good.started_mono_ns,
            good.ended_mono_ns or good.started_mono_ns,
            inside,
            mask,
        )[0]
    except ReliveError as error:
        notes.append(f"the last good request to its route: {sentence(error)}")
        return None
    then = make_timeline([_masked_event(event, mask) for event in inside], proxied, [], egress)
    if then is None:
        return None
    before_ns = exchange.started_mono_ns - good.started_mono_ns
    return contrast(good.number, proxied.target, before_ns, now, then)


def _can_be_sent(directory: Path, incident: Incident, exchange: Exchange | None) -> bool:
    """The request of the time that a replay is of, which is the latest; ``exchange``: that of the first."""
    return _is_whole(directory, incident.occurrence(first=False).sighting.request, exchange)


def _is_whole(directory: Path, number: int | None, known: Exchange | None) -> bool:
    """A request is in the recording with all its bytes; ``known``: an exchange that was read already."""
    if number is None:
        return False
    if known is None or known.number != number:
        try:
            known = Exchanges(Recording(directory)).by_number(number)
        except ReliveError:
            return False
    return known.sent_seq is not None and not known.request_cut


def _can_be_reproduced(
    directory: Path, incident: Incident, package: ErrorPackage | None, exchange: Exchange | None
) -> bool:
    """What a fresh process needs is here: an error package, but of a job, which has no queue; or the one request to blame."""
    if package is not None:
        return package.request is None or not package.request.is_job
    paths, number = LifePaths(directory), incident.sighting.sent_alone
    return paths.state.exists() and _is_whole(paths.recording, number, exchange)


def _unrecorded(settings: Settings, directory: Path, commits: list[IncidentCommit]) -> list[Dependency]:
    """By the connections of the incident's commits."""
    store, paths = Store(settings.store), LifePaths(directory)
    connections: list[Connection] = []
    for one in commits:
        if one.taken_wall_ns is not None:
            with contextlib.suppress(ReliveError):
                connections += store.facts(one.id).connections
    return unrecorded(connections, paths.egress, paths.inside)


def inside_of(settings: Settings, incident: Incident) -> tuple[list[Event], list[str]]:
    """(events of its request from inside the service, notes on what of them is missing)."""
    notes: list[str] = []
    found, _ = _inside(settings, incident, _package(settings, incident, notes), notes)
    return found.events, notes


def _inside(
    settings: Settings, incident: Incident, package: ErrorPackage | None, notes: list[str]
) -> tuple[Handled, Exchange | None]:
    """(what it did inside, the exchange in the proxy's recording)."""
    directory = settings.capsules / incident.service / incident.life
    inside = _kept_events(settings, incident, notes)
    exchange = _exchange(directory / "recording", incident, package, inside, notes)
    if inside:
        return Handled(inside + events_since(directory / "inside", inside, notes)), exchange
    return recorded_events(directory / "inside", package, exchange, notes), exchange


def _package(settings: Settings, incident: Incident, notes: list[str]) -> ErrorPackage | None:
    try:
        return package_of(settings.incidents, incident.number)
    except ReliveError as error:
        notes.append(sentence(error))
        return None


def _recorded_package(inside: list[Event], notes: list[str]) -> ErrorPackage | None:
    """The package in the failure's event, for incidents that none lies beside.

    Of several the last that escaped; what was only logged is often the same exception once more.
    """
    failures = [event for event in inside if event.kind is EventKind.FAILURE and event.request and event.data]
    failures.sort(key=lambda event: event.fields.get("where") != "log")
    try:
        return read_package(failures[-1].data) if failures else None
    except ReliveError as error:
        notes.append(sentence(error))
        return None


def _kept_events(settings: Settings, incident: Incident, notes: list[str]) -> list[Event]:
    try:
        return events_of(settings.incidents, incident.number)
    except ReliveError as error:
        notes.append(sentence(error))
        return []


# -- the request in the proxy's recording --------------------------------------------------------------------------------


def _exchange(
    directory: Path,
    incident: Incident,
    package: ErrorPackage | None,
    inside: list[Event],
    notes: list[str],
) -> Exchange | None:
    sighting, recording = incident.sighting, Recording(directory)
    if not recording.segments():
        return None
    try:
        if sighting.request is not None and (sighting.kind in _SEEN_IN_REQUEST or package is None):
            return Exchanges(recording).by_number(sighting.request)
        begun = next(
            (event for event in inside if event.kind is EventKind.HANDLING_STARTED and event.request), None
        )
        return _exchange_of(recording, begun) if begun is not None else None
    except ReliveError as error:
        notes.append(sentence(error))
        return None


def _exchange_of(recording: Recording, begun: Event) -> Exchange | None:
    """The exchange in which a handler began."""
    for exchange in Exchanges(recording).all(after=seq_before(recording, begun.mono_ns, spare=1)):
        if exchange.started_mono_ns <= begun.mono_ns and is_of(begun, exchange):
            return exchange
    return None


def _masked(exchange: Exchange | None, mask: Mask, notes: list[str]) -> Proxied | None:
    try:
        return masked_exchange(exchange, mask) if exchange is not None else None
    except ReliveError as error:
        notes.append(sentence(error))
        return None


def _masked_event(event: Event, mask: Mask) -> Event:
    """The recorder masked it by value; parameters of the target have names that tell more."""
    target = event.fields.get("target")
    if not isinstance(target, str):
        return event
    return replace(event, fields={**event.fields, "target": mask.target(target)})


def _masked_package(package: ErrorPackage | None, mask: Mask) -> ErrorPackage | None:
    if package is None or package.request is None:
        return package
    request = package.request.model_copy(update={"target": mask.target(package.request.target)})
    return package.model_copy(update={"request": request})


def _commits_during(settings: Settings, directory: Path, exchange: Exchange | None) -> list[Event]:
    if exchange is None:
        return []
    try:
        events = Recording(directory).events(
            after=exchange.started_seq, until=exchange.ended_seq or exchange.started_seq
        )
        return [_with_id(settings, event) for event in events if event.kind is EventKind.COMMIT_TAKEN]
    except ReliveError:
        return []  # said already by whoever read the exchange, or what commits there are


def _with_id(settings: Settings, event: Event) -> Event:
    """A recording knows a commit by its capture: when it is written down there, the commit has no id yet."""
    stored = Store(settings.store).captured_as(str(event.fields.get("commit")))
    return replace(event, fields={**event.fields, "commit": stored.id if stored is not None else None})


# -- the recording of the border ------------------------------------------------------------------------------------------


def _egress(
    directory: Path, exchange: Exchange | None, inside: list[Event], mask: Mask, notes: list[str]
) -> list[Event]:
    """Calls at the border during the request; a note where they may be another request's."""
    own = [event for event in inside if event.request]
    if exchange is not None:
        began = exchange.started_mono_ns
        ended = exchange.ended_mono_ns or began + SLACK_NS
    elif own:
        began, ended = own[0].mono_ns, own[-1].mono_ns
    else:
        return []
    try:
        calls, egress_notes = egress_events(directory / "egress", began, ended, inside, mask)
        others = _served_meanwhile(directory / "recording", exchange) if calls else 0
    except ReliveError as error:
        notes.append(sentence(error))
        return []
    notes += egress_notes
    if others:
        many = "another request was" if others == 1 else f"{others} other requests were"
        notes.append(f"{many} served at the same time: calls seen at the border may be theirs")
    return calls


def _of_others(directory: Path, exchange: Exchange | None) -> list[str]:
    """A note where what was chosen by the time alone may be of other requests."""
    try:
        others = _served_meanwhile(directory / "recording", exchange)
    except ReliveError:
        return []  # said already by whoever read the exchange
    if not others:
        return []
    return [
        "its server does not tell which request it works for, and others were served at the same time: "
        "what its process did may be for those"
    ]


def _served_meanwhile(directory: Path, exchange: Exchange | None) -> int:
    if exchange is None:
        return 0
    exchanges = Exchanges(Recording(directory))
    until = exchange.ended_seq or exchange.started_seq
    others = [*exchanges.open_at(exchange.started_seq), *exchanges.begun_in(exchange.started_seq, until)]
    return len({one.number for one in others} - {exchange.number})


# -- facts ---------------------------------------------------------------------------------------------------------------


def _commits(settings: Settings, incident: Incident) -> Iterator[IncidentCommit]:
    latest = incident.latest.before if incident.latest is not None else None
    roles = [("before", incident.before), ("at", incident.at), ("latest", latest)]
    store = Store(settings.store)
    for role, commit in roles:
        if commit is None:
            continue
        try:
            manifest, stored = store.facts(commit), store.get(commit)
        except ReliveError:
            yield IncidentCommit(role=role, id=commit)
            continue
        yield IncidentCommit(
            role=role,
            id=commit,
            taken_wall_ns=manifest.taken_wall_ns,
            pause_us=manifest.pause_us,
            size=stored.bytes,
        )


def _has_earlier(settings: Settings, incident: Incident) -> bool:
    """There is a commit of the same start of the service that is older than the one before the incident."""
    before = incident.occurrence(first=False).before
    if before is None:
        return False
    store = Store(settings.store)
    try:
        last = store.get(before)
    except ReliveError:
        return False
    return last.sequence is not None and store.before_event(incident.life, last.sequence) is not None


def _request_suffices(settings: Settings, incident: Incident) -> bool:
    """A fresh process has failed the same way; False also where what replays showed cannot be read."""
    with contextlib.suppress(ReliveError, OSError):
        return settings.runs.exists() and Runs(settings.runs).came_back_afresh(incident.number)
    return False


def _capsule(life: Path) -> CapsuleFacts | None:
    """What is written down of it; None: nothing, as of what is watched, or it is of another version."""
    with contextlib.suppress(OSError, ValidationError):
        return CapsuleFacts.model_validate_json(LifePaths(life).state.read_bytes())
    return None


def _facts(directory: Path, exchange: Exchange | None, inside: Handled, calls: int) -> RecordingFacts:
    own = next((event for event in inside.events if event.request), None)
    pid = own.fields.get("pid") if own is not None else None
    proxy, within, egress = directory / "recording", directory / "inside", directory / "egress"
    capsule = _capsule(directory)
    return RecordingFacts(
        capture=capsule.spec.capture if capsule is not None and capsule.spec.listen is not None else None,
        egress_way=capsule.egress if capsule is not None else None,
        proxy=str(proxy) if proxy.is_dir() else None,
        inside=str(within) if within.is_dir() else None,
        request=exchange.number if exchange is not None else None,
        sequence=exchange.started_seq if exchange is not None else None,
        pid=pid if isinstance(pid, int) else None,
        own_request=own.request if own is not None and not inside.by_time else None,
        events=len(inside.events),
        egress=str(egress) if egress.is_dir() else None,
        calls=calls,
    )
