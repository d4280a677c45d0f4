"""Archives with incidents: what a replay of them needs goes along in one file, and what was changed of it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.errors import ArchiveInvalid, KeyMissing, ObjectCorrupt, SignatureInvalid, StoreVersionUnknown
from relive.incidents.evidence import request_of
from relive.incidents.incidents import Incidents
from relive.operations.imports import import_archive
from relive.remotes.archive import ArchiveContents, entry
from relive.remotes.case_transfer import meant
from relive.remotes.exporting import export
from relive.remotes.imported import Imported
from relive.remotes.incident_records import packed
from store.builders import commit

from .conftest import HERE, silent
from .test_archive import no_keys
from .test_case_transfer import Home, seen_in

REFUSED = (ArchiveInvalid, KeyMissing, ObjectCorrupt, SignatureInvalid, StoreVersionUnknown)


def write(home: Home, ref: str, path: Path) -> Path:
    """What ``relive export`` does."""
    commit_id, incidents = meant(home.settings, home.store, ref, incidents=True)
    with packed(home.settings, home.store, incidents[0]) as ready:
        export(home.store, commit_id, path, keys=None, force=False, show=silent, incidents=[ready])
    return path


def take(home: Home, path: Path, *, incidents: bool = True) -> Imported:
    return import_archive(
        home.store,
        path,
        HERE,
        keys=no_keys,
        force=False,
        show=silent,
        settings=home.settings if incidents else None,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path, home: Home) -> Home:
    made = Home(tmp_path / "two")
    trusted = made.settings.home / "keys" / "trusted"
    trusted.mkdir(parents=True)
    (trusted / "friend.pub").write_text(home.store.internals.keyring.public_key.hex() + "\n")
    return made


def with_two_commits(home: Home) -> int:
    """An incident that needs the commit before it and the one at it, which share parts."""
    number = seen_in(home)
    incidents = Incidents(home.settings.incidents)
    incidents.save(incidents.get(number).model_copy(update={"at": commit(home.store, sequence=3).id}))
    return number


def test_an_incident_goes_through_a_file_with_its_commits(home: Home, other: Home, tmp_path: Path):
    number = with_two_commits(home)
    incident = Incidents(home.settings.incidents).get(number)
    path = write(home, f"incident/{number}", tmp_path / "one.relive")
    first = take(other, path)
    assert (first.commit, first.is_new) == (incident.before, True)
    assert [(one.number, one.is_new) for one in first.incidents] == [(1, True)]
    assert {incident.before, incident.at} <= {line.id for line in other.store.log()}
    came = Incidents(other.settings.incidents).get(1)
    assert came.sighting == incident.sighting
    assert request_of(other.settings.incidents, 1) == b"GET / HTTP/1.1\r\n\r\n"
    again = take(other, path)
    assert (again.is_new, again.bytes) == (False, 0)
    assert [(one.number, one.is_new) for one in again.incidents] == [(1, False)]


def test_of_a_commit_that_is_named_all_incidents_go(home: Home, other: Home, tmp_path: Path):
    with_two_commits(home)
    at = Incidents(home.settings.incidents).get(1).at
    assert at is not None
    taken = take(other, write(home, at, tmp_path / "one.relive"))
    assert taken.commit == at
    assert len(taken.incidents) == 1


def test_incidents_can_be_left_out_and_come_later(home: Home, other: Home, tmp_path: Path):
    path = write(home, f"incident/{with_two_commits(home)}", tmp_path / "one.relive")
    assert take(other, path, incidents=False).incidents == ()
    assert len(list(other.store.log())) == 1
    assert Incidents(other.settings.incidents).list() == []
    assert [one.is_new for one in take(other, path).incidents] == [True]


def test_a_record_in_other_bytes_is_refused_though_it_says_the_same(home: Home, other: Home, tmp_path: Path):
    """Hexadecimal digits in capital letters, of what is not signed itself: the signature."""
    path = write(home, f"incident/{with_two_commits(home)}", tmp_path / "one.relive")
    whole = path.read_bytes()
    begin = whole.index(b'"signature": "') + len(b'"signature": "')
    capital = whole[begin : begin + 128].upper()
    path.write_bytes(whole[:begin] + capital + whole[begin + 128 :])
    with pytest.raises(ObjectCorrupt):
        take(other, path)
    assert list(other.store.log()) == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_refused_before_anything_is_shown(
    data: st.DataObject, home: Home, other: Home, tmp_path: Path
):
    path = tmp_path / "one.relive"
    if not path.exists():
        write(home, f"incident/{with_two_commits(home)}", path)
    whole = bytearray(path.read_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = tmp_path / "changed.relive"
    changed.write_bytes(whole)
    with pytest.raises(REFUSED):
        take(other, changed)
    assert list(other.store.log()) == []
    assert Incidents(other.settings.incidents).list() == []


@pytest.mark.parametrize(
    "change",
    [
        {"commits": []},
        {"commits": "a" * 64},
        {"commits": ["a" * 64, "a" * 64]},
        {"commits": ["../" + "a" * 61]},
        {"commits": [["a"]]},
        {"incidents": ["../../x"]},
        {"incidents": [7]},
        {"incidents": {"b" * 32: 1}},
        {"version": [2]},
        {"more": 1},
    ],
)
def test_a_begin_that_is_none_is_refused(change: dict[str, object], other: Home, tmp_path: Path):
    told = {"version": 2, "commits": ["a" * 64], "incidents": ["b" * 32]}
    assert json.loads(ArchiveContents(("a" * 64,), ("b" * 32,)).mark()) == told  # type: ignore[arg-type]
    text = json.dumps(told | change).encode()
    path = tmp_path / "one.relive"
    path.write_bytes(b"".join(entry("relive.json", len(text), iter([text]))))
    with pytest.raises(ArchiveInvalid):
        take(other, path)
