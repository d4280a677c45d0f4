"""What a process loses by a commit on top of another that is refused: nothing. With the real tracker."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.expected_files import ExpectedFiles
from relive.checkpoint.micro_record import FullCommitNeeded, read_record
from relive.checkpoint.micro_tracker import MicroTracker
from relive.config import load_settings
from relive.kernel.procfs import write_calls
from support.waiting import eventually

from .test_micro_commits import PROGRAMS, Told

_TGKILL, _SIGRTMIN = 234, 34


@pytest.fixture
def waits(tmp_path: Path) -> Iterator[Told]:
    made = tmp_path / "waits_in_vfork"
    source = PROGRAMS / "waits_in_vfork.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", made, source], check=True)
    process = Told(made)
    yield process
    process.end()


def test_no_signal_is_lost_when_one_thread_does_not_stop(waits: Told, tmp_path: Path) -> None:
    """The others may stand right before a signal then, of which the tracker has heard nothing yet."""
    tracker = MicroTracker(CriuTools(load_settings().tools_path), [waits.pid], is_capsule=False)
    threads = [int(one) for one in os.listdir(f"/proc/{waits.pid}/task") if int(one) != waits.pid]
    assert waits.ask("wait") == "waits"
    children = Path(f"/proc/{waits.pid}/task/{waits.pid}/children")
    assert eventually(children.read_text, "the child of vfork")
    libc, is_over = ctypes.CDLL(None, use_errno=True), threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        for thread in itertools.cycle(threads):
            if is_over.is_set():
                return
            time.sleep(0.00002)
            sent += (
                libc.syscall(_TGKILL, waits.pid, thread, _SIGRTMIN) == 0
            )  # fails while too many wait to be taken

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(FullCommitNeeded, match="does not stop"):
            tracker.stop(tmp_path / "record")
    finally:
        is_over.set()
        sender.join()
        tracker.close()
    assert int(waits.ask("go on")) <= sent
    assert eventually(lambda: int(waits.ask("count")) == sent)


def test_it_waits_for_nobody_only_while_all_files_are_as_expected(waits: Told, tmp_path: Path) -> None:
    tracker = MicroTracker(CriuTools(load_settings().tools_path), [waits.pid], is_capsule=False)
    held, other, link = tmp_path / "a name", tmp_path / "other", tmp_path / "link"
    held.write_bytes(bytes(16))
    other.write_text("two")
    link.symlink_to(held)

    def is_waited_for(expected: ExpectedFiles | None) -> bool:
        if expected is not None:
            (tmp_path / "expected").write_bytes(expected.encode())
            tracker.expect(tmp_path / "expected")
        is_waited = tracker.stop(tmp_path / "record")
        if is_waited:
            tracker.go()
        assert read_record(tmp_path / "record").pause_ns > 0
        return is_waited

    def good() -> ExpectedFiles:
        found = ExpectedFiles()
        found.same(str(held), held.lstat())
        found.same(str(link), link.stat(), follow=True)
        found.absent(str(tmp_path / "absent"))
        found.word(str(held), 8, 0)
        found.no_writing(write_calls(waits.pid) or 0)
        return found

    def with_one(*words: Any, kind: str, **options: Any) -> ExpectedFiles:
        found = good()
        getattr(found, kind)(*words, **options)
        return found

    try:
        assert not is_waited_for(good())
        assert is_waited_for(None)  # what was expected once is not expected for good
        assert is_waited_for(with_one(str(held), other.stat(), kind="same"))
        assert is_waited_for(with_one(str(link), held.stat(), kind="same"))
        assert is_waited_for(with_one(str(held), kind="absent"))
        assert is_waited_for(with_one(str(held / "below"), kind="absent"))
        assert is_waited_for(with_one(str(held), 0, 1, kind="word"))
        assert is_waited_for(with_one(str(held), 12, 0, kind="word"))
        changed = good()
        held.chmod(0o640)
        assert is_waited_for(changed)
        counted = good()
        waits.ask("wait")
        waits.ask("go on")
        assert is_waited_for(counted)  # what it wrote may have been under way when it was counted
        assert not is_waited_for(good())
        for damaged in (good().encode()[:-4], b"p 1 2 /\0end\0", b"q\0end\0"):
            (tmp_path / "expected").write_bytes(damaged)
            with pytest.raises(FullCommitNeeded, match="cannot be read"):
                tracker.expect(tmp_path / "expected")
            tracker = MicroTracker(CriuTools(load_settings().tools_path), [waits.pid], is_capsule=False)
    finally:
        tracker.close()
