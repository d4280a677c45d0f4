"""The command on this host, and on a host with one thing missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.doctor import CHECKLIST
from relive.kernel.mounts import read_mounts

from .conftest import LIMIT, Said, in_own_mounts, marked

pytestmark = pytest.mark.real

Doctor = Callable[..., Said]

WRITING = [probe.name for probe in CHECKLIST if probe.needs_directory]  # what a disk matters to

# Imports as root, since what nobody may read depends on where the interpreter lies; then becomes nobody.
AS_NOBODY = """
import ctypes, os, sys
from relive.cli.app import main
import relive.doctor
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: who was never root may trace what is his own
sys.argv[0] = "relive"
main()
"""


def test_what_is_required_works_here(here: tuple[Said, Path]) -> None:
    said, _ = here
    bad = {name: one for name, one in said.findings.items() if one["required"] and one["outcome"] == "fails"}
    assert not bad and said.status == 0


def test_json_has_one_object_a_capability(here: tuple[Said, Path]) -> None:
    findings = here[0].findings
    assert list(findings) == [probe.name for probe in CHECKLIST]
    for one in findings.values():
        assert set(one) == {"name", "required", "outcome", "found", "cause", "remedy", "milliseconds"}
        assert one["outcome"] in ("works", "limited", "fails")
        assert one["found"] and one["milliseconds"] > 0
        if one["outcome"] == "works":
            assert one["cause"] is None and one["remedy"] is None
        else:
            assert one["cause"] and one["remedy"]


def test_the_table_and_what_to_do_are_both_on_stdout(doctor: Doctor, tmp_path: Path) -> None:
    said = doctor(arguments=(), environment={"RELIVE_TOOLS": str(tmp_path / "none")})
    lines = said.stdout.splitlines()
    assert lines[0].split() == ["capability", "needed", "works", "took", "found"]
    assert next(line for line in lines if line.startswith("tools ")).split()[1:3] == ["required", "no"]
    assert "tools does not work" in lines
    assert "  Remedy: set RELIVE_TOOLS to where they are, or run `make setup`" in lines
    assert "does not work here" in said.stderr


def test_nothing_is_left_behind(here: tuple[Said, Path]) -> None:
    said, home = here
    places = [
        Path("/sys/fs/cgroup"),
        Path("/sys/fs/cgroup/memory"),
        Path("/tmp"),
        Path("/run"),
        Path("/var/lib"),
    ]
    ours = ("relive-doctor", str(home))
    assert said.status == 0
    assert list(home.iterdir()) == []
    # Any process would hold its namespaces, so this speaks for those too.
    assert list(marked(said.mark)) == []
    assert not [
        entry for entry in read_mounts() if any(word in f"{entry.point} {entry.source}" for word in ours)
    ]
    # Another doctor may be at work on this machine: what is its own goes away.
    deadline = time.monotonic() + LIMIT
    while left := [
        path for place in places if place.is_dir() for path in place.iterdir() if "relive-doctor" in path.name
    ]:
        assert time.monotonic() < deadline, left


def test_a_home_that_does_not_exist_yet_is_not_made(doctor: Doctor, tmp_path: Path) -> None:
    said = doctor(home=tmp_path / "not" / "yet", rows=["disk", "overlayfs", "CRIU dump and restore"])
    assert said.status == 0
    assert f"free at {tmp_path} " in said.findings["disk"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_without_tools_the_remedy_is_set_up(doctor: Doctor, tmp_path: Path) -> None:
    need_them = ("tools", "CRIU dump and restore", "CRIU, other user's process")
    said = doctor(environment={"RELIVE_TOOLS": str(tmp_path / "none")}, rows=[*need_them, "namespaces"])
    assert said.status == 4
    for name in need_them:
        assert said.findings[name]["outcome"] == "fails"
        assert "make setup" in said.findings[name]["remedy"]
    assert said.findings["namespaces"]["outcome"] == "works"


def test_whoever_is_not_root_gets_rows_and_the_remedy(doctor: Doctor, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    said = doctor(program=AS_NOBODY)
    assert said.status == 4
    findings = said.findings
    assert findings["privileges"]["found"] == "uid 65534, not root"
    for name in ("privileges", "namespaces", "overlayfs", "TCP_REPAIR", "CRIU dump and restore", "disk"):
        assert findings[name]["outcome"] == "fails", name
        assert "run it as root" in findings[name]["remedy"], name
    for name in ("ptrace", "/proc children", "pidfd"):
        assert findings[name]["outcome"] == "works", name
    assert list(marked(said.mark)) == []


@pytest.mark.parametrize(
    ("capability", "rows"),
    [
        ("net_admin", {"TCP_REPAIR"}),
        (
            "sys_admin",
            {"namespaces", "overlayfs", "seccomp", "TCP_REPAIR", "CRIU dump and restore", "podman"},
        ),
    ],
)
def test_a_missing_capability_is_named_and_its_rows_fail(
    doctor: Doctor, capability: str, rows: set[str]
) -> None:
    said = doctor(before=["setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}"])
    assert said.status == 4
    assert f"CAP_{capability.upper()}" in said.findings["privileges"]["found"]
    for name in rows:
        assert said.findings[name]["outcome"] == "fails", name
        assert said.findings[name]["remedy"]


def test_a_disk_that_is_full_is_named_by_every_row_that_writes(doctor: Doctor, tmp_path: Path) -> None:
    # Room for the directories of the probes, but not for a megabyte.
    said = doctor(
        before=in_own_mounts(f"mount -t tmpfs -o size=256k none {tmp_path}"), rows=[*WRITING, "namespaces"]
    )
    assert said.status == 4
    for name in ("disk", "CRIU dump and restore"):
        assert said.findings[name]["outcome"] == "fails"
        assert "space" in said.findings[name]["cause"] + said.findings[name]["found"], said.findings[name]
        assert "free space" in said.findings[name]["remedy"]
    assert said.findings["namespaces"]["outcome"] == "works"


@pytest.mark.parametrize(("room", "outcome"), [("100m", "fails"), ("600m", "limited")])
def test_a_disk_with_little_room_is_told(doctor: Doctor, tmp_path: Path, room: str, outcome: str) -> None:
    said = doctor(
        before=in_own_mounts(f"mount -t tmpfs -o size={room} none {tmp_path}"),
        rows=["disk", "CRIU dump and restore"],
    )
    assert said.findings["disk"]["outcome"] == outcome
    assert "MiB free" in said.findings["disk"]["found"]
    assert said.findings["CRIU dump and restore"]["outcome"] == "works"
    assert said.status == (4 if outcome == "fails" else 0)


def test_a_disk_that_cannot_be_written_is_told(doctor: Doctor, tmp_path: Path) -> None:
    said = doctor(before=in_own_mounts(f"mount -t tmpfs -o ro none {tmp_path}"), rows=WRITING)
    assert said.status == 4
    for name in ("disk", "overlayfs", "CRIU dump and restore"):
        assert said.findings[name]["found"] == "not tried"
        assert "Read-only file system" in said.findings[name]["cause"]
        assert "RELIVE_HOME" in said.findings[name]["remedy"]


def test_a_home_that_cannot_hold_an_upper_layer_is_told(doctor: Doctor, tmp_path: Path) -> None:
    """An overlay's upper layer may not itself lie on an overlay."""
    layers = tmp_path / "layers"
    home = tmp_path / "home"
    for directory in (*(layers / name for name in ("lower", "upper", "work")), home):
        directory.mkdir(parents=True)
    options = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
    said = doctor(
        before=in_own_mounts(f"mount -t overlay -o {options} none {home}"), home=home, rows=["overlayfs"]
    )
    assert said.status == 4
    assert said.findings["overlayfs"]["found"] == "not on overlay"
    assert "set RELIVE_HOME to a directory on ext4" in said.findings["overlayfs"]["remedy"]
    assert list((layers / "upper").iterdir()) == []


def test_a_kernel_cache_that_is_absent_is_told(doctor: Doctor, tools: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    rundir = tmp_path / "rundir"  # CRIU looks here, and being no tmpfs it is not written
    bare.mkdir()
    rundir.mkdir()
    for name in (*(path.name for path in CriuTools(tools).required), "criu.origin"):
        (bare / name).symlink_to(tools / name)
    where = _run_directory(tools)
    where.mkdir(exist_ok=True)
    if rundir.stat().st_dev == Path("/dev/shm").stat().st_dev:
        pytest.skip("the temporary directory is a tmpfs, on which CRIU writes its cache itself")
    said = doctor(
        before=in_own_mounts(f"mount --bind {rundir} {where}"),
        home=tmp_path,
        environment={"RELIVE_TOOLS": str(bare)},
        rows=["CRIU kernel cache"],
    )
    row = said.findings["CRIU kernel cache"]
    assert row["outcome"] == "limited" and "is not there" in row["cause"] and "make setup" in row["remedy"], (
        row
    )
    assert said.status == 0


def _run_directory(tools: Path) -> Path:
    from relive.checkpoint.kernel_cache import kerndat_path

    return kerndat_path(tools).parent
