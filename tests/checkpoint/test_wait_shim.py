"""The library that keeps CRIU from taking news of one process it traces for news of the one it waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings

TOOLS = CriuTools(load_settings().tools_path)
# As CRIU does in a dump: two processes are traced, one is killed while the other is run. The kernel tells of the one first that was
# forked first. Prints for whom each wait is over: in the handler of SIGCHLD, and where the other is stepped.
DUMP = """
import ctypes, os, signal
CONT, SEIZE, INTERRUPT, WALL = 7, 0x4206, 0x4207, 0x40000000
libc = ctypes.CDLL(None)

def trace(request, pid):
    assert libc.ptrace(request, pid, None, None) == 0

def held():
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    trace(SEIZE, pid)
    trace(INTERRUPT, pid)
    os.waitpid(pid, WALL)
    return pid

killed, runs = held(), held()
names = {0: "nobody", killed: "killed", runs: "runs"}
trace(CONT, runs)
os.kill(killed, signal.SIGKILL)
os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
if handled:
    print(names[os.waitpid(-1, os.WNOHANG)[0]])
trace(INTERRUPT, runs)
print(names[os.wait4(-1, WALL)[0]])
os.kill(runs, signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("loaded", "handled", "told"),
    [(True, True, ["nobody", "runs"]), (False, True, ["killed", "runs"]), (False, False, ["killed"])],
)
def test_who_waits_for_one_process_is_not_told_of_the_end_of_another(
    loaded: bool, handled: bool, told: list[str]
) -> None:
    environment = {"LD_PRELOAD": str(TOOLS.wait_shim)} if loaded else {}
    command = [sys.executable, "-I", "-S", "-c", f"handled = {handled}\n{DUMP}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == told
