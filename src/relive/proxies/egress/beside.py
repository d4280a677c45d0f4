"""The recorder beside the way: records what a service asks of others off copies of its packets, and carries nothing.

    python -m relive.proxies.egress.beside --group DIRECTORY --capsule PID --recording DIR --control UNIXSOCKET --relay FILE
        [--ready-fd N] [--keep-bytes BYTES]

The kernel copies the packets of the control group (``relive.kernel.calltap``), and ``relay_library.so`` (``--relay``) puts them
together and writes the recording, in the form of the recorder in the way (``recorder.py``). Nothing that the service does waits for
this process, whatever becomes of it. What is said while there is none waits in the kernel, as long as there is room, and the next
one goes on with the dialogues of the recording where they stood.

It looks at what there is every ``LOOK_SECONDS``, and sleeps when nothing was said for ``IDLE_SECONDS``, until something is. While
much waits for it, it looks every ``URGENT_SECONDS``, at a higher priority than the service (``URGENT``): else the ring would be
full before its turn. When it is ready it writes one JSON line to descriptor N and closes it: ``{"pid": PID}``. It ends by itself
when process PID, the capsule's first, has ended, and on SIGTERM. Where that has ended already, as 0 always has, it records what
waits and ends, and is never ready.

The messages of the control socket are those of ``recorder.py``; no byte is held between ``closed`` and ``opened``. Before it says
``opened`` everything is recorded that the service had got when it was asked: a packet is copied before its socket gets it. Where a
connection stood in a commit follows from the commit's own images. ``{"op":"catch-up","id":I}`` is answered
``{"op":"caught-up","id":I}`` when the same is so.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relive.errors import HostIncapable
from relive.kernel.calltap import find_tap
from relive.kernel.tapprograms import RING_BYTES
from relive.proxies.control import ControlHub, ControlLink, error_reply
from relive.proxies.egress._process import recorder_parser, run_recorder, say, say_ready
from relive.proxies.egress._resumption import read_unfinished
from relive.proxies.egress.tapped import TappedDialogues
from relive.proxies.listeners import bind_control
from relive.proxies.relay import PostKind
from relive.proxies.relay_writer import RelayWriter
from relive.recording.events import EventKind

__all__ = ["BesideOptions", "BesideRecorder", "main"]

LOOK_SECONDS, URGENT_SECONDS = 0.02, 0.001
_URGENT_LOOKS = 5  # before it is looked for what agents say
IDLE_SECONDS = 0.5
URGENT = -10
_UNANSWERED_SECONDS = 10.0  # so often it is looked for questions without an answer
_MUCH, _LITTLE = RING_BYTES // 8, RING_BYTES // 128  # taken at one look


@dataclass(frozen=True, slots=True)
class BesideOptions:
    """What the command line says; see the module.

    Attributes:
        keep_bytes: bound of the recording's size; None keeps everything.
    """

    group: Path
    capsule: int
    recording: Path
    control: Path
    relay: Path
    ready_fd: int | None = None
    keep_bytes: int | None = None


class BesideRecorder:
    """Lives in one event loop.

    Raises:
        HostIncapable: the copies cannot be had, or the library cannot.
    """

    def __init__(self, options: BesideOptions, loop: asyncio.AbstractEventLoop) -> None:
        self.options = options
        self.loop = loop
        self.hub = ControlHub(self)
        self._alone = _be_alone(options.group, is_over=not options.capsule)
        before = read_unfinished(options.recording)
        try:
            self.writer = RelayWriter(
                *(options.relay, options.recording),
                keep_bytes=options.keep_bytes,
                keep_seconds=None,
                on_trouble=say,
            )
            self.tapped = TappedDialogues(self.writer.relay, find_tap(options.group))
        except OSError as error:
            raise HostIncapable(
                "what the service asks of others cannot be recorded",
                cause=str(error),
                remedy="run `relive doctor`, and `make setup` if it says that all is well",
            ) from error
        for one in before:
            self.tapped.resume(one)
        self._stop = asyncio.Event()
        self._something = asyncio.Event()

    # For agents

    def control_message(self, _link: ControlLink, op: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """Act on a message of an agent; see the module."""
        if op == "close":
            return {"op": "closed", "cursor": self.writer.last_seq, "connections": []}
        if op == "open":
            return self._open(message.get("commit"))
        if op == "catch-up":
            self.take_all()
            return {"op": "caught-up"}
        if op == "status":
            return self._status()
        return error_reply("unknown-op", f"there is no op {op!r:.50}")

    def control_lost(self, link: ControlLink, *, was_last: bool) -> None:
        """An agent went away: nothing waits for it."""

    def _open(self, commit: str | None) -> dict[str, Any]:
        self.take_all()
        if commit is not None:
            fields = {"commit": commit, "cursor": self.writer.last_seq, "closed_ns": 0}
            self.writer.append(EventKind.COMMIT_TAKEN, fields=fields)
            self.writer.flush()
        return {"op": "opened", "cursor": self.writer.last_seq}

    def _status(self) -> dict[str, Any]:
        counts = self.tapped.counts()
        return {
            "op": "status",
            "pid": os.getpid(),
            "connections": counts.dialogues,
            "cursor": self.writer.last_seq,
            "recording": self.writer.is_on,
            "events_lost": self.writer.lost,
            "packets_lost": counts.lost,
            "gaps": counts.gaps,
            "packets": counts.taken,
        }

    # Recording

    def take_all(self) -> int:
        """Record all that was said by now; returns how many bytes of the ring that took."""
        taken = self.tapped.take()
        self._hear()
        return taken

    def _hear(self) -> None:
        """Of what the library has to say of the recording."""
        for post in self.writer.relay.posts():
            if post.kind is PostKind.RECORDING_OFF:
                self.writer.switched_off(post.extra)
            elif post.kind is PostKind.RECORDING_ON:
                self.writer.switched_on(post.extra)
            elif post.kind is PostKind.SEGMENT_BEGUN:
                self.writer.segment_begun()

    def _follow(self) -> int:
        """While much comes: look for what is said so often that the ring has room; returns what the last look took."""
        taken = self.tapped.follow(URGENT_SECONDS, _URGENT_LOOKS, _LITTLE)
        self._hear()
        return taken

    async def _read(self) -> None:
        """Take what comes, until told to stop."""
        quiet, is_urgent = 0.0, False
        while not self._stop.is_set():
            taken = self._follow() if is_urgent else self.take_all()
            if is_urgent != (taken > (_LITTLE if is_urgent else _MUCH)):
                is_urgent = not is_urgent
                _be_nice(URGENT if is_urgent else 0)
            quiet = 0.0 if taken else quiet + LOOK_SECONDS
            if is_urgent:
                await asyncio.sleep(0)  # what agents say
            elif quiet < IDLE_SECONDS:
                await self._sleep()
            else:
                await self._wait()

    async def _sleep(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._stop.wait()

    async def _wait(self) -> None:
        """Until something is said, or for a while."""
        self.tapped.wake(True)
        if self.take_all():
            self.tapped.wake(False)
            return
        self._something.clear()
        self.loop.add_reader(self.tapped.fileno(), self._something.set)
        try:
            async with asyncio.timeout(_UNANSWERED_SECONDS):
                await self._something.wait()
        except TimeoutError:
            pass
        finally:
            self.loop.remove_reader(self.tapped.fileno())
            self.tapped.wake(False)

    # Life

    def _end(self) -> None:
        self._stop.set()
        self._something.set()

    async def serve(self) -> None:
        """Record until SIGTERM, SIGINT or the capsule's end.

        Raises:
            CapsuleStartFailed: the control socket cannot be bound.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._end)
        capsule = _handle_of(self.options.capsule)
        if capsule is None:
            self._begin()
            self._finish(is_over=True)
            return
        self.loop.add_reader(capsule, self._end)
        control = bind_control(self.options.control)
        self._begin()
        server = await self.loop.create_unix_server(self.hub.link, sock=control)
        say_ready(self.options.ready_fd)
        gc.collect()
        gc.freeze()
        is_over = False
        try:
            await self._read()
            is_over = bool(select.select([capsule], [], [], 0)[0])
        finally:
            self.loop.remove_reader(capsule)
            server.close()
            self.options.control.unlink(missing_ok=True)
            self._finish(is_over=is_over)
            os.close(capsule)

    def _begin(self) -> None:
        fields = {"pid": os.getpid(), "logs": [], "capture": "beside"}
        self.writer.append(EventKind.RECORDER_STARTED, fields=fields)
        self.writer.flush()
        self.tapped.wake(False)

    def _finish(self, *, is_over: bool) -> None:
        self.take_all()  # what the service said last, if it has ended
        self.tapped.close(is_over=is_over)
        self.writer.close()


