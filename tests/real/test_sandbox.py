"""What a branch's processes cannot do to whoever enters the branch, and what they may take of the machine.

The service is hostile here. Ways past the namespaces are in ``test_seal``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel.capabilities import WITHHELD
from relive.kernel.mounts import read_mounts
from support.ports import free_port
from support.waiting import eventually

from .harness import PROGRAMS, PYTHON, Branch, Relive, compiled

_SERVICE = "import time; print('here', flush=True); time.sleep(1e6)"


@pytest.fixture
def branch(relive: Relive) -> Branch:
    capsule = relive.run(PYTHON, "-c", _SERVICE)
    eventually(lambda: relive.output(capsule) != "")
    return relive.restore(relive.commit(capsule))


@pytest.fixture
def background(branch: Branch) -> Iterator[object]:
    """Start a command inside that goes on; ended with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        running.append(subprocess.Popen(branch.inner.command_inside(list(command))))

    yield start
    for one in running:
        one.kill()
        one.wait()


def test_no_program_of_the_branch_runs_before_the_command(branch: Branch) -> None:
    """Whatever the service has put in the place of tools that change rights is its own affair."""
    fake = '#!/bin/sh\\ngrep CapPrm /proc/self/status >> /tmp/caught\\nexec "$@"\\n'
    for name in ("setpriv", "nsenter", "unshare"):
        branch.exec("sh", "-c", f"printf '{fake}' > /usr/bin/{name}; chmod 755 /usr/bin/{name}")
    branch.exec("sh", "-c", "printf /tmp/evil.so > /etc/ld.so.preload")
    assert "uid=0" in branch.exec("id")
    assert not Path(f"/proc/{branch.root}/root/tmp/caught").exists()
    shown = branch.exec("sh", "-c", "grep CapPrm /proc/self/status; test ! -e /tmp/caught")
    held = int(re.search(r"CapPrm:\s+(\w+)", shown)[1], 16)  # type: ignore[index]
    assert [name for name, number in WITHHELD.items() if held >> number & 1] == []


def test_what_enters_has_given_up_its_rights_before_anybody_can_seize_it(
    branch: Branch, background: object, tmp_path: Path
) -> None:
    """GIVEN a loop that seizes every new process, THEN none that it catches can do more than the service."""
    program = compiled(PROGRAMS / "seize.c", tmp_path)
    seize = Path(f"/proc/{branch.root}/root/tmp/seize")
    seize.write_bytes(program.read_bytes())
    seize.chmod(0o755)
    assert callable(background)
    background("/tmp/seize", "/tmp/caught")
    caught = Path(f"/proc/{branch.root}/root/tmp/caught")

    def one_more() -> bool:
        branch.exec("true", check=False)
        return caught.exists() and int(caught.read_text().split()[0]) >= 6

    eventually(one_more, "it catches some")
    best = int(caught.read_text().split()[1], 16)
    assert [name for name, number in WITHHELD.items() if best >> number & 1] == []


def test_nobody_reaches_what_process_1_holds(branch: Branch) -> None:
    """So how the service ended cannot be forged."""
    tries = [
        "for fd in /proc/1/fd/*; do echo '0 memory' > $fd; done; true",
        "cat /proc/1/environ > /dev/null",
        "cat /proc/1/mem > /dev/null",
        "ls /proc/1/map_files/",
    ]
    for one in tries[1:]:
        assert "denied" in branch.exec("sh", "-c", one, check=False)
    branch.exec("sh", "-c", tries[0], check=False)
    assert branch.inner.wait_status is None and branch.inner.is_alive
    seized = "import ctypes,sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, 1, 0, 0) == 0)"
    branch.exec(str(PYTHON), "-c", seized)
    os.kill(branch.root, 9)
    eventually(lambda: branch.inner.wait_status == 9, "its end is told")


