"""Starting agents: for a new life, and again for a capsule whose agent died."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from relive import errors
from relive.agent.capsule import Capsule, all_lives, new_life
from relive.agent.injection import remove_rings
from relive.config import Settings, store_key_variable
from relive.errors import CapsuleStartFailed, ReliveError, UsageError
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, CapsuleSpec, LifePaths

__all__ = ["agent_is_alive", "launch", "tend_capsules"]

_START_NS = 10_000_000_000
_RESTART_PAUSE = 1.0  # [s] between two starts of an agent that keeps dying


def launch(settings: Settings, spec: CapsuleSpec) -> Capsule:
    """Start a service in a capsule, with an agent of its own that outlives the caller.

    Raises:
        CapsuleExists, CapsuleStartFailed, UsageError, HostIncapable: as the agent reports.
    """
    _check_port(spec)
    paths = new_life(settings, spec.name)
    try:
        _start_agent(settings, paths, spec)
    except BaseException:
        if not paths.state.exists():
            remove_rings(paths)
            shutil.rmtree(paths.directory, ignore_errors=True)
        raise
    facts = CapsuleFacts.model_validate_json(paths.state.read_bytes())
    current = paths.directory.parent / "current"
    fresh = paths.directory.parent / ".current"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(paths.directory.name)
    fresh.replace(current)
    return Capsule(paths, facts)


def _start_agent(settings: Settings, paths: LifePaths, spec: CapsuleSpec | None = None) -> None:
    reading, writing = os.pipe()
    environment = dict(os.environ, RELIVE_HOME=str(settings.home), RELIVE_TOOLS=str(settings.tools_path))
    environment |= store_key_variable()
    with paths.agent_log.open("ab") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "relive.agent", str(paths.directory), "--ready", str(writing)],
            pass_fds=[writing],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    os.close(writing)
    assert agent.stdin is not None
    with contextlib.suppress(BrokenPipeError), agent.stdin:
        # Not by a file: it holds the service's environment, and with it its secrets.
        agent.stdin.write(spec.model_dump_json().encode() if spec is not None else b"")
    with os.fdopen(reading) as pipe:
        line = pipe.readline()
    message = json.loads(line) if line else {}
    if "error" in message:
        shape = message["error"]
        kind = getattr(errors, shape["kind"], ReliveError)
        raise kind(shape["message"], cause=shape["cause"], remedy=shape["remedy"])
    if "ok" not in message:
        raise CapsuleStartFailed(
            "the agent did not start", cause=_last_line(paths.agent_log), remedy="run `relive doctor`"
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"


def agent_is_alive(capsule: Capsule) -> bool:
    """The agent's process runs."""
    try:
        pid, started = capsule.paths.agent_pid.read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    return procfs.is_same_process(int(pid), int(started))


def tend_capsules(settings: Settings) -> list[str]:
    """Give every capsule that lost its agent a new one, which also writes down the end of one that ended meanwhile.

    Called by every command, so one capsule whose agent does not start is no reason to fail: its log says why, and
    whoever asks that agent is told. Returns the names of those that run and have a new one.
    """
    tended = []
    for capsule in all_lives(settings):
        if capsule.paths.closed.exists() or agent_is_alive(capsule):
            continue
        with contextlib.suppress(ReliveError):
            if _replace_agent(settings, capsule) and capsule.is_alive:
                tended.append(capsule.facts.spec.name)
    return tended


def _replace_agent(settings: Settings, capsule: Capsule) -> bool:
    """Start an agent unless another command does, or one was started a moment ago; False if none was."""
    directory = os.open(capsule.paths.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # An agent that dies at once is not started over and over by a command that waits for it.
        time.sleep(_pause_left(capsule))
        # Another command may have started one, and that one may even have finished, since we looked.
        if capsule.paths.closed.exists() or agent_is_alive(capsule) or _starts_soon(capsule):
            return False
        _start_agent(settings, capsule.paths)
    finally:
        os.close(directory)
    return True


def _pause_left(capsule: Capsule) -> float:
    """Seconds until the next agent may be started; mostly none."""
    try:
        since = time.time() - capsule.paths.agent_pid.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    return min(max(0.0, _RESTART_PAUSE - since), _RESTART_PAUSE)


def _starts_soon(capsule: Capsule) -> bool:
    """Its first agent has written the state just now, and its own pid will follow."""
    return not capsule.paths.agent_pid.exists() and time.time_ns() - capsule.facts.started_wall_ns < _START_NS


def _check_port(spec: CapsuleSpec) -> None:
    if spec.listen is None:
        return
    family = socket.AF_INET6 if ":" in spec.listen[0] else socket.AF_INET
    try:
        socket.create_server(spec.listen, family=family).close()
    except OSError as error:
        raise UsageError(
            f"cannot listen on {spec.listen[0]}:{spec.listen[1]}",
            cause=error.strerror,
            remedy="choose another port with --listen; `ss -ltnp` shows who has it",
        ) from error
