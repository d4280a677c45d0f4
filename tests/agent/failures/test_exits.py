"""What becomes of a process that process 1 holds right before its end: which ends are committed, and which are told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.agent.failures import exits
from relive.agent.failures.exits import Exiting, ExitWatch
from relive.agent.failures.sightings import took_along
from relive.checkpoint.target import StoppedBy
from relive.config import Settings
from relive.errors import CapsuleError
from relive.kernel import procfs
from relive.model.commit import Trigger
from relive.model.incident import Sighting
from relive.model.life_paths import LifePaths

LEAD, WORKER = 1_000_001, 1_000_002  # no process has such a number


@dataclass
class Failures:
    """All that sees the other failures, and what it was told.

    Attributes:
        threw: an exception has just escaped.
        requests: those that were being served at any commit.
    """

    threw: bool = False
    is_due_to_stop: bool = False
    has_just_died: bool = False
    requests: list[int] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    reported: list[tuple[Sighting, Any]] = field(default_factory=list)

    async def is_of_an_exception(self, status: int, _now_ns: int) -> bool:
        return status == 1 and self.threw

    async def with_requests(self, end: Sighting, _taken: Any, _since: float) -> Sighting:
        return took_along(end, self.requests, {"log_begin": 7}) if self.requests else end

    async def store_capture(self, taken: Any) -> Any:
        self.kept.append(taken)
        return taken and f"durable {taken}"

    async def report(self, sighting: Sighting, at: Any) -> None:
        self.reported.append((sighting, at))


@dataclass
class Service:
    """A watch over a service of which nothing runs."""

    watch: ExitWatch
    failures: Failures
    paths: LifePaths
    taken: list[Trigger] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    refuses: bool = False

    async def capture(self, trigger: Trigger, standing: StoppedBy) -> str:
        assert (standing.signal, standing.pid) == (None, standing.thread)
        if self.refuses:
            raise CapsuleError("no room")
        self.taken.append(trigger)
        return "taken"

    def see(self, pid: int, status: int, *, stands: bool = True) -> None:
        """Hear of the end of a process, and wait for what follows from it."""

        async def hear() -> None:
            await self.watch._see(Exiting(pid, 12, "worker", status), stands=stands)
            self.at_end = await self.watch.committed_at_end()

        asyncio.run(hear())


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(exits, "_SETTLE", 0)
    monkeypatch.setattr(procfs, "name_of", lambda pid: "server" if pid == LEAD else None)
    paths, failures = LifePaths(tmp_path), Failures()
    capsule: Any = SimpleNamespace(lead=LEAD, facts=SimpleNamespace(root=LEAD, init=1), paths=paths)
    made: Any = Service(None, failures, paths)  # type: ignore[arg-type]
    keeper: Any = SimpleNamespace(is_known=lambda sighting: sighting.fingerprint in made.known)
    made.watch = ExitWatch(Settings(home=tmp_path), capsule, made, keeper, failures)
    return made


def test_a_worker_is_committed_while_it_stands_and_told_when_it_has_ended(service: Service) -> None:
    service.see(WORKER, 3)
    assert service.taken == [Trigger.INCIDENT] and service.at_end is None
    ((sighting, at),) = service.failures.reported
    assert sighting.summary == "worker 12 of server (worker) ended with status 3"
    assert sighting.worker and sighting.exit_status == 3 and at == "durable taken"
    assert service.watch.has_just_seen_one()


def test_the_services_own_end_is_committed_and_told_when_it_has_come(service: Service) -> None:
    service.see(LEAD, 3)
    assert service.taken == [Trigger.INCIDENT] and service.at_end == "durable taken"
    assert service.failures.reported == []


@pytest.mark.parametrize("status", [128 + 15, 128 + 2])
def test_who_was_asked_to_end_is_no_failure(service: Service, status: int) -> None:
    service.see(WORKER, status)
    assert service.taken == [] and not service.watch.has_just_seen_one()


def test_while_the_service_is_stopped_no_end_is_a_failure(service: Service) -> None:
    service.failures.is_due_to_stop = True
    service.see(WORKER, 3)
    service.see(LEAD, 3)
    assert service.taken == [] and service.failures.reported == []


def test_an_exception_that_nobody_caught_was_committed_where_it_was_raised(service: Service) -> None:
    """Python ends with 1 then. Another status is another failure."""
    service.failures.threw = True
    service.see(WORKER, 1)
    assert service.taken == [] and service.failures.reported == []
    service.see(WORKER, 2)
    assert service.taken == [Trigger.INCIDENT]


def test_what_has_an_incident_is_told_again_without_another_commit(service: Service) -> None:
    service.known.add("exit 3 of worker")
    service.see(WORKER, 3)
    assert service.taken == []
    ((sighting, at),) = service.failures.reported
    assert sighting.fingerprint == "exit 3 of worker" and at is None


def test_workers_that_all_exit_alike_are_committed_once(service: Service) -> None:
    service.see(WORKER, 3)
    service.see(WORKER + 1, 3)
    service.see(WORKER + 1, 4)
    assert len(service.taken) == 2 and len(service.failures.reported) == 3


def test_a_commit_that_fails_hides_no_failure(service: Service) -> None:
    service.refuses = True
    service.see(WORKER, 3)
    ((_, at),) = service.failures.reported
    assert at is None


def test_one_that_does_not_stand_still_is_told_without_a_commit(service: Service) -> None:
    service.see(WORKER, 3, stands=False)
    assert service.taken == []
    ((sighting, at),) = service.failures.reported
    assert sighting.exit_status == 3 and at is None


def test_who_ends_for_anothers_death_is_no_failure(service: Service) -> None:
    service.failures.has_just_died = True
    service.see(WORKER, 3)
    assert service.taken == [] and service.failures.reported == []


def test_a_worker_that_went_with_the_whole_service_is_not_told(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["server"])
    monkeypatch.setattr(procfs, "name_of", lambda _: next(names, None))
    service.see(WORKER, 3)
    assert service.taken == [Trigger.INCIDENT] and service.failures.reported == []


@pytest.mark.parametrize(("before", "begin"), [("ready\nserves\n", 7), ("up\n", 3)])
def test_it_is_told_with_its_last_words_and_the_only_request_that_was_served(
    service: Service, before: str, begin: int
) -> None:
    """GIVEN a request that was seen to begin at byte 7 of the log; WHEN the stack begins before that; THEN it is the end's."""
    service.paths.io.mkdir(parents=True)
    service.paths.logs[-1].write_text(
        before + 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: out of sorts\n'
    )
    service.failures.requests = [4]
    service.see(WORKER, 3)
    ((sighting, _),) = service.failures.reported
    assert sighting.summary.endswith("ended with status 3: ValueError: out of sorts")
    assert (sighting.request, sighting.open_requests, sighting.log_begin) == (4, [4], begin)


def test_of_several_requests_none_is_the_one(service: Service) -> None:
    service.failures.requests = [4, 5]
    service.see(WORKER, 3)
    ((sighting, _),) = service.failures.reported
    assert (sighting.request, sighting.open_requests) == (None, [4, 5])


def test_a_held_process_is_committed_when_all_its_threads_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exits, "_STOPS_WITHIN", 0.05)
    process = subprocess.Popen(
        [sys.executable, "-c", "import os, signal; print(flush=True); signal.pause()"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        assert not asyncio.run(exits._stands_still(process.pid))
        process.send_signal(19)  # SIGSTOP
        monkeypatch.setattr(exits, "_STOPS_WITHIN", 60.0)
        assert asyncio.run(exits._stands_still(process.pid))
    finally:
        process.kill()
        process.communicate()
    assert not asyncio.run(exits._stands_still(process.pid))
