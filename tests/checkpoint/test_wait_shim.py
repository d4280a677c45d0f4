"""The library that keeps CRIU from taking news of one process it traces for news of the one it waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings

TOOLS = CriuTools(load_settings().tools_path)
# As CRIU does in a dump: two processes are traced, one is killed while the other is run. The kernel tells of the one first that was
# forked first. Prints for whom each wait is over.
TRACES = """
import ctypes, os, signal, socket
CONT, SEIZE, INTERRUPT, EXITKILL, WALL = 7, 0x4206, 0x4207, 0x100000, 0x40000000
libc = ctypes.CDLL(None)

def trace(request, pid, options=0):
    assert libc.ptrace(request, pid, None, ctypes.c_void_p(options)) == 0

def held():
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    trace(SEIZE, pid, EXITKILL)
    trace(INTERRUPT, pid)
    os.waitpid(pid, WALL)
    return pid

def news(pid, kinds):
    os.waitid(os.P_PID, pid, kinds | os.WNOWAIT)

killed, runs = held(), held()
names = {0: "nobody", killed: "killed", runs: "runs"}
trace(CONT, runs)
os.kill(killed, signal.SIGKILL)
news(killed, os.WEXITED)
"""
# Where it steps the one.
STEPPED = """
trace(INTERRUPT, runs)
news(runs, os.WSTOPPED)
print(names[os.wait4(-1, WALL)[0]])
"""
# In its handler of SIGCHLD; then the other stops, and ends.
HANDLED = """
print(names[os.waitpid(-1, os.WNOHANG)[0]])
"""
CONNECTED = """
with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    assert libc.accept(server.fileno(), None, None) > 0
"""
STOPS = """
os.kill(runs, signal.SIGSTOP)
news(runs, os.WSTOPPED)
print(names[os.waitpid(-1, os.WNOHANG)[0]])
"""
ENDS = """
os.kill(runs, signal.SIGKILL)
news(runs, os.WEXITED)
print(names[os.waitpid(-1, os.WNOHANG)[0]])
"""


@pytest.mark.parametrize(
    ("loaded", "parts", "told"),
    [
        (True, [STEPPED, HANDLED, ENDS], ["runs", "nobody", "runs"]),
        (True, [HANDLED, CONNECTED, STOPS, ENDS], ["nobody", "runs", "nobody"]),
        (False, [STEPPED], ["killed"]),
        (False, [HANDLED, CONNECTED, ENDS], ["killed", "runs"]),
    ],
)
def test_who_waits_for_one_process_is_not_told_of_the_end_of_another(
    loaded: bool, parts: list[str], told: list[str]
) -> None:
    """Nor, in the handler, of its own end while it is connected; but of its stop."""
    environment = {"LD_PRELOAD": str(TOOLS.wait_shim)} if loaded else {}
    command = [sys.executable, "-I", "-S", "-c", TRACES + "".join(parts)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.split(), done.stderr) == (told, "")
