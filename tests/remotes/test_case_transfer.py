"""Case files: what is packed comes back, whatever was changed is refused, and nothing in one leads out of its directory."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import zstandard

from relive.config import Settings
from relive.errors import ArchiveInvalid, KeyMissing, KeyWrong, ReliveError
from relive.incidents.evidence import Evidence, events_of, request_of, store_evidence
from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.model.life_paths import LifePaths
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from relive.remotes import case_file
from relive.remotes.case_file import CaseFacts, read_case, write_case
from relive.remotes.case_transfer import incident_id, ingest_case, pack_case
from relive.store import Store
from relive.store.keyring import Keyring
from store.builders import SECOND, commit

FACTS = CaseFacts(id="a" * 32, number=3).model_dump_json().encode()


def write(target: Path, keyring: Keyring, *, sealed: bool = False, **files: bytes) -> Path:
    target.unlink(missing_ok=True)
    named = {
        "case.json": FACTS,
        **{name.replace("__", "/").replace("_", "."): data for name, data in files.items()},
    }
    write_case(target, [(name, data, len(data)) for name, data in named.items()], keyring, sealed=sealed)
    return target


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_packed_comes_back(tmp_path, sealed):
    keyring = Keyring(tmp_path / "keys")
    if sealed:
        keyring.make_store_key()
    data = bytes(range(256)) * 20_000
    path = write(tmp_path / "case", keyring, sealed=sealed, incident_json=b"{}", life__stderr=data)
    assert (data[:256] in path.read_bytes()) is not sealed
    (tmp_path / "target").mkdir()
    assert read_case(path, tmp_path / "target", keyring) == CaseFacts(id="a" * 32, number=3)
    assert (tmp_path / "target" / "life" / "stderr").read_bytes() == data


def test_a_sealed_one_needs_its_key(tmp_path):
    keyring = Keyring(tmp_path / "keys")
    keyring.make_store_key()
    path = write(tmp_path / "case", keyring, sealed=True, incident_json=b"secret" * 1000)
    for other, error in ((Keyring(tmp_path / "none"), KeyMissing), (Keyring(tmp_path / "other"), KeyWrong)):
        if error is KeyWrong:
            other.make_store_key()
        target = tmp_path / error.__name__
        target.mkdir()
        with pytest.raises(error):
            read_case(path, target, other)


def packed(path: Path, keyring: Keyring, tar: bytes) -> None:
    write(path, keyring)
    data = zstandard.ZstdCompressor().compress(tar)
    head = path.read_bytes()[: case_file._HEAD.size]
    path.write_bytes(head + case_file._LENGTH.pack(len(data)) + data)


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../evil", tarfile.REGTYPE, ""),
        ("/etc/evil", tarfile.REGTYPE, ""),
        ("life/recording/../../evil", tarfile.REGTYPE, ""),
        ("life/state.json", tarfile.REGTYPE, ""),
        ("life/recording/head", tarfile.REGTYPE, ""),
        ("life/stderr", tarfile.SYMTYPE, "/etc/passwd"),
        ("life/stderr", tarfile.LNKTYPE, "case.json"),
        ("life", tarfile.DIRTYPE, ""),
        ("life/stderr", tarfile.CHRTYPE, ""),
    ],
)
def test_what_no_case_file_holds_is_refused(tmp_path, name, kind, link):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        info = tarfile.TarInfo("case.json")
        info.size = len(FACTS)
        tar.addfile(info, io.BytesIO(FACTS))
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)
    keyring = Keyring(tmp_path / "keys")
    packed(tmp_path / "case", keyring, file.getvalue())
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(ArchiveInvalid):
        read_case(tmp_path / "case", target, keyring)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case", "target"]


def test_one_that_was_cut_off_or_changed_raises_declared_errors_only(tmp_path):
    keyring = Keyring(tmp_path / "keys")
    path = write(tmp_path / "case", keyring, incident_json=b"{}", life__stderr=bytes(range(256)) * 40)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            path.write_bytes(data)
            target = tmp_path / f"target-{at}-{len(data)}"
            target.mkdir()
            try:
                read_case(path, target, keyring)
            except ReliveError:
                continue


class Home:
    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.settings = Settings(home=place)
        self.store = Store(self.settings.store)

    def take(self, case: Path, directory: Path) -> tuple[int, bool]:
        directory.mkdir()
        taken = ingest_case(self.settings, self.store, case, b"s" * 32, directory)
        return taken.number, taken.is_new


def seen_in(home: Home, *, times: int = 1) -> int:
    """An incident with evidence, a recording and a log; the commit before it was taken at second 1000."""
    before = commit(home.store, wall_ns=1000 * SECOND, sequence=2)
    paths = LifePaths(home.settings.capsules / "pay" / "L1")
    writer = RecordingWriter(paths.recording, keep_bytes=1 << 20)
    for seconds in (499, 500, 501, 502, 900):
        at = (seconds * SECOND, (500 + seconds) * SECOND)
        writer.append(EventKind.NOTE, 0, 1, b"data", {"at": seconds}, at=at)
    writer.close()
    paths.io.mkdir(parents=True)
    paths.logs[1].write_bytes(b"before\nit failed\nafter\n")
    sighting = Sighting(
        kind=FailureKind.ANSWER,
        fingerprint="f",
        summary="it failed",
        seen_wall_ns=1001 * SECOND,
        log_begin=7,
    )
    incidents = Incidents(home.settings.incidents)
    one = incidents.add("pay", "L1", sighting, before=before.id, at=None, log_end=17, log_tail=["it failed"])
    if times > 1:
        incidents.save(one.model_copy(update={"times": times}))
    store_evidence(home.settings.incidents, one.number, Evidence(None, [], request=b"GET / HTTP/1.1\r\n\r\n"))
    return one.number


def test_an_incident_comes_with_what_a_replay_reads_and_no_more(tmp_path):
    """The numbers of both homes have nothing to do with each other; what came after the failure stays at home."""
    home, other = Home(tmp_path / "one"), Home(tmp_path / "two")
    number = seen_in(home)
    incident = Incidents(home.settings.incidents).get(number)
    pack_case(home.settings, home.store, incident, tmp_path / "case")
    assert seen_in(other) == number, "another incident has its number, and another life its name"
    assert other.take(tmp_path / "case", tmp_path / "a") == (2, True)
    assert other.take(tmp_path / "case", tmp_path / "b") == (2, False)

    came = Incidents(other.settings.incidents).get(2)
    assert came.origin is not None
    assert (came.origin.number, came.sighting, came.before) == (1, incident.sighting, incident.before)
    assert came.life.startswith("L1~"), "a life of this host has its name"
    assert incident_id(other.store, came) == incident_id(home.store, incident)
    assert request_of(other.settings.incidents, 2) == b"GET / HTTP/1.1\r\n\r\n"
    assert events_of(other.settings.incidents, 2) == []
    paths = LifePaths(other.settings.capsules / "pay" / came.life)
    told = [event.fields["at"] for event in Recording(paths.recording).events()]
    assert told[-1] == 502
    assert 900 not in told
    assert paths.logs[1].read_bytes()[7:] == b"it failed\n"
    assert b"after" not in paths.logs[1].read_bytes()


def test_one_that_was_seen_again_replaces_the_earlier_one_and_keeps_its_number(tmp_path):
    home, other = Home(tmp_path / "one"), Home(tmp_path / "two")
    incidents = Incidents(home.settings.incidents)
    number = seen_in(home)
    for times, is_new in ((1, True), (2, False)):
        incidents.save(incidents.get(number).model_copy(update={"times": times}))
        pack_case(home.settings, home.store, incidents.get(number), tmp_path / f"case-{times}")
        assert other.take(tmp_path / f"case-{times}", tmp_path / f"at-{times}") == (1, is_new)
        assert Incidents(other.settings.incidents).get(1).times == times


def test_at_home_it_is_known_again(tmp_path):
    home = Home(tmp_path / "one")
    number = seen_in(home)
    pack_case(home.settings, home.store, Incidents(home.settings.incidents).get(number), tmp_path / "case")
    assert home.take(tmp_path / "case", tmp_path / "a") == (number, False)
    assert len(Incidents(home.settings.incidents).list()) == 1
