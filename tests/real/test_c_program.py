"""A C program with threads, a child, pipes, SysV shared memory, semaphore and queue, and a file without a name."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.waiting import eventually

from .harness import PROGRAMS, RELIVE, Branch, Relive, compiled


def rounds(text: str) -> list[int]:
    """The rounds that were printed yet, after seeing that none is missing and nothing broke."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    assert all(line.startswith("round ") for line in lines), lines[-1]
    numbers = [int(line.split()[1]) for line in lines]
    assert not numbers or numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers


def last_round(text: str) -> int:
    """0 when none was printed yet."""
    return max(rounds(text), default=0)


def first_round(branch: Branch) -> int:
    return eventually(
        lambda: len(rounds(branch.output())) > 50 and rounds(branch.output())[0], "rounds in a branch"
    )


def test_many_kinds_of_state_at_once(relive: Relive, tmp_path: Path) -> None:
    program = compiled(PROGRAMS / "many_kinds.c", tmp_path)
    capsule = relive.run(program, tmp_path)
    eventually(lambda: last_round(relive.output(capsule)) > 50, "rounds")
    before = last_round(relive.output(capsule))
    commit = relive.commit(capsule)
    after = last_round(relive.output(capsule))
    branches = [relive.restore(commit), relive.restore(commit)]
    firsts = [first_round(branch) for branch in branches]
    assert before < firsts[0] <= after + 1 and firsts[0] == firsts[1]
    assert [branch.pids() for branch in branches] == [
        sorted(p.pid for p in commit.manifest.target.processes)
    ] * 2
    assert len(commit.manifest.target.processes) == 2 and commit.manifest.target.processes[0].threads == 3
    inside = subprocess.run(
        [RELIVE, "exec", branches[0].id, "readlink", f"/proc/{commit.manifest.target.root}/exe"],
        env=relive.environment,
        capture_output=True,
        check=True,
    )
    assert inside.stdout.decode().strip() == str(program)
    eventually(lambda: last_round(relive.output(capsule)) > after + 50, "rounds of the original")


def test_timers_go_on_in_a_branch(relive: Relive, tmp_path: Path) -> None:
    """Also those that had expired unnoticed when the commit was taken; one that was over by then stays so."""
    program = compiled(PROGRAMS / "keeps_time.c", tmp_path)
    capsule = relive.run(program)
    eventually(lambda: "ready" in relive.output(capsule), "timers that have expired")
    commit = relive.commit(capsule)
    branch = relive.restore(commit)
    branch.exec("kill", "-USR1", str(commit.manifest.target.root))
    told = eventually(lambda: "moment" in branch.output() and branch.output(), "what became of the timers")
    assert told.splitlines()[-3:] == ["timerfd goes on", "alarm goes on", "moment is over"]
