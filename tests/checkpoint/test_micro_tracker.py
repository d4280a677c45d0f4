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

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_record import FullCommitNeeded
from relive.checkpoint.micro_tracker import MicroTracker
from relive.config import load_settings
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
    tracker = MicroTracker(CriuTools(load_settings().tools_path), waits.pid, is_capsule=False)
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
