"""What must hold for every service: a commit under load lives twice, side by side, beside an undisturbed original.

A service of this suite answers ``POST /count`` with ``{"count": n}``, counting by one, and ``GET /state`` with ``count``,
whatever else it keeps the same number in (``rows`` of a database, ``lines`` of a file), ``pid``, ``monotonic`` and
``wall`` in seconds.
"""

from __future__ import annotations

from typing import Any

from .harness import Branch, Capsule, Commit, Http, Relive, ask, check_clocks, counting

__all__ = ["lives_twice", "settled"]


def settled(state: dict[str, Any]) -> dict[str, Any]:
    """The state, if memory and files agree in it."""
    numbers = {state[name] for name in ("count", "rows", "lines") if name in state}
    assert len(numbers) == 1, f"memory and files do not agree: {state}"
    return state


def lives_twice(relive: Relive, target: Capsule | str, port: int) -> tuple[Commit, list[Branch]]:
    """Commit under load, restore twice, and compare what can be compared; returns the commit and both branches."""
    with counting(port) as load:
        first = load.last
        commit = relive.commit(target)
        last = load.last + 1
        load.more()
        branches = [relive.restore(commit, port), relive.restore(commit, port, clock="now")]
        states = [_look(branch, port, commit, first, last) for branch in branches]
        load.more()
    check_clocks(branches[0], commit, ask(branches[0].ports[port], "/state"))
    check_clocks(branches[1], commit, ask(branches[1].ports[port], "/state"), "now")
    _live_apart(branches, port, states)
    assert settled(ask(port, "/state"))["count"] == load.last
    return commit, branches


def _look(branch: Branch, port: int, commit: Commit, first: int, last: int) -> dict[str, Any]:
    pids = sorted(process.pid for process in commit.manifest.target.processes)
    assert branch.pids() == pids
    state = settled(ask(branch.ports[port], "/state"))
    assert first <= state["count"] <= last
    assert state["pid"] in pids
    return state


def _live_apart(branches: list[Branch], port: int, states: list[dict[str, Any]]) -> None:
    """Each goes on counting from its own number; what one writes does not appear in the other."""
    for steps, branch in enumerate(branches, start=1):
        with Http(branch.ports[port]) as client:
            for _ in range(steps):
                client("POST", "/count")
    for steps, (branch, state) in enumerate(zip(branches, states, strict=True), start=1):
        assert settled(ask(branch.ports[port], "/state"))["count"] == state["count"] + steps
        seal = branch.seal()
        assert seal.is_intact and seal.packets_left == 0
