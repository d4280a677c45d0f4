"""Incidents that leave for another home, or come from there, with what a replay of them needs.

An incident has a number in each home, and one id everywhere: a hash of who signed it, its service, its life and the number that it
has where it was seen. Which number it gets elsewhere says nothing; a second pull finds it again by its id.

Of the recordings of its life goes what a replay reads: from the first request that was open at the commit before it, up to a few
seconds after the failure, in whole segments but for the last one. They are the files as they lie here: what is masked here is
masked there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relive.config import Settings
from relive.errors import ArchiveInvalid, RecordingError, RefUnknown
from relive.incidents.checksums import damaged_beside, decode_incident
from relive.incidents.evidence import seal_evidence
from relive.incidents.incidents import Incidents
from relive.model.commit import CommitId
from relive.model.incident import Incident, Origin
from relive.model.life_paths import LifePaths
from relive.model.text import is_number
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.remotes.case_file import CaseFacts, read_case, write_case
from relive.store import Store
from relive.store.objects import hash_bytes

__all__ = [
    "ReceivedIncident",
    "commits_of",
    "incident_id",
    "incidents_of",
    "ingest_case",
    "meant",
    "pack_case",
]

_AFTER_NS = 5_000_000_000  # more than ``replay`` looks beyond a failure
_STDERR_MOST = 8 << 20  # [bytes]
_OWN = ("json", "sums")
_PULLED = "pulled"  # marks the directory of a life that came from elsewhere

Piece = tuple[str, Path | bytes, int]


@dataclass(frozen=True, slots=True)
class ReceivedIncident:
    """An incident that came: its number here, and whether it was not here before."""

    number: int
    is_new: bool


def incident_id(store: Store, incident: Incident) -> str:
    """32 hexadecimal digits that the incident has in every home."""
    if incident.origin is not None:
        return incident.origin.id
    signer = store.internals.keyring.public_key.hex()
    text = "\0".join((signer, incident.service, incident.life, str(incident.number)))
    return hash_bytes(text.encode(errors="surrogateescape"))[:32]


def commits_of(store: Store, incident: Incident) -> list[CommitId]:
    """The commits that an incident refers to, as far as they are here; the one a replay begins with stands first."""
    latest = incident.latest.before if incident.latest is not None else None
    wanted = dict.fromkeys(one for one in (latest, incident.before, incident.at) if one is not None)
    found = []
    for commit in wanted:
        with contextlib.suppress(RefUnknown):
            found.append(store.get(commit).id)
    return found


def incidents_of(settings: Settings, commit: CommitId) -> list[Incident]:
    """Those that refer to a commit."""
    return [
        one
        for one in Incidents(settings.incidents).list()
        if commit in (one.before, one.at, one.latest.before if one.latest is not None else None)
    ]


def meant(settings: Settings, store: Store, ref: str, *, incidents: bool) -> tuple[CommitId, list[Incident]]:
    """The commit that leaves, and the incidents that go along: the one that ``ref`` names, else those that refer to the commit.

    Args:
        ref: a commit, or ``incident/NUMBER``. incidents: False: only one that is named.

    Raises:
        RefUnknown, RefAmbiguous: it names nothing, or an incident that has no commit.
    """
    word, _, number = ref.partition("/")
    if word != "incident" or not is_number(number):
        commit = store.resolve(ref)
        return commit, incidents_of(settings, commit) if incidents else []
    incident = Incidents(settings.incidents).get(int(number))
    commits = commits_of(store, incident)
    if not commits:
        raise RefUnknown(
            f"incident {number} has no commit",
            cause="it failed before the first one, or they were dropped",
            remedy="`relive reproduce` needs none; there is nothing to send",
        )
    return commits[0], [incident]


# -- leaving ---------------------------------------------------------------------------------------------------------------


def pack_case(settings: Settings, store: Store, incident: Incident, target: Path) -> None:
    """Write the case file of an incident.

    Raises:
        RecordingCorrupt: something of it is damaged here; it is not spread.
        KeyMissing, KeyWrong, OSError: it cannot be sealed, or written.
    """
    number, directory = incident.number, settings.incidents
    for name, why in damaged_beside(directory, number).items():
        raise RecordingError(f"incident {number} is damaged here: {name}", cause=why)
    begin, stderr = _stderr(settings, incident)
    facts = CaseFacts(id=incident_id(store, incident), number=number, stderr_begin=begin)
    pieces: list[Piece] = [
        _text("case.json", facts.model_dump_json().encode()),
        _file("incident.json", directory / f"{number}.json"),
        *_beside(directory, number),
        *([_text("life/stderr", stderr)] if stderr else []),
        *_recordings(settings, store, incident),
    ]
    parts = store.internals
    write_case(target, pieces, parts.keyring, sealed=parts.format.noted_key is not None)


def _beside(directory: Path, number: int) -> Iterator[Piece]:
    for path in sorted(directory.glob(f"{number}.*")):
        what = path.name.removeprefix(f"{number}.")
        if path.is_dir():
            yield from (_file(f"beside/{what}/{body.name}", body) for body in sorted(path.iterdir()))
        elif what not in _OWN and path.suffix != ".new":
            yield _file(f"beside/{what}", path)


def _stderr(settings: Settings, incident: Incident) -> tuple[int, bytes]:
    """(where it begins, the lines of the service's standard error that belong to all times that it was seen)."""
    times = [incident.occurrence(first=True), incident.occurrence(first=False)]
    begin = min(one.sighting.log_begin or 0 for one in times)
    end = max(one.log_end or 0 for one in times)
    begin = max(begin, end - _STDERR_MOST)
    try:
        with _paths(settings, incident).logs[1].open("rb") as file:
            file.seek(begin)
            return begin, file.read(max(0, end - begin))
    except OSError:
        return begin, b""


def _recordings(settings: Settings, store: Store, incident: Incident) -> Iterator[Piece]:
    paths = _paths(settings, incident)
    window = _window(store, incident)
    if window is not None:
        cursor, since_ns, until_ns = window
        yield from _slice(paths.recording, _first_needed(paths, cursor), until_ns)
        yield from _slice(paths.egress, 0, until_ns)
        yield from _slice(paths.inside, _seq_before(paths.inside, since_ns), until_ns)
        bodies = paths.inside / "bodies"
        for path in sorted(bodies.iterdir()) if bodies.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # retention was quicker
                yield _file(f"life/inside/bodies/{path.name}", path)
    if paths.beginnings.exists():
        yield _file("life/beginnings.jsonl", paths.beginnings)
    if paths.authority.is_dir():
        yield from (_file(f"life/authority/{one.name}", one) for one in sorted(paths.authority.iterdir()))


def _window(store: Store, incident: Incident) -> tuple[int, int, int] | None:
    """(events of the proxy's recording before the earliest commit, monotonic times around all that was seen)."""
    spans = []
    for occurrence in (incident.occurrence(first=True), incident.occurrence(first=False)):
        with contextlib.suppress(RefUnknown):
            if occurrence.before is not None:
                manifest = store.facts(occurrence.before)
                seen = manifest.taken_monotonic_ns + occurrence.sighting.seen_wall_ns - manifest.taken_wall_ns
                cursor = manifest.cursor.sequence if manifest.cursor is not None else 0
                spans.append((cursor, manifest.taken_monotonic_ns, seen + _AFTER_NS))
    if not spans:
        return None
    return min(one[0] for one in spans), min(one[1] for one in spans), max(one[2] for one in spans)


def _first_needed(paths: LifePaths, cursor: int) -> int:
    """The event before those of requests that were open at the commit; it can only be too early."""
    with contextlib.suppress(RecordingError):
        still_open = Exchanges(Recording(paths.recording)).open_at(cursor) if cursor else []
        return min([cursor, *(one.started_seq - 1 for one in still_open)])
    return 0


def _seq_before(directory: Path, since_ns: int) -> int:
    """The event before the segment in which all of that time and later begins."""
    recording = Recording(directory)
    with contextlib.suppress(RecordingError):
        for path in reversed(recording.segments()):
            before = int(path.stem) - 1
            first = next(recording.events(after=before), None)
            if first is not None and first.mono_ns < since_ns - _AFTER_NS:
                return before
    return 0


def _slice(directory: Path, after: int, until_ns: int) -> Iterator[Piece]:
    """Segments from the one with the event after ``after`` on; the last one ends where ``until_ns`` does."""
    recording = Recording(directory)
    ends: dict[int, int | None] = {}
    for event, place in recording.events_with_places(after=after):
        if event.mono_ns > until_ns:
            if place.segment in ends:
                ends[place.segment] = place.offset
            break
        ends[place.segment] = None
    for segment, end in ends.items():
        path = directory / f"{segment:020}.events"
        yield f"life/{directory.name}/{path.name}", path, end if end is not None else path.stat().st_size


def _paths(settings: Settings, incident: Incident) -> LifePaths:
    return LifePaths(settings.capsules / incident.service / incident.life)


def _file(name: str, path: Path) -> Piece:
    return name, path, path.stat().st_size


def _text(name: str, data: bytes) -> Piece:
    return name, data, len(data)


# -- coming ----------------------------------------------------------------------------------------------------------------


def ingest_case(
    settings: Settings, store: Store, path: Path, signer: bytes, directory: Path
) -> ReceivedIncident:
    """Take in the incident of a case file that ``signer`` has signed; durable on return.

    Args:
        directory: an empty one, of the same file system as the home.

    Raises:
        ArchiveInvalid, KeyMissing, KeyWrong, StoreVersionUnknown: it cannot be read; nothing was taken in.
        DiskFull, StoreError: it could not be written.
    """
    facts = read_case(path, directory, store.internals.keyring)
    try:
        incident = decode_incident((directory / "incident.json").read_bytes())
    except (OSError, RecordingError) as error:
        raise ArchiveInvalid("an incident cannot be taken in", cause=str(error)[:200]) from error
    if not _is_plain(incident.service) or not _is_plain(incident.life):
        raise ArchiveInvalid(
            "an incident cannot be taken in", cause="it names a directory outside of its own"
        )
    incidents = Incidents(settings.incidents)
    here = next((one for one in incidents.list() if incident_id(store, one) == facts.id), None)
    if here is not None and (here.origin is None or here.times >= incident.times):
        return ReceivedIncident(here.number, False)
    life = _place_of_life(settings, incident, facts.id)
    _merge_life(directory / "life", settings.capsules / incident.service / life, facts.stderr_begin)
    origin = Origin(id=facts.id, number=facts.number, signer=signer.hex())
    arrived = incident.model_copy(update={"life": life, "origin": origin})
    with store.nothing_dropped():
        number = incidents.enter(
            arrived,
            here.number if here is not None else None,
            lambda number: _lay_beside(directory / "beside", settings.incidents, number),
        )
    return ReceivedIncident(number, here is None)


def _is_plain(name: str) -> bool:
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..")


def _place_of_life(settings: Settings, incident: Incident, uid: str) -> str:
    """The name of its life here: its own, unless another life of this host has it."""
    place = settings.capsules / incident.service / incident.life
    is_free = not place.exists() or (place / _PULLED).exists()
    return incident.life if is_free else f"{incident.life}~{uid[:8]}"


def _merge_life(source: Path, target: Path, stderr_begin: int) -> None:
    """Put slices of recordings where a life's are; of a segment that is here the longer slice stays."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    (target / _PULLED).touch()
    (target / "io").mkdir(mode=0o700, exist_ok=True)
    for path in sorted(source.rglob("*")):
        if not path.is_file():
            continue
        name = path.relative_to(source)
        if name == Path("stderr"):
            _write_at(target / "io" / "stderr.log", stderr_begin, path.read_bytes())
            continue
        place = target / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists() or place.stat().st_size < path.stat().st_size:
            path.replace(place)


def _write_at(path: Path, offset: int, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while data:
            count = os.pwrite(file, data, offset)
            data, offset = data[count:], offset + count
    finally:
        os.close(file)


def _lay_beside(source: Path, directory: Path, number: int) -> None:
    (directory / f"{number}.sums").unlink(missing_ok=True)
    for path in sorted(source.iterdir()) if source.is_dir() else ():
        target = directory / f"{number}.{path.name}"
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(path, target)
            target.chmod(0o600)
    seal_evidence(directory, number)