def _handle_of(pid: int) -> int | None:
    """None: it has ended."""
    with contextlib.suppress(ProcessLookupError):
        return os.pidfd_open(pid) if pid else None
    return None


def _be_alone(group: Path, *, is_over: bool) -> int:
    """Descriptor by whose lock no other process reads the group's ring; ``is_over``: another ends soon.

    Raises:
        HostIncapable: another reads it.
    """
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | (0 if is_over else fcntl.LOCK_NB))
    except BlockingIOError as error:
        os.close(directory)
        raise HostIncapable(
            "what the service asks of others is recorded already",
            cause=f"another process reads the ring of {group}",
        ) from error
    return directory


def _be_nice(value: int) -> None:
    with contextlib.suppress(PermissionError):  # a priority may be given up, and not always be had again
        os.setpriority(os.PRIO_PROCESS, 0, value)
    if (
        os.getsid(0) == os.getpid()
    ):  # where the kernel groups by sessions (autogroup), the above counts within one's own only
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(value))


def parse_options(arguments: Sequence[str]) -> BesideOptions:
    """The options of a command line; argparse ends the process with status 2 if it is wrong."""
    parser = recorder_parser("relive.proxies.egress.beside", "Record what leaves, beside its way.")
    parser.add_argument("--relay", required=True, type=Path, metavar="FILE")
    return BesideOptions(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the recorder; returns its exit status."""
    options = parse_options(sys.argv[1:] if arguments is None else arguments)

    return run_recorder(lambda: BesideRecorder(options, asyncio.get_running_loop()).serve())


if __name__ == "__main__":
    sys.exit(main())