def test_a_branch_has_groups_of_its_own_and_sees_no_other(branch: Branch) -> None:
    groups = [Path(group) for group in branch.inner.facts.groups]
    assert groups, "this host lets nobody make control groups"
    for group in groups:
        members = (group / "cgroup.procs").read_text().split()
        assert {str(branch.inner.facts.init), str(branch.root)} <= set(members)
    lines = branch.exec("cat", "/proc/self/cgroup").splitlines()
    assert {line.split(":")[2] for line in lines} == {"/"}
    assert _namespace(branch.root) == _namespace(branch.inner.facts.init) != _namespace("self")
    limits = [group / "pids.max" for group in groups if (group / "pids.max").exists()]
    assert limits and all(limit.read_text().strip() != "max" for limit in limits)
    branch.stop()
    assert [group for group in groups if group.exists()] == []


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/cgroup")


def test_processes_that_multiply_stay_within_the_branch(relive: Relive) -> None:
    relive.environment["RELIVE_BRANCH_PROCESSES"] = "1"  # the least is what the commit holds, and some
    capsule = relive.run(PYTHON, "-c", _SERVICE)
    eventually(lambda: relive.output(capsule) != "")
    branch = relive.restore(relive.commit(capsule))
    multiply = (
        "import os, signal\n"
        "made = []\n"
        "try:\n"
        "    while len(made) < 2000:\n"
        "        made.append(os.fork())\n"
        "        if not made[-1]: signal.pause()\n"
        "except OSError: pass\n"
        "for pid in made: os.kill(pid, signal.SIGKILL)\n"
        "print(len(made))"
    )
    assert 0 < int(branch.exec(str(PYTHON), "-c", multiply)) < 300


def test_memory_of_a_branch_ends_where_that_of_its_capsule_does(relive: Relive) -> None:
    """GIVEN a capsule with --memory, THEN what would have been killed there is killed in its branch, and the host goes on."""
    answer = relive(
        *("run", "--detach", "--every", "never", "--name", "small", "--memory", "96M", "--"),
        *(str(PYTHON), "-c", _SERVICE),
    )
    eventually(lambda: Path(f"/proc/{answer['pid']}").exists())
    branch = relive.restore(relive.commit("small"))
    most = 600 << 20  # [bytes] far from what hurts this machine
    grow = f"data = bytearray({most}); data[::4096] = b'x' * len(data[::4096]); print('all of it')"
    assert "all of it" not in branch.exec(str(PYTHON), "-c", grow, check=False)
    assert branch.inner.is_alive


@contextlib.contextmanager
def small_disk(relive: Relive, options: str) -> Iterator[None]:
    """RELIVE_HOME is a file system of its own for the time of the block; nothing of Relive runs after it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(relive.home)], check=True)
    try:
        yield
    finally:
        relive.close()
        subprocess.run(["umount", "--lazy", str(relive.home)], check=True)


@pytest.mark.parametrize(
    ("options", "fill"),
    [
        ("size=128m,nr_inodes=100000", "head -c 10M /dev/zero > /srv/little; sleep 1; yes > /srv/full"),
        ("size=512m,nr_inodes=4000", "mkdir /srv/f; for n in $(seq 4000); do : > /srv/f/$n; done; sleep 60"),
    ],
    ids=["bytes", "inodes"],
)
def test_a_branch_ends_before_it_fills_the_disk(relive: Relive, options: str, fill: str) -> None:
    """The service goes on, and who looks is told why the branch ended: also where it was so quick that nothing was left."""
    with small_disk(relive, options):
        service = relive.run("/bin/sleep", "600")
        branch = relive.restore(relive.commit(service))
        branch.exec("sh", "-c", fill, check=False)
        eventually(lambda: not branch.inner.is_alive, "it ends")
        told = next(one for one in relive("ps", "--all") if one["id"] == branch.id)
        assert told["state"] == "ended (the disk was filling up)"
        assert relive("logs", branch.id)["disk_filled"]["code"] == "disk-filled"
        assert Path(f"/proc/{service.pid}").exists()


_OWN = ("/run/relive", "/proc/")  # what only one of the two has there


def test_the_roots_of_all_mounts_have_the_modes_that_the_service_knows(relive: Relive) -> None:
    """GIVEN a service with files in /dev/shm and in /run, WHEN it is restored, THEN every other user can still make his there."""
    name = relive.home.name
    files = [Path("/dev/shm", name), Path("/run", name)]
    hold = "; ".join(
        f"f{n} = open('{path}', 'w'); f{n}.write('x'); f{n}.flush()" for n, path in enumerate(files)
    )
    capsule = relive.run(PYTHON, "-c", f"{hold}; {_SERVICE}")
    try:
        eventually(lambda: relive.output(capsule) != "")
        branch = relive.restore(relive.commit(capsule))
        before, now = _roots(capsule.pid), _roots(branch.root)
        assert before["/dev/shm"][0] == 0o41777
        differ = {
            point: (facts, now[point])
            for point, facts in before.items()
            if point in now and now[point] != facts and not point.startswith((str(relive.home), *_OWN))
        }
        assert differ == {}
        made = "import multiprocessing.shared_memory as s; s.SharedMemory(create=True, size=9).unlink()"
        branch.exec("setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", made)
    finally:
        for path in files:
            path.unlink(missing_ok=True)


def _roots(pid: int) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of the root of each mount, and of what is one in some branches, as a process sees them."""
    points = {entry.point for entry in read_mounts(pid)} | {
        "/dev",
        "/dev/shm",
        "/dev/mqueue",
        "/run",
        "/tmp",
        "/var/tmp",
    }
    seen = {point: Path(f"/proc/{pid}/root{point}") for point in points}
    facts = {point: path.stat() for point, path in seen.items() if path.is_dir()}
    return {point: (one.st_mode, one.st_uid, one.st_gid) for point, one in facts.items()}


