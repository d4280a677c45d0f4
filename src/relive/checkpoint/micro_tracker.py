"""The processes that track a tree for micro-commits, one for each; ``native/micro.c`` describes their protocol.

The first speaks for all. They are one process group, so that all end at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_record import FullCommitNeeded
from relive.kernel.children import read_until

__all__ = ["DISTRUSTED", "KernelDistrusted", "MicroTracker", "TrackerDied", "is_of_memory"]

_FILTERS_OF_CAPSULES = 2  # of ``relive.kernel.seccomp``; neither ends a process
_ANSWER_WITHIN = 30.0  # [s]
_ENDS_WITHIN = 5.0  # [s]
# As native/micro/base.h has them: with what a reason begins, and ends where it is about memory's counters.
DISTRUSTED = "the kernel's objects do not tell what they are taken to tell"
_UNCOUNTED = "changed, and that was not counted"


class TrackerDied(FullCommitNeeded):
    """It may have held something of the process."""

    def __init__(self) -> None:
        super().__init__("the tracker has died")


class KernelDistrusted(FullCommitNeeded):
    """What was asked is not what the kernel's objects told: other commits since the last comparison may hold what had changed."""


def is_of_memory(reason: str) -> bool:
    """Of a reason that begins with ``DISTRUSTED``: it was the counters of memory that misled."""
    return reason.endswith(_UNCOUNTED)


class MicroTracker:
    """Of one tree. Every method raises FullCommitNeeded when the tracker refuses, has died or says nothing; it has ended then.

    Args:
        pids: of all processes, the root first.
        is_capsule: their seccomp filters are Relive's.
        asks: for everything in each commit, whatever the kernel's objects tell.
    """

    def __init__(
        self, tools: CriuTools, pids: Sequence[int], *, is_capsule: bool, asks: bool = False
    ) -> None:
        self._count = len(pids)
        filters = _FILTERS_OF_CAPSULES if is_capsule else 0
        try:
            self._process = subprocess.Popen(
                [str(tools.micro), *(["ask"] if asks else []), str(filters), *map(str, pids)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise FullCommitNeeded(f"the tracker cannot be started: {error}") from error
        self._expect("tracked")

    @property
    def pid(self) -> int:
        """Of the first; it leads a session, in which all are."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """It has not ended."""
        return self._process.poll() is None

    def files(self, target: Path) -> list[Path]:
        """What is written for each process where ``look`` or ``stop`` was given a name."""
        return [target, *(Path(f"{target}.{number}") for number in range(1, self._count))]

    def begin_base(self) -> None:
        """Have what is written from now on noted; a commit of all of it is to follow."""
        self._send("base")
        self._expect("ok")

    def look(self, target: Path) -> None:
        """Have written down what is seen of the process, which somebody holds."""
        self._send(f"look {target}")
        self._expect("ok")

    def expect(self, path: Path) -> None:
        """Where files are as that file says (``expected_files``), the process does not wait for us in the next pause."""
        self._send(f"expect {path}")
        self._expect("ok")

    def stop(self, target: Path) -> bool:
        """Stop the process and copy what has changed.

        Returns whether it waits for us, so that ``go`` has to follow soon. Else all was as expected, and it runs on: what was
        copied was written to the file that was named.
        """
        self._send(f"commit {target}")
        return self._expect("stopped", "done") == "stopped"

    def go(self) -> None:
        """Have it run on, and what was copied written to the file that was named."""
        self._send("go")
        self._expect("done")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            self.close()
            raise TrackerDied from error

    def _expect(self, *wanted: str) -> str:
        answer = self._read_line()
        word, _, reason = answer.partition(" ")
        if word not in wanted:
            self.close()
            if reason.startswith(DISTRUSTED):
                raise KernelDistrusted(reason)
            if reason:
                raise FullCommitNeeded(reason)
            raise TrackerDied
        return word

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        said = read_until(self._process.stdout, b"\n", _ANSWER_WITHIN)
        return said.decode(errors="replace").strip() if said.endswith(b"\n") else ""

    def close(self) -> None:
        """End it, and with it the tracking; the process it tracked runs on. Doing it twice is no error."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        # One may be stopped, or wait for a thread that does not stop: nothing is lost by its death.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        # Each has a copy of the pipe: by its end all have ended, and let go of what they held.
        if not process.stdout.closed:
            read_until(process.stdout, b"\0", _ENDS_WITHIN)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS_WITHIN)
        process.stdout.close()
