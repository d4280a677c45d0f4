"""``relive check`` beside what a commit then does.

What it says blocks is refused; what it says is well is committed and restored.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.waiting import eventually

from .harness import PROGRAMS, PYTHON, Process, Refused, Relive

Start = Callable[..., Process]
STATE = PROGRAMS / "one_state.py"

REFUSED = {
    "ring": "io-uring",
    "half_pair": "half-unix-stream",
    "half_datagrams": "half-unix-stream",
    "vsock": "unsupported-socket",
    "mptcp": "unsupported-socket",
    "netlink_unread": "unsupported-socket",
    "userfault": "unsupported-file",
    "perf": "unsupported-file",
    "bpf_map": "unsupported-file",
    "bpf_program": "unsupported-file",
    "secret_memory": "unsupported-file",
    "seccomp_listener": "unsupported-file",
    "tun": "unsupported-file",
    "sysv_memory": "shared-memory-outside",
    "full_table": "descriptors-full",
    "queue": "outside-mount",
    "outside_file": "outside-mount",
    "own_mounts": "outside-mount",
    "own_users": "nested-namespace",
    "own_time": "nested-namespace",
    "child_own_ipc": "nested-namespace",
    "child_own_uts": "nested-namespace",
    "child_own_users": "nested-namespace",
    "child_own_pids": "nested-namespace",
    "closed_in_epoll": "epoll-closed",
}
UNRESTORABLE = {
    "directory_gone": "link-remap",
    "child_own_mounts": "nested-namespace",
    "child_own_network": "nested-namespace",
}
WELL = "ordinary double_fork own_network other_user".split()


@pytest.fixture(scope="module")
def relive() -> Iterator[Relive]:
    """One home for all: no test looks at another's commits."""
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    made = Relive(home, "check")
    yield made
    made.close()
    shutil.rmtree(home)


