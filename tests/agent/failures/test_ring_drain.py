"""Draining rings: nothing that a service writes ends the thread that does it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inprocess.conftest import INPROCESS
from relive.agent.commits.protection import Protection
from relive.agent.failures.ring_drain import InsideDrain
from relive.config import load_settings
from relive.recording.events import Event
from relive.recording.packed_batch import RING_LIBRARY, PackingLibrary
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

sys.path.insert(0, str(INPROCESS))
from relive_recorder.ring import Ring

sys.path.remove(str(INPROCESS))

LIBRARY_PATH = load_settings().tools_path / RING_LIBRARY
LIBRARY = PackingLibrary(LIBRARY_PATH)
RECORD = '[%d,%d,5,"note",1,1,3,%s]'


def drain_of(
    directory: Path, seen: list[Event], *, alive: bool = True, protection: Protection | None = None
) -> InsideDrain:
    return InsideDrain(
        directory,
        directory / "inside",
        beginnings=directory / "beginnings.jsonl",
        keep_bytes=1 << 20,
        body_bytes=100,
        is_alive=lambda _pid, _made: alive,
        on_failure=seen.append,
        protection=protection or Protection(),
        packing=LIBRARY,
    )


@pytest.mark.parametrize("fields", [f'{{"n":{1 << 80}}}', f'{{"n":[{{"deep":{-(1 << 70)}}}]}}'])
def test_what_a_recording_cannot_hold_is_left_out_and_the_rest_is_kept(tmp_path: Path, fields: str) -> None:
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    seen: list[Event] = []
    drain = drain_of(tmp_path, seen)
    for number, text in enumerate(("{}", fields, "{}"), 1):
        ring.write(number, (RECORD % (number, number, text)).encode(), b"")
        drain.drain()
    drain.close()
    assert [event.fields["own_seq"] for event in Recording(tmp_path / "inside").events()] == [1, 3]


@pytest.mark.parametrize("length", [0, 40, 4096])
def test_a_ring_that_is_cut_short_is_left_alone_and_the_others_go_on(tmp_path: Path, length: int) -> None:
    cut, whole = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1), Ring(str(tmp_path / "8-b.ring"), 1 << 16, 1)
    drain = drain_of(tmp_path, [])
    cut.write(1, (RECORD % (1, 1, "{}")).encode(), b"")
    drain.drain()
    os.truncate(cut.path, length)
    for number in (1, 2):
        whole.write(number, (RECORD % (number, number, "{}")).encode(), b"")
        drain.drain()
    cut.forget()
    drain.close()
    events = Recording(tmp_path / "inside").events()
    assert [event.fields["own_seq"] for event in events if event.fields["pid"] == 8] == [1, 2]


def test_a_body_that_is_longer_than_allowed_is_not_kept_and_its_event_is(tmp_path: Path) -> None:
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    drain = drain_of(tmp_path, [])
    for number, size in ((1, 100), (2, 101)):
        (tmp_path / f"7-{number}.body").write_bytes(bytes(size))
        fields = f'{{"file":"7-{number}.body"}}'
        ring.write(number, (RECORD % (number, number, fields)).encode(), b"")
    drain.drain()
    drain.close()
    assert len(list(Recording(tmp_path / "inside").events())) == 2
    assert [path.name for path in (tmp_path / "inside" / "bodies").iterdir()] == ["7-1.body"]


def test_its_thread_takes_what_is_written_into_a_ring_that_it_knows_and_into_a_new_one(
    tmp_path: Path,
) -> None:
    """Nobody asks it to: the first it finds by looking at known rings, the second by its name."""
    seen: list[Event] = []
    drain = drain_of(tmp_path, seen)
    failure = '[%d,%d,5,"failure",1,1,3,{}]'
    for name in ("7-a.ring", "8-b.ring"):
        ring = Ring(str(tmp_path / name), 1 << 16, 1)
        for number in (1, 2, 3):
            known = len(seen)
            ring.write(number, (failure % (number, number)).encode(), b"")
            while len(seen) == known:
                assert drain._thread.is_alive()
    drain.close()
    assert [(one.fields["pid"], one.fields["own_seq"]) for one in seen] == [
        (pid, number) for pid in (7, 8) for number in (1, 2, 3)
    ]


def test_the_ring_of_a_process_that_ends_is_removed_by_its_thread(tmp_path: Path) -> None:
    alive = [True]
    drain = InsideDrain(
        tmp_path,
        tmp_path / "inside",
        beginnings=tmp_path / "beginnings.jsonl",
        keep_bytes=1 << 20,
        body_bytes=100,
        is_alive=lambda _pid, _made: alive[0],
        on_failure=lambda _event: None,
        protection=Protection(),
        packing=LIBRARY,
    )
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    drain.drain()
    ring.write(1, (RECORD % (1, 1, "{}")).encode(), b"")
    alive[0] = False
    while Path(ring.path).exists():
        assert drain._thread.is_alive()
    drain.close()
    assert [event.fields["own_seq"] for event in Recording(tmp_path / "inside").events()] == [1]


KILLED = """
import os, sys
from pathlib import Path
from relive.agent.failures import ring_drain as inside
from relive.agent.commits.protection import Protection
from relive.recording.packed_batch import PackingLibrary
place, moment = Path(sys.argv[1]), sys.argv[2]
die = lambda *_: os.kill(os.getpid(), 9)
owner, name = {"written": (inside.RingReader, "note_taken"), "taken": (inside.RecordingWriter, "flush")}[moment]
setattr(owner, name, die)
inside.InsideDrain(place, place / "inside", beginnings=place / "beginnings.jsonl", keep_bytes=1 << 20, body_bytes=100,
    is_alive=lambda _pid, _made: False, on_failure=lambda _event: None, protection=Protection(),
    packing=PackingLibrary(Path(sys.argv[3]))).drain()
"""


@pytest.mark.parametrize("moment", ["taken", "written"])
def test_an_agent_killed_while_it_takes_loses_nothing_and_doubles_nothing(
    tmp_path: Path, moment: str
) -> None:
    """The process is gone: what it said last is in its ring and nowhere else, and is what is wanted most."""
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    for number in (1, 2, 3):
        ring.write(number, (RECORD % (number, number, "{}")).encode(), b"")
    ring.forget()
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path, moment, LIBRARY_PATH], check=False)
    assert done.returncode == -signal.SIGKILL
    drain = drain_of(tmp_path, [], alive=False)
    drain.drain()
    drain.close()
    events = Recording(tmp_path / "inside").events()
    assert [event.fields["own_seq"] for event in events] == [1, 2, 3]
    assert not (tmp_path / "7-a.ring").exists()


def test_no_error_ends_the_draining_and_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(str(tmp_path / "7-a.ring"), 1 << 16, 1)
    ring.write(1, (RECORD % (1, 1, "{}")).encode(), b"")
    flush, failing = RecordingWriter.flush, threading.Event()

    def fail(writer: RecordingWriter) -> None:
        if not failing.is_set():
            failing.set()
            raise ZeroDivisionError("nobody thought of it")
        flush(writer)

    monkeypatch.setattr(RecordingWriter, "flush", fail)
    protection = Protection()
    drain = drain_of(tmp_path, [], protection=protection)
    assert failing.wait(30)
    while not (troubles := protection.as_json()):
        assert drain._thread.is_alive()
    assert [one["part"] for one in troubles] == ["inside"]
    assert "nobody thought of it" in str(troubles[0]["cause"])
    while protection.as_json():
        assert drain._thread.is_alive()
    drain.close()
    assert [event.fields["own_seq"] for event in Recording(tmp_path / "inside").events()] == [1]
