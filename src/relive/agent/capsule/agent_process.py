"""Starting an agent's process, and again when it died: of a capsule, or of a container's watch."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from relive.agent.capsule.inherited import InheritedDescriptors
from relive.config import Settings, store_key_variable
from relive.errors import CapsuleExists, CapsuleStartFailed, ReliveError, UsageError
from relive.forkserver.starting import start_module
from relive.kernel import procfs
from relive.kernel.disk_errors import disk_errors
from relive.kernel.heap import FEW_ARENAS
from relive.model.life_paths import LifePaths

__all__ = [
    "CAPSULES",
    "CONTAINERS",
    "agent_lives",
    "agent_now",
    "check_port",
    "has_died",
    "replace_agent",
    "sole_start",
    "start_agent",
]

CAPSULES = "relive.agent"  # the module that an agent runs, by what it looks after
CONTAINERS = "relive.watching"

_START_NS = 10_000_000_000
_DYING = 3.0  # [s] that a killed process may take to be gone
_RESTART_PAUSE = 1.0  # [s] between two starts of an agent that keeps dying


def start_agent(
    settings: Settings,
    paths: LifePaths,
    module: str,
    words: bytes = b"",
    variables: Mapping[str, str] | None = None,
    handed: InheritedDescriptors | None = None,
) -> None:
    """Start ``python -m MODULE DIRECTORY --ready FD`` and wait until it says that it is ready.

    Args:
        words: its standard input, which is nobody else's to read.
        variables: set in its environment, beside the caller's.
        handed: what it hands on to the service.

    Raises:
        ReliveError: what it says instead; CapsuleStartFailed where it says nothing.
        DiskFull, HostIncapable, StoreError: its log cannot be made.
    """
    with disk_errors("making its log", paths.agent_log.parent):
        log = paths.agent_log.open("ab")
    reading, writing = os.pipe()
    said, saying = os.pipe()
    environment = dict(os.environ, RELIVE_HOME=str(settings.home), RELIVE_TOOLS=str(settings.tools_path))
    environment |= store_key_variable() | dict(variables or {}) | FEW_ARENAS
    options = ["--handed", handed.model_dump_json()] if handed is not None else []
    with log:
        start_module(
            module,
            [str(paths.directory), "--ready", str(writing), *options],
            streams=(said, log.fileno(), log.fileno()),
            handed=[writing, *(handed.descriptors if handed is not None else [])],
            environment=environment,
            may_fork=settings.fork_server,
            patient=True,
        )
    os.close(said)
    os.close(writing)
    with contextlib.suppress(BrokenPipeError), os.fdopen(saying, "wb") as pipe:
        pipe.write(words)
    with os.fdopen(reading) as answer:
        line = answer.readline()
    message = json.loads(line) if line else {}
    if "error" in message:
        raise ReliveError.from_json(message["error"])
    if "ok" not in message:
        raise CapsuleStartFailed(
            "the agent did not start", cause=_last_line(paths.agent_log), remedy="run `relive doctor`"
        )


@contextlib.contextmanager
def sole_start(directory: Path) -> Iterator[None]:
    """Let nobody else start what ``directory`` is named after within the block; it is made, and removed if it stays empty.

    Raises:
        CapsuleExists: another starts it at this moment.
        DiskFull, HostIncapable, StoreError: it cannot be made.
    """
    # What a service writes and what clients send it is nobody else's business.
    with disk_errors("making a directory for it", directory.parent):
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _takes(descriptor):
            raise CapsuleExists(
                f"{directory.name!r} is being started",
                cause="by another command, at this moment",
                remedy="`relive ps` tells in a moment what came of it",
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # mostly because it is not empty
                directory.rmdir()
    finally:
        os.close(descriptor)


def _takes(directory: int) -> bool:
    """Claim an open directory; False if another has, or had and has removed it."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(directory).st_nlink > 0


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else "it said nothing"


def agent_lives(paths: LifePaths) -> bool:
    """The agent's process runs."""
    try:
        pid, started = paths.agent_pid.read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    return procfs.is_same_process(int(pid), int(started))


def agent_now(paths: LifePaths) -> str:
    """Names the agent's process for good (pid and start); empty where there was none yet."""
    with contextlib.suppress(FileNotFoundError):
        return paths.agent_pid.read_text()
    return ""


def has_died(paths: LifePaths, agent: str) -> bool:
    """An agent that has just hung up has ended, or does so within moments: the killed close their sockets before they are gone.

    Args:
        agent: as ``agent_now`` named it; another may be there already.
    """
    deadline = time.monotonic() + _DYING
    while agent_now(paths) == agent and agent_lives(paths):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def replace_agent(paths: LifePaths, began_wall_ns: int, begin: Callable[[], None]) -> bool:
    """Start an agent unless another command does, or one was started a moment ago; False if none was.

    Args:
        began_wall_ns: when the first agent was started.
        begin: starts one.
    """
    directory = os.open(paths.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        # An agent that dies at once is not started over and over by a command that waits for it.
        time.sleep(_pause_left(paths))
        # Another command may have started one, and that one may even have finished, since we looked.
        if paths.closed.exists() or agent_lives(paths) or _starts_soon(paths, began_wall_ns):
            return False
        begin()
    finally:
        os.close(directory)
    return True


def _pause_left(paths: LifePaths) -> float:
    """Seconds until the next agent may be started; mostly none."""
    try:
        since = time.time() - paths.agent_pid.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    return min(max(0.0, _RESTART_PAUSE - since), _RESTART_PAUSE)


def _starts_soon(paths: LifePaths, began_wall_ns: int) -> bool:
    """Its first agent has written the state just now, and its own pid will follow."""
    return not paths.agent_pid.exists() and time.time_ns() - began_wall_ns < _START_NS


def check_port(listen: tuple[str, int]) -> None:
    """Raise UsageError if nobody can listen there now."""
    family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
    try:
        socket.create_server(listen, family=family).close()
    except OSError as error:
        raise UsageError(
            f"cannot listen on {listen[0]}:{listen[1]}",
            cause=error.strerror,
            remedy="choose another port with --listen; `ss -ltnp` shows who has it",
        ) from error
