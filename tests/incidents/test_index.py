"""The index of incidents says what their files say, whatever happened to it, to them or to who wrote them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from model.test_failure import changed
from relive.incidents import index
from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import IncidentQuery, Incidents
from relive.model.commit import CommitId

from .test_incidents import AT, BEFORE, add, sighting

LATER = CommitId("c" * 64)


@pytest.fixture
def directory(tmp_path) -> Path:
    return tmp_path / "incidents"


@pytest.fixture
def incidents(directory) -> Incidents:
    return Incidents(directory)


def numbers(incidents: Incidents, **asked: str) -> list[int]:
    return [one.number for one in incidents.page(IncidentQuery(**asked)).items]  # type: ignore[arg-type]


@pytest.fixture
def unfollowed(monkeypatch):
    """Only what writers enter is known: so it shows whether they do."""
    monkeypatch.setattr(index.IncidentIndex, "follow", lambda *_, **__: None)


def test_who_writes_an_incident_enters_it(incidents, unfollowed):
    one = add(incidents)
    assert numbers(incidents) == [1]
    incidents.save(one.model_copy(update={"times": 5}))
    assert [line.times for line in incidents.page().items] == [5]


def test_who_lays_a_package_beside_it_enters_its_exception(incidents, directory, unfollowed):
    one = add(incidents)
    store_evidence(directory, one.number, Evidence(changed(), []))
    (line,) = incidents.page().items
    assert line.exception.startswith("KeyError")
    assert numbers(incidents, text="keyerror") == [1]


def lose(place: Path) -> None:
    shutil.rmtree(place)


def scribble(place: Path) -> None:
    for path in place.glob("incidents.sqlite-*"):
        path.unlink()
    (place / "incidents.sqlite").write_bytes(b"no database at all" * 1000)


def scribble_inside(place: Path) -> None:
    """The head is whole, so that it opens."""
    with closing(sqlite3.connect(place / "incidents.sqlite")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = place / "incidents.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))


def empty(place: Path) -> None:
    lose(place)
    place.mkdir()
    (place / "incidents.sqlite").touch()


@pytest.mark.parametrize("damage", [lose, scribble, scribble_inside, empty])
def test_a_damaged_index_is_made_anew(incidents, directory, damage):
    for _ in range(3):
        add(incidents, at=AT)
    assert numbers(incidents) == [3, 2, 1]
    damage(directory / "index")
    assert numbers(incidents) == [3, 2, 1]
    damage(directory / "index")
    assert add(incidents).number == 4
    assert incidents.pinned() == {BEFORE, AT}
    assert numbers(incidents) == [4, 3, 2, 1]


def test_of_two_who_make_it_the_second_drops_nothing(incidents, unfollowed, monkeypatch):
    """GIVEN one that saw no index yet; WHEN another makes it and enters an incident before the first does; THEN it stays."""
    add(incidents)
    true = index._version_of
    answers = iter([0])
    monkeypatch.setattr(index, "_version_of", lambda database: next(answers, true(database)))
    assert numbers(incidents) == [1]
    with pytest.raises(StopIteration):
        next(answers)


def test_what_comes_and_goes_without_a_word_is_found(incidents, directory, tmp_path):
    """As from an agent of an older Relive, or one that was killed before it could enter what it had written."""
    add(incidents)
    numbers(incidents)
    other = Incidents(tmp_path / "other")
    one = add(other).model_copy(update={"number": 2, "before": LATER})
    (directory / "2.json").write_text(one.model_dump_json())
    assert numbers(incidents) == [2, 1]
    assert LATER in incidents.pinned()
    (directory / "2.json").unlink()
    assert numbers(incidents) == [1]
    assert LATER not in incidents.pinned()


def test_a_directory_that_was_copied_is_listed_as_it_is(incidents, directory, tmp_path):
    for _ in range(2):
        add(incidents)
    numbers(incidents)
    shutil.copytree(directory, tmp_path / "copy")
    (tmp_path / "copy" / "1.json").unlink()
    assert numbers(Incidents(tmp_path / "copy")) == [2]


def test_nothing_is_read_again_when_nothing_has_changed(incidents, directory, monkeypatch):
    add(incidents)
    os.utime(directory, ns=(10**18, 10**18))  # long ago
    assert numbers(incidents) == [1]
    monkeypatch.setattr(index.IncidentIndex, "_compare", lambda _: pytest.fail("it was compared"))
    assert numbers(incidents) == [1]
    assert incidents.pinned() == {BEFORE}


def test_a_long_comparison_is_not_made_for_each_page_but_always_for_what_is_pinned(
    incidents, directory, monkeypatch
):
    """Else pages would be slow while incidents arrive. What their writers enter is there at once in any case."""
    add(incidents)
    monkeypatch.setattr(index, "QUICK_NS", -1)
    monkeypatch.setattr(index, "SHARE", 10**9)
    assert numbers(incidents) == [1]
    add(incidents)
    assert numbers(incidents) == [2, 1]
    one = incidents.get(1).model_copy(update={"number": 3, "before": LATER})
    (directory / "3.json").write_text(one.model_dump_json())
    assert numbers(incidents) == [2, 1]
    assert LATER in incidents.pinned()
    assert numbers(incidents) == [3, 2, 1]


def test_where_the_index_cannot_be_written_all_is_known_all_the_same(incidents, directory):
    """As on a full disk: `relive retain` must be able to free space, and must not drop what incidents need."""
    add(incidents)
    shutil.rmtree(directory / "index")
    (directory / "index").write_text("in its way")
    assert numbers(incidents, text="failed") == [1]
    assert incidents.pinned() == {BEFORE}
    assert add(incidents).number == 2
    assert numbers(incidents) == [2, 1]


def test_threads_that_write_and_read_at_once_agree_in_the_end(incidents):
    def work(_: int) -> None:
        one = add(incidents)
        assert one.number in numbers(incidents)
        incidents.save(one.model_copy(update={"times": 2}))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(12)))
    assert [(one.number, one.times) for one in incidents.page().items] == [(n, 2) for n in range(12, 0, -1)]


WRITER = """
import sys
from pathlib import Path
from relive.incidents.incidents import Incidents
from incidents.test_incidents import add
for _ in range(8):
    add(Incidents(Path(sys.argv[1])))
"""


def test_processes_that_begin_at_once_share_one_index(incidents, directory):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    agents = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], env=environment) for _ in range(3)
    ]
    assert [agent.wait() for agent in agents] == [0, 0, 0]
    assert numbers(incidents) == list(range(24, 0, -1))
    with closing(sqlite3.connect(directory / "index" / "incidents.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM incidents").fetchone() == (24,)


def test_a_value_that_may_be_a_secret_is_not_searched(incidents):
    """Else one could find out, letter by letter, what the list does not show."""
    seen = sighting(summary="request 7 (GET /pay?token=hunter2&x=1) was answered")
    incidents.add("pay", "L1", seen, before=None, at=None, log_end=0, log_tail=[])
    assert numbers(incidents, text="/pay?token") == [1]
    assert numbers(incidents, text="hunter") == []