@pytest.fixture
def state(relive: Relive, start: Start, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a program that holds one kind of state; the target."""
    ended: list[int] = []

    def begin(*words: str) -> str:
        with (tmp_path / "out").open("w") as out:
            process = start(PYTHON, STATE, *words, stdout=out)
        line = eventually((tmp_path / "out").read_text, f"{words[0]} is held")
        pid = int(line.split()[1])
        if pid != process.pid:
            ended.append(pid)
        return f"pid:{pid}"

    yield begin
    for pid in ended:
        os.kill(pid, 9)


def looked(relive: Relive, target: str) -> tuple[int, dict[str, Any]]:
    """(exit status, report)."""
    done = relive.say("check", target)
    return done.returncode, json.loads(done.stdout)


def codes(report: dict[str, Any], severity: str) -> set[str]:
    return {one["code"] for one in report["findings"] if one["severity"] == severity}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_blocks_is_refused(relive: Relive, state: Callable[..., str], kind: str) -> None:
    target = state(kind)
    status, report = looked(relive, target)
    assert (status, report["verdict"]) == (5, "refused")
    assert report["capsule_helps"] == (
        REFUSED[kind] in ("io-uring", "shared-memory-outside", "outside-mount")
    )
    assert codes(report, "blocks") == {REFUSED[kind]}
    with pytest.raises(Refused) as caught:
        relive.commit(target)
    assert caught.value.status == 5


@pytest.mark.parametrize("kind", UNRESTORABLE)
def test_what_could_be_committed_and_not_restored_blocks(
    relive: Relive, state: Callable[..., str], kind: str
) -> None:
    target = state(kind)
    assert codes(looked(relive, target)[1], "blocks") == {UNRESTORABLE[kind]}
    with pytest.raises(
        Refused
    ):  # by the commit, where this host has mounts that CRIU cannot save for another namespace
        relive.restore(relive.commit(target))


@pytest.mark.parametrize("kind", WELL)
def test_what_is_well_is_committed_and_restored(relive: Relive, state: Callable[..., str], kind: str) -> None:
    target = state(kind)
    status, report = looked(relive, target)
    assert (status, report["verdict"]) == (0, "whole"), report["findings"]
    relive.restore(relive.commit(target)).stop()


def test_a_session_whose_leader_is_gone(relive: Relive, state: Callable[..., str]) -> None:
    """It would be committed, and its restore take until it is given up."""
    assert codes(looked(relive, state("orphan_session"))[1], "blocks") == {"session-outside"}


def test_devices(relive: Relive, state: Callable[..., str]) -> None:
    assert looked(relive, state("device", "/dev/full"))[0] == 0


def test_a_device_that_a_branch_does_not_have(relive: Relive, state: Callable[..., str]) -> None:
    target = state("device", "/dev/loop-control")
    assert codes(looked(relive, target)[1], "blocks") == {"unsupported-file"}
    with pytest.raises(Refused):
        relive.commit(target)


def test_the_other_end_of_a_unix_socket_is_named(relive: Relive, state: Callable[..., str]) -> None:
    path = f"/run/relive-check-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        try:
            listening.listen()
            held: list[socket.socket] = []
            accepting = threading.Thread(target=lambda: held.append(listening.accept()[0]))
            accepting.start()
            target = state("unix_stream", path)
            accepting.join()
            _, report = looked(relive, target)
            (found,) = [one for one in report["findings"] if one["severity"] == "blocks"]
            assert found["code"] == "half-unix-stream" and path in found["subject"]
            assert f"(pid {os.getpid()})" in found["cause"]
            with pytest.raises(Refused):
                relive.commit(target)
            held[0].close()
        finally:
            Path(path).unlink()


def test_a_connection_to_elsewhere_is_lost(relive: Relive, state: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        target = state("tcp_out", str(port))
        status, report = looked(relive, target)
        assert (status, report["verdict"]) == (1, "partly")
        (found,) = [one for one in report["findings"] if one["severity"] == "lost"]
        assert found["code"] == "connection-outside" and f"127.0.0.1:{port}" in found["subject"]
        relive.commit(target)


def test_a_deleted_file_over_the_limit(relive: Relive, state: Callable[..., str]) -> None:
    target = state("large_deleted", "2000000")
    assert codes(looked(relive, target)[1], "blocks") == set()
    limited = {"RELIVE_GHOST_LIMIT": "1000000"}
    report = json.loads(relive.say("check", target, environment=limited).stdout)
    assert codes(report, "blocks") == {"ghost-too-large"}
    with pytest.raises(Refused):
        relive("commit", target, environment=limited)


def test_two_users_without_the_right_to_read_limits(relive: Relive, state: Callable[..., str]) -> None:
    target = state("two_users")
    found = codes(looked(relive, target)[1], "blocks")
    if found:
        assert found == {"limits-of-other-user"}
        with pytest.raises(Refused):
            relive.commit(target)
    else:
        relive.commit(target)


def test_a_tracer_is_seen_and_nothing_is_touched(
    relive: Relive, start: Start, state: Callable[..., str]
) -> None:
    """GIVEN a process under strace WHEN it is checked THEN its tracer is named and still there."""
    target = state("nothing")
    pid = target.removeprefix("pid:")
    tracer = start("strace", "-o", "/dev/null", "-p", pid)
    eventually(lambda: f"TracerPid:\t{tracer.pid}" in Path(f"/proc/{pid}/status").read_text())
    assert codes(looked(relive, target)[1], "blocks") == {"traced"}
    assert f"TracerPid:\t{tracer.pid}" in Path(f"/proc/{pid}/status").read_text()
    with pytest.raises(Refused):
        relive.commit(target)


def test_memory_is_foreseen(relive: Relive, state: Callable[..., str]) -> None:
    """What is said to be saved is what is saved, to a tenth."""
    target = state("memory", str(32 << 20))
    _, report = looked(relive, target)
    saved = sum(one.size for one in relive.commit(target).manifest.images if one.name.startswith("pages-"))
    assert report["estimate"]["memory"] == pytest.approx(saved, rel=0.1)


def test_a_capsule_is_checked_by_its_name(relive: Relive) -> None:
    """What a plain process is refused for, a capsule has of its own."""
    capsule = relive.run(PYTHON, STATE, "sysv_memory")
    eventually(lambda: "ready" in relive.output(capsule))
    status, report = looked(relive, capsule.name)
    assert (status, report["verdict"], report["pid"]) == (0, "whole", capsule.pid), report["findings"]
    relive.restore(relive.commit(capsule)).stop()


def test_what_cannot_be_meant(relive: Relive) -> None:
    for words, code, status in (
        (["pid:x"], "usage", 2),
        (["nosuch"], "target-unknown", 3),
        (["pid:4194305"], "process-gone", 3),
        (["pid:1"], "target-undumpable", 5),
        (["--port", "80", "pid:1"], "usage", 2),
    ):
        with pytest.raises(Refused) as caught:
            relive("check", *words)
        assert (caught.value.code, caught.value.status) == (code, status), words
