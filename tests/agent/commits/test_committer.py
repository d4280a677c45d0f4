"""Who is out of the way while a commit is taken, and who is given up when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from relive.agent.commits.committer import Committer
from relive.agent.commits.protection import Protection
from relive.agent.control.background import BackgroundTasks
from relive.checkpoint.criu import CriuDied
from relive.checkpoint.target import StoppedBy
from relive.errors import CapsuleError, CommitFailed, DiskFull, ProcessGone, ReliveError
from relive.model.commit import Trigger
from relive.model.life_paths import LifePaths


class Tracer:
    """Steps aside as long as it lives; ``attached``: CRIU would be refused."""

    def __init__(self, *, lives: bool) -> None:
        self.has_ended = not lives
        self.attached = lives

    @contextlib.asynccontextmanager
    async def stepped_aside(self) -> AsyncIterator[bool]:
        if self.has_ended:
            raise CapsuleError("the tracer of fatal signals has ended")
        self.attached = False
        try:
            yield False
        finally:
            self.attached = True


class Dumper:
    """Fails once with what it is given."""

    def __init__(self, tracer: Tracer, *errors: ReliveError) -> None:
        self.advance = None
        self._tracer, self._errors = tracer, list(errors)

    def dump(self, _trigger: Any, _gate: Any, _stopped: Any, _name: Any, aside: Any) -> Any:
        for _ in range(2):  # to have memory copied ahead, and for CRIU
            with aside():
                assert not self._tracer.attached, "attached to it as a debugger"
            assert self._tracer.attached is not self._tracer.has_ended, (
                "what fails between the two is not seen"
            )
        if self._errors:
            raise self._errors.pop()
        return SimpleNamespace(name="taken", pause_us=1, is_micro=False, full_because=None, written_pages=0)


def committer(tmp_path: Any, tracer: Tracer, *errors: ReliveError) -> Committer:
    keeper: Any = SimpleNamespace(is_full=False)
    protection = Protection()
    tasks = BackgroundTasks(protection)
    made = Committer(Dumper(tracer, *errors), LifePaths(tmp_path), "s", keeper, protection, tasks)  # type: ignore[arg-type]
    made.tracer = tracer  # type: ignore[assignment]
    return made


def test_a_watchdog_that_does_not_answer_is_no_tracer_that_was_killed(tmp_path):
    """The tracer was forgotten, stayed attached, and every commit of the service was refused until its end."""

    async def take() -> None:
        tracer = Tracer(lives=True)
        made = committer(tmp_path, tracer, CapsuleError("the watchdog does not answer"))
        with pytest.raises(CapsuleError, match="watchdog"):
            await made.capture(Trigger.TIMER)
        assert made.tracer is tracer
        assert (await made.capture(Trigger.TIMER)).name == "taken"
        assert tracer.attached

    asyncio.run(take())


def test_it_is_known_when_criu_died_in_the_middle_of_a_commit(tmp_path):
    async def take() -> None:
        gone, failed = ProcessGone("it ended"), CommitFailed("CRIU was killed")
        failed.__cause__, gone.__cause__ = CriuDied(-9), failed
        made = committer(
            tmp_path, Tracer(lives=True), gone, CommitFailed("it has a file that cannot be saved")
        )
        with pytest.raises(CommitFailed):
            await made.capture(Trigger.TIMER)
        assert made.criu_died_at == float("-inf")
        before = time.monotonic()
        with pytest.raises(ProcessGone):
            await made.capture(Trigger.TIMER)
        assert before <= made.criu_died_at <= time.monotonic()

    asyncio.run(take())


def test_each_line_of_a_full_commit_says_why_it_is_one(tmp_path):
    """Where attempts have become rarer, none was said for up to 64 commits."""

    async def take() -> None:
        made = committer(tmp_path, Tracer(lives=True))
        await made.capture(Trigger.TIMER)
        taken = SimpleNamespace(
            name="full", pause_us=1, is_micro=False, full_because="threads", written_pages=0
        )
        made._dumper.dump = lambda *_: taken  # type: ignore[method-assign, assignment]
        await made.capture(Trigger.TIMER)

    with capture_logs() as logged:
        asyncio.run(take())
    assert [one.get("full_because") for one in logged if one["event"] == "committed"] == [None, "threads"]


def test_where_the_disk_is_full_the_space_of_unnamed_files_is_given_back(tmp_path):
    """The pages of the last commit, as large as the service, were held on the full disk until a commit succeeded.

    A process that stands before its death stood there until the keeper had done all that it was asked for before.
    """
    released: list[str] = []
    may_release: list[asyncio.Event] = []

    async def release_disk() -> None:
        await may_release[0].wait()
        released.append("space")

    async def store(_taken: Any, _written: Any) -> Any:
        raise DiskFull("no space left")

    async def take() -> None:
        made = committer(tmp_path, Tracer(lives=True), DiskFull("no space left"))
        made._keeper.release_disk, made._keeper.store = release_disk, store  # type: ignore[method-assign]
        may_release.append(asyncio.Event())  # the keeper has much to do
        with pytest.raises(DiskFull):
            await asyncio.wait_for(made.capture(Trigger.INCIDENT, StoppedBy(11, 7, 7)), 10.0)
        assert released == [] and made._releasing is not None
        may_release[0].set()
        await made._releasing
        with pytest.raises(DiskFull):
            await made.store(await made.capture(Trigger.TIMER))
        await made._releasing
        assert released == ["space", "space"]

    asyncio.run(take())


def test_without_a_tracer_that_was_killed_it_is_taken_all_the_same(tmp_path):
    async def take() -> None:
        made = committer(tmp_path, Tracer(lives=False))
        assert (await made.capture(Trigger.TIMER)).name == "taken"
        assert made.tracer is None

    asyncio.run(take())


class Recorder:
    """Is reached when it was looked for so many times; None: never."""

    def __init__(self, after: int | None) -> None:
        self.looks, self._after = 0, after

    @property
    def link(self) -> Any:
        self.looks += 1
        return SimpleNamespace(is_open=True) if self._after is not None and self.looks > self._after else None


@pytest.mark.parametrize(
    ("after", "trigger"), [(5, Trigger.MANUAL), (None, Trigger.MANUAL), (None, Trigger.TIMER)]
)
def test_the_first_commit_waits_for_the_recorder_once(tmp_path, monkeypatch, after, trigger):
    within = 60.0 if after is not None else 0.05  # [s] one that is there is seen, however busy the machine is
    monkeypatch.setattr("relive.agent.commits.committer._BEGINS_WITHIN", within)

    async def take() -> None:
        made, recorder = committer(tmp_path, Tracer(lives=True)), Recorder(after)
        made.beside, made.proxy = 80, recorder  # type: ignore[assignment]
        await made.capture(trigger)
        assert recorder.looks > (5 if trigger is Trigger.MANUAL else 0)
        assert made.is_recording is (after is not None)
        before = recorder.looks
        await made.capture(trigger)
        assert recorder.looks <= before + 2

    asyncio.run(take())
