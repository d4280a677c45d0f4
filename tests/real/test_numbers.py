"""A commit that holds the very process numbers which CRIU's own processes would get in its branch."""

from __future__ import annotations

from relive.sandbox.builder import free_number
from support.waiting import eventually

from .harness import PYTHON, Relive

TAKEN = free_number(frozenset())
SERVICE = f"""
import os, time
first = os.getpid()
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write("{TAKEN}")
for _ in range(3):
    if not os.fork():
        break
while True:
    print("alive", flush=True)
    time.sleep(0.01)
"""


def test_its_processes_come_back_under_their_numbers(relive: Relive) -> None:
    capsule = relive.run(PYTHON, "-c", SERVICE)
    eventually(lambda: len(relive.output(capsule).splitlines()) > 10)
    commit = relive.commit(capsule)
    numbers = {process.pid for process in commit.manifest.target.processes}
    assert {TAKEN + 1, TAKEN + 2, TAKEN + 3} <= numbers
    branch = relive.restore(commit)
    assert numbers <= set(branch.pids())


def test_a_number_has_room_behind_it() -> None:
    assert free_number(frozenset({TAKEN + 5})) + 64 < TAKEN + 5
    assert free_number(frozenset({TAKEN + 5, TAKEN - 10})) + 64 < TAKEN - 10
    assert free_number(frozenset({TAKEN + 100, 7})) == TAKEN
