"""The processes of Relive around a service, and the phases of a commit, as chaos.py sees them in /proc."""

from __future__ import annotations

import contextlib
import os
import random
import time
from dataclasses import dataclass

from _chaos_processes import children, comm, command_line, parent, tracer_of

from relive.agent.capsule.lives import Capsule
from relive.kernel import procfs

SPIN = 0.0002  # [s]


@dataclass
class Moment:
    """The processes of a commit under way, by pid."""

    criu: int | None = None
    nsenter: int | None = None
    frozen: bool = False


def agent_of(capsule: Capsule) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        pid, started = map(int, capsule.paths.agent_pid.read_text().split())
        return pid if procfs.is_same_process(pid, started) else None
    return None


def helper(parent: int | None, word: str) -> int | None:
    return next((pid for pid in children(parent) if word in command_line(pid)), None) if parent else None


def signal_tracer_of(agent: int | None) -> int | None:
    """Of fatal signals; a child of the agent, or of the fork server. Its guardians have its words, and are nobody's children."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        words = command_line(pid)
        if "relive.signals.tracer --socket" in words and f"--agent {agent} " in words and parent(pid) != 1:
            return pid
    return None


def proxy_of(capsule: Capsule) -> int | None:
    path = str(capsule.paths.proxy_socket)
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        words = command_line(pid)
        if path in words and "relive.proxies.ingress.proxy" in words:
            return pid
    return None


def worker_of(command: int, words: str) -> int | None:
    """The process that does a command's work: a fork with its words, or itself without a fork server; None until it works."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if f"-m relive.cli {words} " in command_line(pid):
            return pid
    return command if children(command) else None


def look(driver: int | None, root: int) -> Moment:
    moment = Moment()
    for pid in children(driver) if driver else []:
        name = comm(pid)
        if name == "criu":
            moment.criu = pid
        elif name == "nsenter":
            moment.nsenter = pid
            moment.criu = next((one for one in children(pid) if comm(one) == "criu"), None)
    moment.frozen = moment.criu is not None and tracer_of(root) == moment.criu
    return moment


def reach(driver: int | None, root: int, wanted: str, chance: random.Random) -> tuple[Moment, str]:
    """Wait for a phase of the next commit, and a random while longer; returns the processes and the phase now."""
    moment = Moment()
    was_frozen = False
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        now = look(driver, root)
        moment.criu, moment.nsenter = now.criu or moment.criu, now.nsenter or moment.nsenter
        was_frozen |= now.frozen
        if wanted == "before" and now.criu:
            time.sleep(chance.uniform(0, 0.006))
            break
        if wanted == "frozen" and now.frozen:
            time.sleep(chance.uniform(0, 0.015))
            break
        if was_frozen and not now.frozen:
            time.sleep(chance.uniform(0, 0.03))
            break
        time.sleep(SPIN)
    now = look(driver, root)
    moment.criu, moment.nsenter = now.criu or moment.criu, now.nsenter or moment.nsenter
    if now.frozen:
        return moment, "frozen"
    if moment.criu is None:
        return moment, "idle"
    return moment, "after" if was_frozen or not now.criu else "before"
