"""Processes that die while a commit is taken, or right after it, are all seen: each is an incident."""

from __future__ import annotations

import contextlib
import os
import platform
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from support.drawn import drawn
from support.waiting import eventually

from .harness import PROGRAMS, Capsule, Relive, compiled

_KERNEL_TELLS = tuple(int(word) for word in platform.release().split(".")[:2]) >= (6, 15)


class Workers:
    """The program that keeps one worker alive, and what it printed."""

    def __init__(self, relive: Relive, directory: Path, delay_ms: int, name: str = "service") -> None:
        self.relive = relive
        program = compiled(PROGRAMS / "gap_worker.c", directory)
        self.place = directory / name  # of its files
        self.place.mkdir()
        self.capsule: Capsule = relive.run(program, str(delay_ms), self.place, name=name)
        eventually(lambda: self.lines("worker"), "a worker says its number")
        eventually(lambda: _tracer(self.worker), "a worker that is watched")

    def lines(self, word: str) -> list[str]:
        return [line for line in self.relive.output(self.capsule).splitlines() if line.startswith(word)]

    @property
    def worker(self) -> int:
        """The worker's number here."""
        inside = int(self.lines("worker")[-1].split()[1])
        for pid in _children(self.capsule.pid):
            if _inside(pid) == inside:
                return pid
        return 0

    def watched(self) -> int:
        """The worker, if the tracer of fatal signals has it; else 0."""
        worker = self.worker
        return worker if _tracer(worker).startswith("python") else 0

    @property
    def is_alive(self) -> bool:
        return Path(f"/proc/{self.capsule.pid}").exists()

    @property
    def deaths(self) -> int:
        return len(self.lines("died"))

    def seen(self) -> int:
        """How many deaths the incidents of this service tell of."""
        return sum(one["times"] for one in self.incidents())

    def incidents(self) -> list[dict[str, Any]]:
        return list(self.relive("incidents", self.capsule.name))

    def all_seen(self) -> None:
        deaths = self.deaths
        eventually(lambda: self.seen() >= deaths, f"incidents of {deaths} deaths: {self.incidents()}")

    def commit(self) -> None:
        with contextlib.suppress(Exception):  # a worker's death may spoil one; the next is another
            self.relive("commit", self.capsule.name)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _inside(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])


def _tracer(pid: int) -> str:
    """The name of what traces a process; empty when nothing does."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    tracer = next(line for line in lines if line.startswith("TracerPid:")).split()[1]
    return Path(f"/proc/{tracer}/comm").read_text().strip() if tracer != "0" else ""


def _told(number: int) -> int | None:
    """What an incident says of a signal that killed an untraced process."""
    return number if _KERNEL_TELLS else None


def _runs_criu(pid: int) -> bool:
    """CRIU's code is in the memory of a process; it gives the file that name."""
    return b"CRIUMFD" in Path(f"/proc/{pid}/maps").read_bytes()


def _serves_criu(pid: int) -> bool:
    """CRIU's code in a process is connected: it has been handed CRIU's log."""
    place = f"/proc/{pid}/fd"
    return any(os.readlink(f"{place}/{name}").endswith("/criu.log") for name in os.listdir(place))


