"""What a restored tree may be and hold before it runs; processes and mounts are played where root would have to be misused."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import IO

import pytest

from relive.errors import RestoreFailed
from relive.kernel.capabilities import WITHHELD
from relive.kernel.mounts import Mount
from relive.sandbox import confinement as tested
from support.waiting import eventually

NONE = "0000000000000000"


def fields(**changed: str) -> dict[str, str]:
    """Of a process without any capability, under a filter."""
    return (
        dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), NONE) | {"Seccomp": "2"} | changed
    )


def test_a_process_without_rights_under_a_filter_is_confined() -> None:
    tested._check_rights(1, fields())


@pytest.mark.parametrize("name", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_a_capability_that_is_withheld_may_be_in_none_of_the_sets(name: str) -> None:
    for number in WITHHELD.values():
        with pytest.raises(RestoreFailed, match="not confined") as refused:
            tested._check_rights(7, fields(**{name: f"{1 << number:016x}"}))
        assert "process 7 has capabilities" in (refused.value.cause or "")


def test_a_process_without_a_filter_does_not_run() -> None:
    with pytest.raises(RestoreFailed):
        tested._check_rights(1, fields(Seccomp="0"))


def test_a_process_is_in_the_namespaces_of_the_branch_or_in_none_of_the_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, branch = ({name: f"{name}:[{number}]" for name in tested._NAMESPACES} for number in (1, 2))
    own = dict(branch)
    monkeypatch.setattr(os, "readlink", lambda path: own[path.rpartition("/")[2]])
    tested._check_namespaces(7, "/p", branch, host)
    for name in tested._NAMESPACES:
        own[name] = f"{name}:[3]"
        with pytest.raises(RestoreFailed):
            tested._check_namespaces(7, "/p", branch, host)
        tested._check_namespaces(7, "/p", {key: branch[key] for key in branch if key != name}, host)
        own[name] = host[name]
        with pytest.raises(RestoreFailed):
            tested._check_namespaces(7, "/p", {key: branch[key] for key in branch if key != name}, host)
        own[name] = branch[name]


def mounted(kind: str, point: str, options: str) -> Mount:
    return Mount(identifier=1, device="0:1", root="/", point=point, kind=kind, source="x", options=options)


@pytest.mark.parametrize("kind", sorted(tested._OF_THE_KERNEL))
def test_file_systems_of_the_kernel_can_only_be_read(kind: str) -> None:
    tested._check_mounts([mounted(kind, "/sys", "nosuid,ro,noexec")])
    with pytest.raises(RestoreFailed) as refused:
        tested._check_mounts([mounted(kind, "/sys", "rw,nosuid")])
    assert refused.value.cause == f"{kind} can be written at /sys"


def test_of_proc_only_the_branchs_own_can_be_written() -> None:
    tested._check_mounts(
        [mounted("proc", "/proc", "rw"), mounted("proc", "/x", "ro"), mounted("ext4", "/y", "rw")]
    )
    with pytest.raises(RestoreFailed):
        tested._check_mounts([mounted("proc", "/x/proc", "rw")])


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """Has /dev/null open, and a pipe."""
    made = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/", bufsize=0)
    assert made.stdin is not None
    made.stdin.write(b"x")
    # Once it has read that, it opens and closes no libraries any more.
    eventually(lambda: not _waiting_bytes(made.stdin), "it reads")
    yield made
    made.communicate()


def _waiting_bytes(pipe: IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def check_files(pid: int, known: set[int] | None = None) -> None:
    tested._check_files(pid, f"/proc/{pid}", known)


def test_harmless_devices_and_pipes_may_be_open(holder: subprocess.Popen[bytes]) -> None:
    check_files(holder.pid)


@pytest.mark.parametrize(
    ("mode", "device"), [(0o060600, (8, 0)), (0o020600, (10, 200))], ids=["a disk", "/dev/net/tun"]
)
def test_other_devices_may_not(
    holder: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    device: tuple[int, int],
) -> None:
    monkeypatch.setattr(tested, "_facts", lambda _: (mode, device, 1))
    with pytest.raises(RestoreFailed) as refused:
        check_files(holder.pid)
    assert "has the device" in (refused.value.cause or "")


def test_a_file_of_a_mount_that_is_none_of_the_branchs_may_not(holder: subprocess.Popen[bytes]) -> None:
    mounts = {tested._facts(f"/proc/{holder.pid}/{name}")[2] for name in ("cwd", "root", "fd/1", "fd/2")}
    check_files(holder.pid, mounts)
    with pytest.raises(RestoreFailed) as refused:
        check_files(holder.pid, set())
    assert "none of the branch's files" in (refused.value.cause or "")
