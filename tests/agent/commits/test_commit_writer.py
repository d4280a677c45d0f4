"""The keeper: parents, incidents and thinning in the order in which they were asked for. Captures are played."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import subprocess
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from relive.agent.commits import commit_writer as room
from relive.agent.commits.commit_writer import CommitWriter, commit_before
from relive.agent.commits.protection import Protection
from relive.config import Settings, load_settings
from relive.errors import DiskFull, ReliveError, StoreBusy
from relive.incidents.incidents import Incidents
from relive.model.advance import Advance
from relive.model.commit import CommitId, Trigger
from relive.model.incident import FailureKind, Incident, Sighting
from relive.store import Store, StoredCommit, WrittenCommit
from store.builders import DEFAULT_FILES, is_whole, read_in, stage

Result = TypeVar("Result")


@dataclass
class PlayedCapture:
    """What the keeper needs of a capture."""

    facts: dict[str, Any] = field(default_factory=dict)

    is_micro: bool = True
    written_pages: int = 0
    advance: Advance = field(default_factory=Advance)
    ended: list[str] = field(default_factory=list)

    def write(self, store: Store, parents: list[CommitId]) -> WrittenCommit:
        if self.facts.get("fails"):
            raise DiskFull("no space left")
        staging = stage(store, pages=b"page" * 1024, small={"core-1.img": b"core"}, files=DEFAULT_FILES)
        try:
            return store.write(*read_in(store, staging, DEFAULT_FILES, parents=parents, **self.facts))
        finally:
            staging.discard()

    def roll_back(self, failure: ReliveError) -> None:
        self.ended.append(failure.message)

    def discard(self) -> None:
        self.ended.append("discarded")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path / "home", keep=3)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "stdout.log", tmp_path / "stderr.log"]
    for path in paths:
        path.write_text("before\n")
    return paths


@pytest.fixture
def keeping(settings: Settings, logs: list[Path]):
    """Runs a test's work in a loop, with a keeper that is closed afterwards."""

    def run(work: Callable[[CommitWriter], Awaitable[Result]]) -> Result:
        async def inside() -> Result:
            keeper = CommitWriter(settings, "pay", "L1", logs, protection=Protection())
            try:
                return await work(keeper)
            finally:
                await keeper.drain()
                keeper.close()

        return asyncio.run(inside())

    return run


def capture(number: int, **facts: Any) -> Any:
    return PlayedCapture({"capture": f"{number}", "wall_ns": number, "sequence": number * 10} | facts)


def sighting(**facts: Any) -> Sighting:
    return Sighting(
        **{"kind": FailureKind.ANSWER, "fingerprint": "f", "summary": "s", "seen_wall_ns": 5} | facts
    )


def test_a_commits_parent_is_the_one_before_it_of_the_same_life(keeping):
    async def work(keeper: CommitWriter) -> list[StoredCommit]:
        return [await keeper.store(capture(number)) for number in (1, 2, 3)]

    one, two, three = keeping(work)
    assert [one.parent, two.parent, three.parent] == [None, one.id, two.id]


async def gathered(keeper: CommitWriter, captures: Sequence[Any]) -> list[StoredCommit | BaseException]:
    """What becomes of captures that all wait while the keeper is busy."""
    busy = threading.Event()
    first = asyncio.ensure_future(keeper._run(lambda _store: busy.wait()))
    await asyncio.sleep(0)
    stored = [asyncio.ensure_future(keeper.store(one)) for one in captures]
    await asyncio.sleep(0)
    busy.set()
    await first
    return await asyncio.gather(*stored, return_exceptions=True)


def test_captures_that_have_gathered_become_durable_together_each_on_top_of_the_one_before(
    keeping, settings, monkeypatch
):
    published: list[int] = []
    usual = Store.publish

    def publish(store: Store, commits: Sequence[WrittenCommit]) -> list[StoredCommit]:
        published.append(len(commits))
        return usual(store, commits)

    monkeypatch.setattr(Store, "publish", publish)
    captures = [capture(number) for number in (1, 2, 3)]
    one, two, three = keeping(lambda keeper: gathered(keeper, captures))
    assert published == [3]
    assert [one.parent, two.parent, three.parent] == [None, one.id, two.id]
    assert all(one.ended == ["discarded"] for one in captures)
    with contextlib.closing(Store(settings.store)) as store:
        assert [line.id for line in store.log()] == [three.id, two.id, one.id]
        assert all(is_whole(store, line.id) for line in store.log())


def test_of_a_group_only_what_cannot_be_written_is_lost(keeping, settings):
    captures = [capture(1), capture(2, fails=True), capture(3)]
    one, two, three = keeping(lambda keeper: gathered(keeper, captures))
    assert isinstance(two, DiskFull)
    assert three.parent == one.id
    assert [one.ended for one in captures] == [["discarded"], ["no space left", "discarded"], ["discarded"]]
    with contextlib.closing(Store(settings.store)) as store:
        assert [line.id for line in store.log()] == [three.id, one.id]