@contextlib.contextmanager
def killed_in_the_commit(pid: int, number: int, running: int | None = None) -> Iterator[list[bool]]:
    """Send a signal to a process as soon as CRIU has it; the list tells at the end whether that was in time.

    ``running``: only while CRIU's code serves it in that process.
    """
    over, hit = threading.Event(), [False]

    def watch() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set() and not hit[0]:
                if (running is None or _serves_criu(running)) and _tracer(pid) == "criu":
                    os.kill(pid, number)
                    hit[0] = True

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield hit
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("rounds", [1, pytest.param(25, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_a_fault_that_the_pause_provokes_is_seen(relive: Relive, tmp_path: Path, rounds: int) -> None:
    """GIVEN a worker that faults when it notices that it stood still, WHEN it is committed, THEN each death is an incident."""
    workers = Workers(relive, tmp_path, 0)
    for _ in range(rounds):
        before = workers.deaths
        while workers.deaths == before:  # a pause may be too short for it to notice
            workers.commit()
        workers.all_seen()
    assert {one["sighting"]["signal"] for one in workers.incidents()} == {_told(signal.SIGSEGV)}


@pytest.mark.parametrize(
    ("number", "running"),
    [(signal.SIGSEGV, None), (signal.SIGKILL, None), (signal.SIGKILL, "parent"), (signal.SIGKILL, "worker")],
)
@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_a_worker_killed_in_a_commit_is_seen(
    relive: Relive, tmp_path: Path, rounds: int, number: int, running: str | None
) -> None:
    """GIVEN CRIU has a service, maybe runs in a process of it, WHEN the worker is killed, THEN the parent sees it and is whole."""
    workers = Workers(relive, tmp_path, -1)
    parent = workers.capsule.pid
    for _ in range(rounds):
        before, hit = workers.deaths, [False]
        while not hit[0]:
            worker = eventually(lambda: workers.worker, "a worker")
            who = {"parent": parent, "worker": worker}.get(running or "")
            with killed_in_the_commit(worker, number, who) as hit:
                workers.commit()
        eventually(lambda: workers.deaths > before, "the worker's death")  # noqa: B023
        workers.all_seen()
        assert not _runs_criu(parent)
        # Killed before CRIU's code in it is connected, a name that CRIU made may stay (docs/limits.md).
        assert running is None or [path.name for path in workers.place.iterdir()] == ["second"]
    (incident,) = workers.incidents()
    assert incident["sighting"]["signal"] == _told(number)
    assert incident["sighting"]["worker"] and "worker" in incident["sighting"]["summary"]
    assert not incident["at"]


def test_a_worker_that_is_killed_is_an_incident_of_its_own(relive: Relive, tmp_path: Path) -> None:
    """As the kernel does for want of memory: no signal handler, no tracer is asked before."""
    workers = Workers(relive, tmp_path, -1)
    os.kill(workers.worker, signal.SIGKILL)
    (incident,) = eventually(workers.incidents, "an incident")
    assert incident["sighting"]["summary"].endswith(
        "was killed by SIGKILL; the kernel does not tell who sent it"
    )
    assert incident["sighting"]["worker"] and not incident["at"]


def test_a_signal_from_outside_is_told_and_not_waited_for(relive: Relive, tmp_path: Path) -> None:
    """GIVEN somebody else sent the signal, WHEN it is replayed, THEN the verdict comes without a branch."""
    workers = Workers(relive, tmp_path, -1)
    relive("commit", workers.capsule.name)
    os.kill(workers.capsule.pid, signal.SIGSEGV)
    (incident,) = eventually(workers.incidents, "an incident")
    assert "sent from outside" in incident["sighting"]["summary"]
    done = relive.say("replay", str(incident["number"]))
    assert done.returncode == 1
    assert '"restore_us": null' in done.stdout and "cannot come back" in done.stdout


_VICTIMS = (("tracer",), ("agent",), ("tracer", "agent"), ("criu",))


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(3, 1), pytest.param(200, None, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
)
def test_nobody_stays_stopped_before_its_death(
    relive: Relive, tmp_path: Path, rounds: int, seed: int | None
) -> None:
    """GIVEN a worker that is held for its commit, WHEN who holds it is killed, at any moment, THEN it dies as it was about to."""
    moments = drawn(seed)
    workers = Workers(relive, tmp_path, -1)
    for round_ in range(rounds):
        worker = eventually(workers.watched, "a worker that is watched")
        deaths = workers.deaths
        os.kill(worker, signal.SIGSEGV)
        with contextlib.suppress(OSError):
            if round_ % len(_VICTIMS) == len(_VICTIMS) - 1:
                _kill_criu(worker)
            else:
                select.select([], [], [], moments.random() * 0.15)
                _kill_each(relive, workers.capsule, worker, _VICTIMS[round_ % len(_VICTIMS)])
        ended = f"the death of {worker} in round {round_}"
        eventually(lambda: workers.deaths > deaths or not workers.is_alive, ended)  # noqa: B023
        if not workers.is_alive:
            # CRIU, killed while it runs code in the service, may take it along (docs/limits.md).
            assert _VICTIMS[round_ % len(_VICTIMS)] == ("criu",), ended
            workers = Workers(relive, tmp_path, -1, name=f"service{round_}")


def _kill_each(relive: Relive, capsule: Capsule, worker: int, victims: tuple[str, ...]) -> None:
    agent = relive.agent(capsule)
    tracers = [pid for pid in _processes() if _traces_for(agent, pid)]
    for pid in [*(tracers if "tracer" in victims else []), *([agent] if "agent" in victims else [])]:
        os.kill(pid, signal.SIGKILL)


def _kill_criu(worker: int) -> None:
    """While it has the worker; not at all when the worker is gone first."""
    while True:
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
        tracer = int(next(line for line in lines if line.startswith("TracerPid:")).split()[1])
        if tracer and Path(f"/proc/{tracer}/comm").read_text().strip() == "criu":
            os.kill(tracer, signal.SIGKILL)
            return


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _traces_for(agent: int, pid: int) -> bool:
    """It is that agent's tracer: a child of the agent, or of the fork server; its guardian has its words and is nobody's child."""
    with contextlib.suppress(OSError):
        words = _command(pid).split(b"\0")
        return (
            b"relive.signals.tracer" in words
            and words[-3:-1] == [b"--agent", b"%d" % agent]
            and (found := procfs.read_stat(pid)) is not None
            and found.parent != 1
        )
    return False


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
