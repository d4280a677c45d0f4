"""``python relive_head.py COMMAND...``: stay at the head of a service whose first process ends and leaves daemons.

``relive run --daemons`` starts the command below this program. As a child subreaper (prctl(2)) it becomes the parent of every
daemon, so that all of the service is one tree, which CRIU can commit. It has the manners of the service's first process:

- signals that are meant for the service go to the command while that lives, then to the daemons;
- a command that fails ends it in the same way, and process 1 then kills the daemons;
- else it ends with the last of the daemons, and like that one; when it was asked to end, it asks those that the command leaves.

Standard library only: it runs in an interpreter that has nothing else.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_ASKS_TO_END = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})
_OWN = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD),
        # Of its own faults, not for others; and what stops and resumes it with the whole service.
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
        *(signal.SIGTSTP, signal.SIGCONT, signal.SIGPIPE),
    }
)
_OWN_PID = ("LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID")


def main(command):
    """Start the command and stay until nobody is left; never returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("relive: prctl: " + os.strerror(ctypes.get_errno()))
    heard = {number for number in signal.valid_signals() if number not in _OWN} | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    first = _start(command, before)
    is_asked = False
    status = 0
    while True:
        number = signal.sigwait(heard)
        if number != signal.SIGCHLD:
            is_asked = is_asked or number in _ASKS_TO_END
            _send([first] if first else _children(), number)
            continue
        while True:
            try:
                pid, status_of_one = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                _end_like(libc, status)
            if pid == 0:
                break
            status = status_of_one
            if pid == first:
                first = 0
                if status != 0:
                    _end_like(libc, status)
                if is_asked:
                    _send(_children(), signal.SIGTERM)


def _start(command, mask):
    own = [name for name in _OWN_PID if os.environ.get(name) == str(os.getpid())]
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for name in own:
            os.environ[name] = str(os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # what Python has made of them is inherited
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, "relive: {}: {}\n".format(command[0], error.strerror).encode())
    os._exit(127)


def _children():
    with open("/proc/self/task/{}/children".format(os.getpid())) as file:
        return [int(word) for word in file.read().split()]


def _send(pids, number):
    """To children: their numbers are not used again before they are waited for, which only this thread does."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # it runs as another user now, or is a zombie
            pass


def _end_like(libc, status):
    """End as the one of that raw wait status ended, without a core of its own."""
    if os.WIFSIGNALED(status):
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1:])