def test_what_failed_is_rolled_back_before_the_next_of_its_group_is_written(keeping):
    """That would count on files which the other brought, and find them at its end only."""
    happened: list[str] = []

    class Watched(PlayedCapture):
        def write(self, store: Store, parents: list[CommitId]) -> WrittenCommit:
            happened.append(f"write {self.facts['capture']}")
            return super().write(store, parents)

        def roll_back(self, failure: ReliveError) -> None:
            happened.append(f"roll back {self.facts['capture']}")

    captures = [Watched(capture(number, fails=number == 2).facts) for number in (1, 2, 3)]
    keeping(lambda keeper: gathered(keeper, captures))
    assert happened == ["write 1", "write 2", "roll back 2", "write 3"]


def test_a_group_that_finds_no_store_is_lost_and_the_next_is_stored(keeping, monkeypatch):
    usual, opened = CommitWriter._open, [0]

    def open_store(keeper: CommitWriter) -> Store:
        opened[0] += 1
        if opened[0] == 2:  # the first is for what keeps the keeper busy
            raise StoreBusy("the index is locked")
        return usual(keeper)

    monkeypatch.setattr(CommitWriter, "_open", open_store)
    captures = [capture(number) for number in (1, 2)]

    async def work(keeper: CommitWriter) -> tuple[list[Any], StoredCommit]:
        return await gathered(keeper, captures), await keeper.store(capture(3))

    lost, three = keeping(work)
    assert [type(one) for one in lost] == [StoreBusy, StoreBusy]
    assert all(one.ended == ["the index is locked", "discarded"] for one in captures)
    assert three.parent is None


def test_nothing_of_a_group_is_left_that_the_disk_does_not_take_and_the_next_is_stored(
    keeping, settings, monkeypatch
):
    usual, fails = os.fsync, [True]

    def fsync(descriptor: Any) -> None:
        if fails and "/pack." in os.readlink(f"/proc/self/fd/{descriptor}"):
            fails.clear()
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(descriptor)

    captures = [capture(number) for number in (1, 2)]

    async def work(keeper: CommitWriter) -> tuple[list[Any], StoredCommit]:
        await keeper.drain()  # the store is opened
        monkeypatch.setattr(os, "fsync", fsync)
        return await gathered(keeper, captures), await keeper.store(capture(3))

    lost, three = keeping(work)
    assert [type(one) for one in lost] == [DiskFull, DiskFull]
    assert all(one.ended[1:] == ["discarded"] for one in captures)
    with contextlib.closing(Store(settings.store)) as store:
        assert [line.id for line in store.log()] == [three.id]
        assert is_whole(store, three.id)
        assert store.internals.packs.names() == store.internals.placements.packs_of(three.id)


def test_how_much_waits_is_bounded_by_memory_and_by_number(keeping):
    """One alone may be of any size, and a full commit counts as one that is as large as may be."""
    large = {"written_pages": 1 << 14}

    async def work(keeper: CommitWriter) -> None:
        for others, last, is_full in (
            ([], large, False),
            ([{}], {}, False),
            ([large], {}, True),
            ([{"is_micro": False}], {}, True),
            ([{}] * 14, {}, False),
            ([{}] * 15, {}, True),
        ):
            waiting = [PlayedCapture({"capture": f"{at}"}, **one) for at, one in enumerate([*others, last])]
            busy = threading.Event()
            first = asyncio.ensure_future(keeper._run(lambda _store, busy=busy: busy.wait()))
            await asyncio.sleep(0)
            stored = [asyncio.ensure_future(keeper.store(one)) for one in waiting]
            await asyncio.sleep(0)
            assert keeper.is_full == is_full
            busy.set()
            await asyncio.gather(first, *stored)
            assert not keeper.is_full

    keeping(work)


def test_what_is_asked_for_at_once_is_done_in_that_order(keeping):
    async def work(keeper: CommitWriter) -> list[StoredCommit | Incident]:
        asked = [keeper.store(capture(1)), keeper.report(sighting(), None), keeper.store(capture(2))]
        tasks = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0)
        assert keeper.pending == 3
        found = [await task for task in tasks]
        assert keeper.pending == 0
        return found

    one, incident, two = keeping(work)
    assert incident.before == one.id
    assert two.parent == one.id


def test_an_incident_is_written_when_somebody_has_removed_the_log(keeping, logs):
    for log in logs:
        log.unlink()

    async def work(keeper: CommitWriter) -> Incident:
        return await keeper.report(sighting(), None)

    incident = keeping(work)
    assert (incident.number, incident.log_tail, incident.log_end) == (1, [], 0)


