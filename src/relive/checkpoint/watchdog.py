"""The watchdog: a small process of its own that resumes a target should a commit leave it stopped.

``native/watchdog.c`` describes what it does and its protocol. One is started per agent or command; arming is cheap.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from relive.errors import CapsuleError, ToolMissing
from relive.kernel.children import wait_or_kill

__all__ = ["Watchdog", "WatchdogPeriod"]

_ANSWER_WITHIN = 5.0  # [s] a rescue takes 2 s at most
_ANSWER_MOST = 4096  # [bytes]


class Watchdog:
    """A watchdog process, replaced by another when it is found dead; use from one thread at a time.

    Raises:
        ToolMissing: the program cannot be started.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        self._unread = b""
        self._seen: set[int] = set()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [str(self._program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,  # select() must see what has not been read
                start_new_session=True,
            )
        except OSError as error:
            raise ToolMissing(
                "the watchdog cannot be started", cause=str(error), remedy="run `make setup`"
            ) from error

    @property
    def pid(self) -> int:
        """Host pid of the watchdog's process."""
        return self._process.pid

    @contextlib.contextmanager
    def watching(self, root: int, limit: float, tool: int = 0) -> Iterator[WatchdogPeriod]:
        """Be armed for a block in which the tree of ``root`` is stopped; ``limit`` in seconds, more than 0.

        Args:
            tool: the process that stops it, where that is known already (``WatchdogPeriod.tool_is``).

        Raises:
            CapsuleError: the watchdog is dead, and so is the one started in its place; nothing has been stopped yet.
        """
        watch = WatchdogPeriod(self, root, limit)
        if root not in self._seen:
            # An earlier commit may have been killed together with its watchdog.
            watch.tool_is(0)
            watch.mend()
            self._seen.add(root)
        watch.tool_is(tool)
        try:
            yield watch
        except BaseException:
            watch.mend()
            raise
        finally:
            watch.over()

    def send_command(self, line: str) -> list[str]:
        """Send one command; returns the answers that had gathered, the last of which is to this command.

        Raises:
            CapsuleError: the watchdog does not answer; it has been ended.
        """
        process = self._process
        assert process.stdin is not None
        deadline = time.monotonic() + _ANSWER_WITHIN
        try:
            process.stdin.write(line.encode() + b"\n")
            answers = [self._answer(deadline)]
            while answers[-1].startswith("resumed"):
                answers.append(self._answer(deadline))
        except OSError:
            # One that is stopped would rescue a later commit from nothing, or itself from this one.
            process.kill()
            raise CapsuleError(
                "the watchdog does not answer",
                cause="it was killed or stopped",
                remedy="run the command again",
            ) from None
        return answers

    def _answer(self, deadline: float) -> str:
        pipe = self._process.stdout
        assert pipe is not None
        while b"\n" not in self._unread:
            readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(pipe.fileno(), _ANSWER_MOST) if readable else b""
            if not data:
                raise BrokenPipeError
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def replace(self) -> None:
        """Start another in the place of one that is dead.

        Raises:
            ToolMissing: the program cannot be started any more.
        """
        self.close()
        self._unread = b""
        self._process = self._start()

    def close(self) -> None:
        """End it. May be called more than once."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        wait_or_kill(process, _ANSWER_WITHIN)
        process.stdout.close()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WatchdogPeriod:
    """One armed period.

    Attributes:
        stepped_in: the watchdog had to act; complete once the period is over.
    """

    def __init__(self, watchdog: Watchdog, root: int, limit: float) -> None:
        self._watchdog = watchdog
        self._root = root
        self._limit = limit
        self.stepped_in = False

    def tool_is(self, pid: int) -> None:
        """Name the process that runs CRIU, 0 for none yet; the limit starts anew.

        Raises:
            CapsuleError, ToolMissing: there is no watchdog and none can be started.
        """
        line = f"arm {max(1, int(self._limit * 1000))} {pid} {self._root}"
        try:
            answers = self._watchdog.send_command(line)
        except CapsuleError:
            # Nothing is stopped before CRIU has its request, so another can take over in time.
            self._watchdog.replace()
            answers = self._watchdog.send_command(line)
        self._note(answers)

    def mend(self) -> int:
        """After a failure: end what is left of CRIU, and heal connections that it held; returns how many needed it.

        An idle connection does not notice. One that the service used in between may have been closed.
        """
        with contextlib.suppress(CapsuleError):
            answers = self._watchdog.send_command("mend")
            self._note(answers)
            words = answers[-1].split()
            return int(words[1]) if words[0] == "mended" else 0
        return 0

    def over(self) -> None:
        """Disarm. Afterwards ``stepped_in`` tells whether the watchdog had to act."""
        # A dead watchdog cannot do harm any more, and the target runs: no reason to fail a finished commit.
        with contextlib.suppress(CapsuleError):
            self._note(self._watchdog.send_command("disarm"))

    def _note(self, answers: list[str]) -> None:
        if any(answer.startswith("resumed") for answer in answers):
            self.stepped_in = True
