"""Starting the one program that a capsule or a sandbox is for, from its process 1."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from relive.errors import CapsuleStartFailed, ReliveError, UsageError
from relive.kernel import libc
from relive.kernel.seccomp import hide_io_uring
from relive.sandbox.rootfs import IO_DIRECTORY
from relive.sandbox.spawn import standard_streams

__all__ = ["assume_identity", "fork_service", "look_up_user"]

_PR_SET_CHILD_SUBREAPER = 36


def look_up_user(name: str | None) -> pwd.struct_passwd | None:
    """The user of that name, None for no name; raises UsageError where there is none."""
    if name is None:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"there is no user {name!r}", remedy="name a user of this machine") from None


def assume_identity(user: pwd.struct_passwd | None) -> None:
    """Become that user, for good; None: stay who one is. Raises OSError."""
    if user is None:
        return
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def fork_service(
    command: Sequence[str],
    environment: Callable[[], Mapping[str, str]],
    directory: str,
    become: Callable[[], None],
    kept: Collection[int] = (),
) -> int:
    """Start it below process 1, its output going to the files in ``IO_DIRECTORY``; called by process 1 itself.

    Args:
        environment: called in the new process, too.
        kept: descriptors that it gets, besides 0, 1 and 2.
        become: called in the new process while it may still do everything: whom it runs as, what it gives up. A CapsuleStartFailed
            that it raises comes out of this function.

    Returns:
        Its pid, as process 1 sees it.

    Raises:
        CapsuleStartFailed: it cannot be executed.
    """
    reading, writing = os.pipe()
    service = os.fork()
    if service == 0:
        _become_service(command, environment, directory, become, writing, kept)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        failure = pipe.read()
    if failure:
        os.waitpid(service, 0)
        raise ReliveError.from_json(json.loads(failure))
    return service


def _become_service(
    command: Sequence[str],
    environment: Callable[[], Mapping[str, str]],
    directory: str,
    become: Callable[[], None],
    failure: int,
    kept: Collection[int],
) -> NoReturn:
    try:
        os.setsid()
        # Orphans stay in the tree that is committed, as they would below process 1 of a container.
        libc.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        standard_streams(IO_DIRECTORY / "stdout.log", IO_DIRECTORY / "stderr.log")
        hide_io_uring()
        become()
        os.chdir(directory)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores these, and ignoring is inherited
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != failure and int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        os.execvpe(command[0], list(command), dict(environment()))
    except CapsuleStartFailed as error:
        os.write(failure, json.dumps(error.as_json()).encode())
    except BaseException as error:
        reason = error.errno if isinstance(error, OSError) else None
        refusal = CapsuleStartFailed(
            f"{command[0]!r} cannot be started", cause=str(error), remedy=_remedy_for(reason, command[0])
        )
        os.write(failure, json.dumps(refusal.as_json()).encode())
    # Not by exit_group(2): process 1 is asked about each such call, and does not answer before the service has started.
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it lives on after SIGKILL")


def _remedy_for(number: int | None, program: str) -> str:
    if number == 2:
        return f"check that {program!r} is installed and on PATH, and that the working directory exists"
    if number == 13:
        return f"make {program!r} executable and readable for the service's user"
    return "correct the command"