def test_a_commit_is_kept_when_thinning_fails_and_that_is_told(settings, logs, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(room.Thinning, "thin", fail)
    monkeypatch.setattr(room, "_THIN_EVERY", 2)
    protection = Protection()

    async def work() -> list[str]:
        keeper = CommitWriter(settings, "pay", "L1", logs, protection=protection)
        try:
            return [(await keeper.store(capture(number))).id for number in (1, 2)]
        finally:
            await keeper.drain()
            keeper.close()

    kept = asyncio.run(work())
    with contextlib.closing(Store(settings.store)) as store:
        assert [line.id for line in store.log()] == kept[::-1]
    assert [one["part"] for one in protection.as_json()] == ["retention"]


def test_a_capture_that_cannot_be_stored_is_told_and_the_next_one_is_stored(keeping):
    async def work(keeper: CommitWriter) -> StoredCommit:
        with pytest.raises(DiskFull):
            await keeper.store(capture(1, fails=True))
        return await keeper.store(capture(2))

    assert keeping(work).parent is None


def test_an_incident_names_the_commit_before_its_request(keeping):
    async def work(keeper: CommitWriter) -> tuple[list[StoredCommit], Incident]:
        commits = [await keeper.store(capture(number)) for number in (1, 2, 3)]
        return commits, await keeper.report(sighting(sequence=25), None)

    commits, incident = keeping(work)
    assert incident.before == commits[1].id


def test_without_a_request_it_names_the_last_commit_that_is_not_its_own(keeping):
    async def work(keeper: CommitWriter) -> tuple[StoredCommit, StoredCommit, Incident, Incident]:
        one, at = await keeper.store(capture(1)), await keeper.store(capture(2))
        return (
            one,
            at,
            await keeper.report(sighting(), at.id),
            await keeper.report(sighting(fingerprint="g"), None),
        )

    one, at, with_commit, without = keeping(work)
    assert (with_commit.before, with_commit.at) == (one.id, at.id)
    assert (without.before, without.at) == (at.id, None)


def test_before_the_first_commit_there_is_none(keeping):
    incident = keeping(lambda keeper: keeper.report(sighting(sequence=5), None))
    assert incident.before is None


def test_no_commit_can_be_dropped_between_finding_and_naming_it(keeping, settings, monkeypatch):
    """`relive retain` runs beside the agent."""
    locks: list[bool] = []

    def save_and_look(self: Incidents, incident: Incident) -> None:
        with contextlib.closing(Store(settings.store)) as other:
            try:
                with other.internals.lock.held(shared=False, wait=False):
                    locks.append(False)
            except BlockingIOError:
                locks.append(True)
        save(self, incident)

    save = Incidents.save
    monkeypatch.setattr(Incidents, "save", save_and_look)

    async def work(keeper: CommitWriter) -> None:
        await keeper.store(capture(1))
        await keeper.report(sighting(sequence=15), None)
        await keeper.report(sighting(sequence=25), None)

    keeping(work)
    assert locks == [True, True]


def test_a_failure_seen_again_is_counted_and_keeps_its_first_facts(keeping, settings):
    async def work(keeper: CommitWriter) -> list[Incident]:
        await keeper.store(capture(1))
        first = await keeper.report(sighting(sequence=15), None)
        assert keeper.is_known(sighting())
        assert not keeper.is_known(sighting(fingerprint="other"))
        later = await keeper.store(capture(2))
        return [first, await keeper.report(sighting(sequence=25, seen_wall_ns=9), later.id)]

    first, again = keeping(work)
    assert (again.number, again.times, again.last_seen_wall_ns) == (first.number, 2, 9)
    assert again.before == first.before
    assert again.at is not None
    assert again.latest is not None
    assert again.latest.before == again.at


def test_an_incident_holds_the_end_of_the_log_since_its_request(keeping, logs):
    logs[1].write_text("before\nTraceback\nKeyError\n")
    incident = keeping(lambda keeper: keeper.report(sighting(log_begin=7), None))
    assert incident.log_tail == ["Traceback", "KeyError"]
    assert incident.log_end == logs[1].stat().st_size


def test_an_incident_of_a_request_holds_what_it_printed_however_much_others_did_later(keeping, logs):
    """GIVEN many failures at once, of which each is committed before it is written down."""
    logs[1].write_text("before\nError: of this one\n" + "Error: of another\n" * 500)
    incident = keeping(lambda keeper: keeper.report(sighting(log_begin=7), None))
    assert incident.log_tail[0] == "Error: of this one"
    at_end = keeping(lambda keeper: keeper.report(sighting(log_begin=7, kind=FailureKind.EXIT), None))
    assert at_end.log_tail[0] == "Error: of another"


def test_an_incident_of_a_request_that_printed_much_holds_its_stack(keeping, logs):
    stack = ["Traceback (most recent call last):", '  File "pay.py", line 3, in pay', "KeyError: 7"]
    logs[1].write_text("".join(f"{line}\n" for line in [*("debug " * 30,) * 300, *stack, *("other",) * 500]))
    incident = keeping(lambda keeper: keeper.report(sighting(log_begin=0), None))
    assert incident.log_tail[-3:] == stack


def test_old_commits_are_dropped_but_not_those_of_incidents(keeping, settings):
    async def work(keeper: CommitWriter) -> tuple[list[StoredCommit], Incident]:
        commits = [await keeper.store(capture(1))]
        incident = await keeper.report(sighting(), None)
        commits += [await keeper.store(capture(number)) for number in range(2, 17)]
        return commits, incident

    commits, incident = keeping(work)
    store = Store(settings.store)
    kept = [line.id for line in store.log("pay")]
    store.close()
    assert kept == [one.id for one in commits[:-4:-1]] + [incident.before]


def test_secrets_of_the_service_are_not_kept_of_its_log(settings, logs):
    """Those of its environment, and what stands where secrets stand; also of a service that is gone by then."""
    program = ["sleep", "60"]
    service = subprocess.Popen(program, env={"PATH": os.environ["PATH"], "API_TOKEN": "of-the-environment"})
    logs[-1].write_text("token of-the-environment\npassword=of-the-line\nplain words\n")

    async def report() -> Any:
        keeper = CommitWriter(settings, "pay", "L1", logs, lambda: service.pid, protection=Protection())
        try:
            await keeper.make_ready()
            service.kill()
            service.wait()
            return await keeper.report(sighting(summary="of-the-environment failed"), None)
        finally:
            await keeper.drain()
            keeper.close()

    incident = asyncio.run(report())
    told = [re.sub(r"<secret:[0-9a-f]{8}>", "<>", line) for line in incident.log_tail]
    assert told == ["token <>", "password=<>", "plain words"]
    assert re.fullmatch(r"<secret:[0-9a-f]{8}> failed", incident.sighting.summary)
    kept = b"".join(path.read_bytes() for path in settings.incidents.glob("**/*") if path.is_file())
    assert b"of-the-" not in kept


def _stored(number: int, taken: int, trigger: Trigger = Trigger.TIMER) -> StoredCommit:
    return StoredCommit(
        CommitId(f"{number:064x}"),
        "pay",
        "L1",
        "capsule",
        2,
        trigger,
        taken,
        None,
        str(number),
        1,
        1,
        1,
        1,
        None,
    )


_S = 1_000_000_000


@pytest.mark.parametrize(
    ("commits", "seen", "at", "found"),
    [
        # One taken after the failure, and before it was written down, is not before it.
        ([_stored(3, 30 * _S), _stored(2, 20 * _S), _stored(1, 10 * _S)], 25 * _S, None, 2),
        ([_stored(4, 30 * _S), _stored(3, 26 * _S, Trigger.INCIDENT), _stored(1, 10 * _S)], 31 * _S, 3, 1),
        # What another sighting of the same failure had taken a moment ago holds the failure already.
        ([_stored(2, 24 * _S, Trigger.INCIDENT), _stored(1, 10 * _S)], 25 * _S, None, 1),
        ([_stored(2, 15 * _S, Trigger.INCIDENT), _stored(1, 10 * _S)], 25 * _S, None, 2),
        ([_stored(2, 30 * _S)], 25 * _S, None, None),
    ],
)
def test_the_commit_before_is_never_one_after_the_failure(
    commits: list[StoredCommit], seen: int, at: int | None, found: int | None
) -> None:
    chosen = commit_before(commits, seen, CommitId(f"{at:064x}") if at is not None else None)
    assert (int(chosen.capture) if chosen is not None else None) == found


def test_a_failure_while_the_service_starts_is_marked_so(keeping):
    async def work(keeper: CommitWriter) -> list[Incident]:
        keeper.is_ready = False
        early = await keeper.report(sighting(), None)
        keeper.is_ready = True
        return [early, await keeper.report(sighting(fingerprint="g"), None)]

    assert [incident.sighting.starting for incident in keeping(work)] == [True, False]


@pytest.mark.parametrize("sequence", [35, None])
def test_a_commit_in_which_a_process_stands_before_its_death_is_before_no_other_failure(keeping, sequence):
    """In its branch that process would stand there for ever, and nobody take its place."""

    async def work(keeper: CommitWriter) -> tuple[StoredCommit, Incident]:
        runs = await keeper.store(capture(1))
        await keeper.store(capture(2, trigger=Trigger.INCIDENT, stopped_pid=9))
        return runs, await keeper.report(sighting(sequence=sequence, seen_wall_ns=10**15), None)

    runs, incident = keeping(work)
    assert incident.before == runs.id
