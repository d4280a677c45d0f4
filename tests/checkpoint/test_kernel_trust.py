"""A kernel in which a member has come to mean something else is noticed, and not believed any more. With the real tracker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Never

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_trust import KernelTrust
from relive.checkpoint.micro_tracker import DISTRUSTED, KernelDistrusted, MicroTracker
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.uncompared import key_of, path_of
from relive.cli.show_cmd import describe_commit
from relive.config import load_settings
from relive.errors import RestoreFailed
from relive.model.commit import Manifest
from relive.operations.commits import CommitsParams, page_of_commits, show_commit
from relive.operations.progress import Silent
from relive.sandbox.restore_request import RestoreRequest
from relive.sandbox.restoring import restore
from support.misled_kernel import misled, misplaced

from .test_micro_commits import PROGRAMS, TRIES, Taking, Told, kernel_says
from .test_micro_unchanged import Changing, Tracking

needs_kernel = pytest.mark.skipif(kernel_says() != "ok", reason="the kernel's objects cannot be read here")


PROCMAP_QUERY, NO_QUERY = b"\x11\x66\x68\xc0", b"\xff\x66\x68\xc0"  # linux/fs.h, as the program holds it
Mislead = Callable[[str, str, str], None]


@pytest.fixture
def mislead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mislead:
    """Trackers that are started from now on see another description."""

    def run(structure: str, member: str, other: str) -> None:
        micro = CriuTools(load_settings().tools_path).micro
        monkeypatch.setattr(CriuTools, "micro", misled(micro, tmp_path, misplaced(structure, member, other)))

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Changing]]:
    """A program that changes what it is told to."""
    (tmp_path / "empty").mkdir()
    started: list[Changing] = []

    def run(*words: str) -> Changing:
        started.append(Changing(tmp_path / "empty", *words))
        return started[-1]

    yield run
    for one in started:
        one.end()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    found = Told(sys.executable, PROGRAMS / "micro_traps.py", tmp_path / "written")
    yield found
    found.end()


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@needs_kernel
def test_what_changed_without_its_member_is_noticed(
    start: Callable[..., Changing], mislead: Mislead, tmp_path: Path
) -> None:
    mislead("file", "f_flags", "f_mode")
    changing = start()
    tracking = Tracking(changing.process.pid, tmp_path)
    try:
        tracking.begin()
        changing.change("flags")
        with pytest.raises(KernelDistrusted, match=f"of descriptor {changing.number_of('file')} it is"):
            tracking.commit()
    finally:
        tracking.close()


@needs_kernel
def test_where_a_connection_stands_is_compared_each_time_it_is_asked(
    start: Callable[..., Changing], mislead: Mislead, tmp_path: Path
) -> None:
    mislead("tcp_sock", "snd_wl1", "snd_una")
    changing = start("connection")
    changing.change("connected")
    tracking = Tracking(changing.process.pid, tmp_path)
    try:
        with pytest.raises(KernelDistrusted, match="where it stands"):
            tracking.begin()
    finally:
        tracking.close()


def commit_again_and_again(tracking: Tracking) -> None:
    for _ in range(200):
        tracking.commit()
        tracking.begin()


@needs_kernel
@pytest.mark.parametrize(
    ("member", "other", "change", "found"),
    [
        ("mm_lock_seq", "start_code", "mapped", "its mappings changed"),
        ("mm_lock_seq", "start_code", "advised", "advice for its mappings changed"),
        ("tlb_gen", "ctx_id", "pages come and go", "pages of its memory changed"),
    ],
)
def test_what_a_counter_of_memory_does_not_count_is_noticed(
    start: Callable[..., Changing],
    mislead: Mislead,
    tmp_path: Path,
    member: str,
    other: str,
    change: str,
    found: str,
) -> None:
    """In the first commit of a base that believes it; pages go at some of these moments only, so there are many bases."""
    mislead("", member, other)
    changing = start("memory")
    tracking = Tracking(changing.process.pid, tmp_path)
    try:
        for _ in range(2):  # where it is believed all objects are known
            tracking.begin()
        changing.change(change)
        with pytest.raises(KernelDistrusted, match=found):
            commit_again_and_again(tracking)
    finally:
        tracking.close()


@needs_kernel
def test_a_kernel_that_cannot_be_asked_for_one_mapping_is_believed(
    start: Callable[..., Changing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.11 (``PROCMAP_QUERY``, here under a number that no kernel has) the list is read again instead."""
    micro = CriuTools(load_settings().tools_path).micro
    program = micro.read_bytes()
    assert PROCMAP_QUERY in program
    older = tmp_path / "older"
    older.write_bytes(program.replace(PROCMAP_QUERY, NO_QUERY))
    older.chmod(0o755)
    monkeypatch.setattr(CriuTools, "micro", older)
    tracking = Tracking(start().process.pid, tmp_path)
    try:
        for _ in range(3):
            tracking.begin()
            tracking.commit()
    finally:
        tracking.close()