def test_nothing_asks_for_more_than_its_share(branch: Branch) -> None:
    """No real-time priority, no locked memory, no place behind the host's processes when memory runs out."""
    ask = (
        "import os, ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "for attempt in (lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9)), lambda: os.nice(-5)):\n"
        "    try: attempt(); print('more')\n"
        "    except PermissionError: pass\n"
        "data = ctypes.create_string_buffer(64 << 20)\n"
        "if libc.mlock(data, len(data)) == 0: print('locked')\n"
    )
    assert branch.exec("sh", "-c", f'ulimit -l 64; exec {PYTHON} -c "$0"', ask) == ""


def test_a_branch_that_has_ended_cannot_be_entered(branch: Branch, relive: Relive) -> None:
    os.kill(branch.inner.facts.init, 9)
    eventually(lambda: not branch.inner.is_alive)
    done = subprocess.run(branch.inner.command_inside(["id"]), capture_output=True, check=False)
    assert done.returncode == 125 and b"relive-enter" in done.stderr
    refused = relive.commands(["exec", branch.id, "--", "id"], relive.environment)
    assert refused.returncode != 0 and f"the branch {branch.id} has ended" in refused.stderr


_GROWS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kept = []
        while self.path == "/grow":
            kept.append(b"x" * (4 << 20))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_an_out_of_memory_failure_fails_again_under_the_limit_of_its_capsule(relive: Relive) -> None:
    outer, inner = free_port(), free_port()
    options = ["--detach", "--every", "start", "--name", "grows", "--memory", "96M"]
    addresses = ["--listen", f"127.0.0.1:{outer}", "--upstream", f"127.0.0.1:{inner}"]
    relive("run", *options, *addresses, "--", str(PYTHON), "-c", _GROWS, str(inner))
    eventually(lambda: relive.commits("grows"), "its first commit")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", outer, timeout=30)) as client:
        client.request("GET", "/grow")
        with contextlib.suppress(OSError, http.client.HTTPException):
            client.getresponse().read()
    eventually(relive.incidents, "the incident")
    (run,) = json.loads(relive.say("replay", "1").stdout)["runs"]
    assert (run["outcome"]["end"], run["outcome"]["signal"]) == ("died", 9)
    assert run["verdict"]["kind"] in ("reproduced", "same-answer")  # a kill leaves no word of its cause