@needs_kernel
def test_a_kernel_that_misled_is_not_believed_any_more(told: Told, taking: Taking, mislead: Mislead) -> None:
    """The commit is a full one, and others are taken on top of it by asking for everything, also after the next start."""
    mislead("file", "f_flags", "f_mode")
    trust = KernelTrust(taking.settings.home)
    taking.base(told.pid)
    taking.captures.clear()
    taking.follow(told, "nothing")
    assert trust.lost() is None
    believed = taking.captures[-1]
    told.ask("flags of a file")
    taking.reasons.clear()
    assert not taking.commit(told.pid)
    suspects = SuspectCaptures(taking.settings.home)
    assert suspects.holds(believed)
    assert not suspects.holds(taking.captures[-1]), "it is a full one"
    assert taking.reasons
    assert "objects do not tell" in taking.reasons[0]
    assert trust.lost() == taking.reasons[0]
    taking.base(told.pid)
    taking.follow(told, "nothing")
    tracker = taking.micro.process
    assert tracker is not None
    assert "ask" in Path(f"/proc/{tracker}/cmdline").read_text().split("\0")


def one_that_believes_memory(told: Told, taking: Taking) -> Manifest:
    """On top of a base of its own, whose first commit on top is compared, and is right."""
    taking.base(told.pid)
    for _ in range(3 * TRIES):
        taking.micro._refusals = 0
        stored = taking.take(told.pid).store(taking.store, [])
        if taking.micro.reason is None and taking.micro._believes_memory:
            return taking.store.manifest(stored.id)
        taking.micro.reason = None
    pytest.fail("none is taken that believes it")


@needs_kernel
def test_pages_that_are_right_in_one_commit_clear_no_other(
    told: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of the base before is suspect, too, where they are found wrong."""
    taken = [one_that_believes_memory(told, taking) for _ in range(2)]
    suspects = SuspectCaptures(taking.settings.home)
    assert not any(map(suspects.is_suspect, taken))

    def stop(tracker: MicroTracker, _: Path) -> bool:
        tracker.close()
        raise KernelDistrusted(f"{DISTRUSTED}: pages of its memory changed, and that was not counted")

    monkeypatch.setattr(MicroTracker, "stop", stop)
    assert not taking.commit(told.pid)
    assert all(map(suspects.is_suspect, taken))


def test_another_kernel_is_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = KernelTrust(tmp_path)
    assert trust.lost() is None
    trust.lose("it misled")
    assert KernelTrust(tmp_path).lost() == "it misled"
    about = os.uname()
    other = os.uname_result((*about[:2], "7.0.0", *about[3:]))
    monkeypatch.setattr(os, "uname", lambda: other)
    assert trust.lost() is None


def test_what_cannot_be_read_is_no_reason_to_believe(tmp_path: Path) -> None:
    trust = KernelTrust(tmp_path)
    trust.path.write_text("{")
    assert str(trust.path) in str(trust.lost())


def test_a_commit_that_may_be_wrong_is_not_restored(told: Told, taking: Taking) -> None:
    """It is said where it is shown, and stays so when the kernel is believed again; others are not touched."""
    suspects = SuspectCaptures(taking.settings.home)
    right, wrong = (taking.take(told.pid).store(taking.store, []) for _ in range(2))
    suspects.add([wrong.capture])
    shown = [show_commit(taking.settings, one.id) for one in (wrong, right)]
    assert [(one.suspect, one.uncompared) for one in shown] == [(True, True), (False, False)], (
        "the second is a full one"
    )
    assert all(word in describe_commit(shown[0]) for word in ("Suspect:", "Compared: not"))
    listed = page_of_commits(taking.settings, CommitsParams(), Silent()).items
    assert {one.id: one.suspect for one in listed} == {wrong.id: True, right.id: False}
    # What cannot be read is told as what it may be, and hides nothing else.
    path = path_of(taking.settings.home, key_of(shown[1].target.life, shown[1].target.name))
    readable, said = path.read_bytes(), suspects.path.read_bytes()
    path.write_bytes(b"")
    assert [
        show_commit(taking.settings, right.id).uncompared,
        show_commit(taking.settings, right.id).suspect,
    ] == [True, False]
    suspects.add_uncompared("any", of_memory=False)
    listed = page_of_commits(taking.settings, CommitsParams(), Silent()).items
    assert [one.suspect for one in listed] == [True, True]
    path.write_bytes(readable)
    suspects.path.write_bytes(said)

    class Reached(Exception):
        pass

    def make_root(*_: object) -> Never:
        raise Reached

    with pytest.raises(RestoreFailed, match="not restored") as refused:
        restore(taking.settings, taking.store, wrong.id, RestoreRequest(), make_root)
    assert str(suspects.path) in str(refused.value.remedy)
    with pytest.raises(Reached):
        restore(taking.settings, taking.store, right.id, RestoreRequest(), make_root)
    # Another agent of the host finds the kernel wrong: this one's tracker has believed it.
    taking.base(told.pid)
    KernelTrust(taking.settings.home).lose("it misled")
    taking.reasons.clear()
    assert not taking.commit(told.pid) and "by another agent" in taking.reasons[0]


def test_suspects_are_added_to_those_before(tmp_path: Path) -> None:
    SuspectCaptures(tmp_path).add(["a", "b"])
    SuspectCaptures(tmp_path).add(["c"])
    assert [SuspectCaptures(tmp_path).holds(one) for one in "abcd"] == [True, True, True, False]
