"""Each probe works here, or meets an obstacle and says so."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_cache import place_kerndat
from relive.checkpoint.kernel_trust import KernelTrust
from relive.config import Settings
from relive.doctor import Finding, ProbeOutcome
from relive.doctor.finding import ProbeResult
from relive.doctor.probe import ProbeContext
from relive.doctor.probes import (
    dirty_pages,
    disk,
    dump_restore,
    io_uring,
    kvm,
    memory_cgroup,
    overlay,
    processes,
    recorder,
    tcp_repair,
)
from relive.doctor.probes.privileges import judge
from relive.kernel import procfs
from relive.kernel.seccomp import hide_io_uring
from support.played_docker import played_docker

TryOne = Callable[..., Finding]
Patch = pytest.MonkeyPatch

ALL = (1 << 41) - 1


def refused(*_: object, **__: object) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


# -- privileges --------------------------------------------------------------------------------------------------------


def test_root_with_everything_is_fine() -> None:
    assert judge(0, ALL, in_user_namespace=False, shim=True).outcome is ProbeOutcome.WORKS


def test_a_missing_capability_fails_and_says_what_follows() -> None:
    result = judge(0, ALL & ~(1 << 21) & ~(1 << 19), in_user_namespace=False, shim=True)
    assert result.outcome is ProbeOutcome.FAILS
    assert result.found == "root without CAP_SYS_ADMIN, CAP_SYS_PTRACE"
    assert "no process can be committed" in str(result.cause)


def test_without_sys_resource_the_shim_stands_in() -> None:
    result = judge(0, ALL & ~(1 << 24), in_user_namespace=False, shim=True)
    assert result.outcome is ProbeOutcome.LIMITED and "the prlimit shim stands in" in str(result.cause)
    assert "is missing" in str(judge(0, ALL & ~(1 << 24), in_user_namespace=False, shim=False).cause)


def test_root_of_a_user_namespace_is_limited() -> None:
    assert judge(0, ALL, in_user_namespace=True, shim=True).outcome is ProbeOutcome.LIMITED


def test_others_are_told_to_be_root() -> None:
    result = judge(1000, ALL, in_user_namespace=False, shim=True)
    assert result.outcome is ProbeOutcome.FAILS and "as root" in str(result.remedy)


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("criu", "#!/bin/sh\necho broken >&2; exit 1\n", "criu does not work"),
        ("criu", "no program", "criu does not start"),
        ("relive-init", "#!/bin/sh\nexit 0\n", "relive-init does not work"),
        (
            "relive-init",
            "#!/bin/sh\nexit 2\n",
            "relive-init does not work",
        ),  # an older one: it does not know the order
        ("relive-watchdog", "#!/bin/sh\nexit 0\n", "the watchdog does not answer"),
        ("prlimit_shim.so", "no library", "prlimit_shim.so cannot be loaded"),
    ],
)
def test_a_tool_that_does_not_work_is_named(
    try_one: TryOne, tools: Path, settings: Settings, tmp_path: Path, name: str, content: str, found: str
) -> None:
    own = tmp_path / "tools"
    own.mkdir()
    for tool in CriuTools(tools).required:
        if tool.name != name:
            (own / tool.name).symlink_to(tool)
    (own / name).write_text(content)
    (own / name).chmod(0o755)
    finding = try_one("tools", settings=settings.model_copy(update={"tools": own}))
    assert finding.outcome is ProbeOutcome.FAILS and finding.found == found
    assert finding.remedy


@pytest.mark.real
def test_a_kernel_cache_of_another_kernel_is_told(
    try_one: TryOne, tools: Path, settings: Settings, tmp_path: Path
) -> None:
    own = tmp_path / "tools"
    own.mkdir()
    for tool in (*(path.name for path in CriuTools(tools).required), "criu.origin", "criu.kdat"):
        (own / tool).symlink_to(tools / tool)
    (own / "criu.kdat.key").write_text("1.2.3-other 00\n")
    place_kerndat(tools)  # it is there, and is of that other kernel as far as its key says
    finding = try_one("CRIU kernel cache", settings=settings.model_copy(update={"tools": own}))
    assert finding.outcome is ProbeOutcome.LIMITED and "1.2.3-other" in str(finding.cause)


# -- CRIU --------------------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_a_branch_that_lost_its_memory_is_not_taken_for_alive(try_one: TryOne, monkeypatch: Patch) -> None:
    """The fake makes the process forget its word when it is asked; so does a restore of wrong pages."""
    forgetful = dump_restore._PROGRAM.replace(
        "signal.sigwait([signal.SIGUSR1])", "signal.sigwait([signal.SIGUSR1]); word = b'?'"
    )
    assert forgetful != dump_restore._PROGRAM
    monkeypatch.setattr(dump_restore, "_PROGRAM", forgetful)
    finding = try_one("CRIU dump and restore")
    assert finding.found == "restored, but not alive" and "word in its memory" in str(finding.cause)


@pytest.mark.real
def test_a_process_that_cannot_be_dumped_fails_the_row_with_crius_words(
    try_one: TryOne, monkeypatch: Patch
) -> None:
    """A stream socket whose other end is outside of the tree, which CRIU refuses."""
    half = dump_restore._PROGRAM.replace(
        "signal.sigwait", "import socket; s = socket.socket(fileno=int(os.environ['HALF'])); signal.sigwait"
    )
    monkeypatch.setattr(dump_restore, "_PROGRAM", half)

    def run(context: ProbeContext) -> ProbeResult:
        import socket
        import subprocess

        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        os.environ["HALF"] = str(theirs.fileno())
        popen = subprocess.Popen
        monkeypatch.setattr(
            subprocess, "Popen", lambda *a, **k: popen(*a, **{**k, "close_fds": "preexec_fn" not in k})
        )
        with ours:
            return dump_restore.dump_restore(context)

    finding = try_one("CRIU dump and restore", run=run)
    assert finding.outcome is ProbeOutcome.FAILS and "CRIU says" in str(finding.cause), finding


# -- the kernel --------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    [
        "namespaces",
        "overlayfs",
        "followed files",
        "seccomp",
        "ptrace",
        "/proc children",
        "pidfd",
        "TCP_REPAIR",
        "io_uring",
        "tools",
    ],
)
def test_it_works_here(try_one: TryOne, name: str) -> None:
    finding = try_one(name)
    assert finding.outcome is ProbeOutcome.WORKS, finding


def test_a_kernel_that_misled_is_told_of(try_one: TryOne, settings: Settings) -> None:
    if try_one("kernel objects").outcome is not ProbeOutcome.WORKS:
        pytest.skip("the kernel's objects cannot be read here")
    KernelTrust(settings.home).lose("of descriptor 3 it is something else")
    finding = try_one("kernel objects")
    assert finding.outcome is ProbeOutcome.LIMITED
    assert "descriptor 3" in str(finding.cause)
    assert str(settings.home) in str(finding.remedy)


@pytest.mark.parametrize(
    ("number", "found"),
    [(errno.ENODEV, "none"), (errno.EINVAL, "not on weirdfs"), (errno.EOPNOTSUPP, "not on weirdfs")],
)
def test_why_an_overlay_was_refused(number: int, found: str) -> None:
    assert overlay._explain(OSError(number, "mount"), "weirdfs").found == found


@pytest.mark.real
def test_a_seccomp_filter_without_effect_is_noticed(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(io_uring, "hide_io_uring", lambda: None)
    assert try_one("seccomp").found == "without effect"


@pytest.mark.real
def test_the_recorders_parts_in_c_may_be_absent(
    try_one: TryOne, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert try_one("recorder").outcome is ProbeOutcome.WORKS
    finding = try_one("recorder", settings=settings.model_copy(update={"tools": tmp_path}))
    assert finding.outcome is ProbeOutcome.LIMITED and "ring_library.so" in str(finding.cause)
    copy = tmp_path / "inprocess"
    shutil.copytree(recorder.INPROCESS_FILES, copy, ignore=shutil.ignore_patterns("*.so"))
    monkeypatch.setattr(recorder, "INPROCESS_FILES", copy)
    finding = try_one("recorder", run=recorder.recorder)
    assert finding.outcome is ProbeOutcome.LIMITED and "_quick.abi3.so" in str(finding.cause)
    assert finding.remedy == "run `make setup`"
    (copy / "relive_recorder" / "quick.py").write_text("nonsense")
    finding = try_one("recorder", run=recorder.recorder)
    assert finding.outcome is ProbeOutcome.FAILS and "nonsense" in str(finding.cause)


def test_io_uring_may_be_absent(try_one: TryOne) -> None:
    def run(context: ProbeContext) -> ProbeResult:
        hide_io_uring()
        return io_uring.io_uring(context)

    finding = try_one("io_uring", run=run)
    assert finding.outcome is ProbeOutcome.WORKS and "not usable here" in finding.found


def test_a_refused_seize_is_told(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(processes.ptrace, "seize", refused)
    finding = try_one("ptrace")
    assert finding.found == "refused" and "CAP_SYS_PTRACE" in str(finding.remedy)


def test_a_process_tree_that_cannot_be_read_is_noticed(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(processes.procfs, "children_of", lambda _pid: [])
    assert try_one("/proc children").outcome is ProbeOutcome.FAILS


def test_a_kernel_without_pidfd_is_a_row(try_one: TryOne, monkeypatch: Patch) -> None:
    def absent(_pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", absent)
    finding = try_one("pidfd")
    assert finding.found == "Function not implemented" and "kernel" in str(finding.remedy)


@pytest.mark.real
def test_forged_ends_that_do_not_fit_are_noticed(try_one: TryOne, monkeypatch: Patch) -> None:
    """With other sequence numbers than agreed, what one end sends the other does not take."""
    real = tcp_repair._described

    def misfit(*ends: tuple[str, int], sends: int, expects: int) -> object:
        return real(*ends, sends=sends, expects=expects + (1 << 20))

    monkeypatch.setattr(tcp_repair, "_described", misfit)
    monkeypatch.setattr(tcp_repair, "_ANSWER", 0.2)
    assert try_one("TCP_REPAIR").outcome is ProbeOutcome.FAILS


def test_a_border_needs_its_programs(try_one: TryOne, monkeypatch: Patch) -> None:
    assert try_one("border of a capsule").outcome is ProbeOutcome.WORKS
    monkeypatch.setenv("PATH", "/nonexistent")
    finding = try_one("border of a capsule")
    assert finding.outcome is ProbeOutcome.FAILS and "apt-get install iproute2" in str(finding.remedy)


def test_calls_are_copied_or_the_cause_is_said(
    try_one: TryOne, settings: Settings, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert try_one("calls beside their way").outcome is ProbeOutcome.WORKS
    elsewhere = settings.model_copy(update={"tools": tmp_path})
    finding = try_one("calls beside their way", settings=elsewhere)
    assert finding.outcome is ProbeOutcome.FAILS and finding.remedy == "run `make setup`"
    monkeypatch.setattr("relive.sandbox.border._TOPS", ())
    finding = try_one("calls beside their way")
    assert finding.outcome is ProbeOutcome.FAILS and "no control groups of version 2" in str(finding.cause)


def _refused(*_: object) -> int:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_packets_are_taken_or_the_cause_is_said(
    try_one: TryOne, tools: Path, settings: Settings, tmp_path: Path, monkeypatch: Patch
) -> None:
    assert try_one("packets of a port").outcome is ProbeOutcome.WORKS
    with monkeypatch.context() as refused:
        refused.setattr("relive.kernel.portprogram.load", _refused)
        finding = try_one("packets of a port")
    assert finding.outcome is ProbeOutcome.LIMITED and "long answers as a whole" in finding.found
    assert "Operation not permitted" in str(finding.cause) and "CAP_BPF" in str(finding.remedy)
    own = tmp_path / "tools"
    own.mkdir()
    elsewhere = settings.model_copy(update={"tools": own})
    finding = try_one("packets of a port", settings=elsewhere)
    assert finding.outcome is ProbeOutcome.FAILS and finding.found == "its program does not start"
    assert "make setup" in str(finding.remedy)
    (own / "relive-capture").write_text("#!/bin/sh\nexit 1\n")
    (own / "relive-capture").chmod(0o755)
    finding = try_one("packets of a port", settings=elsewhere)
    assert finding.outcome is ProbeOutcome.FAILS and finding.found == "no packet socket can be had"
    assert "CONFIG_PACKET" in str(finding.remedy)


def test_a_kernel_that_cannot_be_read_is_told(try_one: TryOne, settings: Settings, tmp_path: Path) -> None:
    assert try_one("kernel objects").outcome is ProbeOutcome.WORKS
    tools = tmp_path / "tools"
    tools.mkdir()
    elsewhere = settings.model_copy(update={"tools": tools})
    assert try_one("kernel objects", settings=elsewhere).found == "the tracker does not start"
    (tools / "relive-micro").write_text("#!/bin/sh\necho it has no eyes\n")
    (tools / "relive-micro").chmod(0o755)
    finding = try_one("kernel objects", settings=elsewhere)
    assert finding.outcome is ProbeOutcome.LIMITED and "it has no eyes" in str(finding.cause)


def test_written_pages_need_both_calls(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dirty_pages, "PAGEMAP_SCAN", 0xC0606611)
    assert try_one("dirty pages").found == "no PAGEMAP_SCAN"
    monkeypatch.setattr(dirty_pages, "_FEATURES", 1 << 60)
    assert try_one("dirty pages").found == "no WP_ASYNC"


def test_wrongly_named_pages_are_noticed(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dirty_pages, "_scan", lambda _pagemap, _start: {3, 4})
    finding = try_one("dirty pages")
    assert finding.found == "wrong answers" and "[3, 4]" in str(finding.cause)


def test_a_host_without_a_memory_controller_is_told(
    try_one: TryOne, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_cgroup, "_V1", tmp_path)
    monkeypatch.setattr(memory_cgroup, "_V2", (tmp_path,))
    finding = try_one("memory cgroup")
    assert finding.found == "none" and "SIGKILL" in str(finding.cause)


def test_the_controller_is_handed_down_only_for_the_time_of_the_probe(tmp_path: Path) -> None:
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu")
    with memory_cgroup._enabled(tmp_path):
        assert control.read_text() == "+memory"
    assert control.read_text() == "-memory"
    control.write_text("cpu memory")
    with memory_cgroup._enabled(tmp_path):
        pass
    assert control.read_text() == "cpu memory"


# -- the disk ----------------------------------------------------------------------------------------------------------


def test_a_disk_without_inodes_is_told(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(disk, "_LEAST_FILES", 1 << 62)
    assert "inodes" in str(try_one("disk").cause)


def test_reflink_is_told_either_way(try_one: TryOne) -> None:
    finding = try_one("reflink")
    assert finding.outcome in (ProbeOutcome.WORKS, ProbeOutcome.LIMITED)


# -- KVM ---------------------------------------------------------------------------------------------------------------

needs_kvm = pytest.mark.skipif(not os.access("/dev/kvm", os.R_OK | os.W_OK), reason="no /dev/kvm")


def test_no_device_is_told(try_one: TryOne, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(kvm, "_DEVICE", tmp_path / "kvm")
    finding = try_one("KVM")
    assert finding.found == "none" and finding.remedy


def test_a_file_of_that_name_proves_nothing(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kvm, "_DEVICE", Path("/dev/null"))
    assert try_one("KVM").outcome is ProbeOutcome.FAILS


@needs_kvm
def test_a_guest_that_spins_is_killed(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kvm, "_GUEST", bytes.fromhex("eb fe"))  # jmp to itself
    finding = try_one("KVM", limit=0.5)
    assert finding.found == "no answer" and "0.5 s" in str(finding.cause)


@needs_kvm
def test_a_guest_that_only_halts_has_proved_nothing(try_one: TryOne, monkeypatch: Patch) -> None:
    monkeypatch.setattr(kvm, "_GUEST", bytes.fromhex("f4"))  # hlt
    finding = try_one("KVM")
    assert finding.found == "made, but not usable" and "its first instruction" in str(finding.cause)


def test_where_a_guest_got_stuck_is_said() -> None:
    assert "an exception and the return from it: a triple fault" in kvm._stuck("123", 8).cause
    assert "an exception and the return from it: it went on wrongly" in kvm._stuck("123!", 5).cause
    assert "turning interrupts on and off" in kvm._stuck("12345", 17).cause


# -- podman ------------------------------------------------------------------------------------------------------------


def fake_podman(tmp_path: Path, monkeypatch: Patch, script: str) -> None:
    place = tmp_path.parent / f"{tmp_path.name}-bin"
    place.mkdir()
    program = place / "podman"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    for tool in ("cat", "tail"):
        (place / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(place))  # without runc


def info(runtime: str, path: str, driver: str = "overlay") -> str:
    facts = {
        "host": {"ociRuntime": {"name": runtime, "path": path}},
        "version": {"Version": "5.0"},
        "store": {"graphDriverName": driver},
    }
    return f"cat <<'END'\n{json.dumps(facts)}\nEND"


@pytest.mark.real
def test_no_podman_is_told(try_one: TryOne, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = try_one("podman")
    assert finding.found == "not installed" and "install" in str(finding.remedy)


@pytest.mark.real
@pytest.mark.parametrize(
    ("script", "outcome", "part"),
    [
        ("echo 'Error: no runtime found' >&2; exit 125", ProbeOutcome.FAILS, "no runtime found"),
        ("echo '{}'", ProbeOutcome.FAILS, "'host'"),
        ("echo nonsense", ProbeOutcome.FAILS, "JSON"),
        (info("crun", "/bin/echo"), ProbeOutcome.LIMITED, "without CRIU"),
        (info("runc", "/usr/bin/runc", "vfs"), ProbeOutcome.LIMITED, "storage driver vfs"),
    ],
)
def test_what_is_missing_for_podman_is_said(
    try_one: TryOne, monkeypatch: Patch, tmp_path: Path, script: str, outcome: ProbeOutcome, part: str
) -> None:
    fake_podman(tmp_path, monkeypatch, script)
    monkeypatch.setenv("CONTAINERS_CONF", "/somebody/chose/one")
    finding = try_one("podman")
    assert finding.outcome is outcome and part in str(finding.cause)


@pytest.mark.real
def test_limits_that_cannot_be_set_are_told_until_a_configuration_is_chosen(
    try_one: TryOne, monkeypatch: Patch, tmp_path: Path
) -> None:
    fake_podman(tmp_path, monkeypatch, info("runc", "/usr/bin/runc"))
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    may_raise = int(procfs.status_field(os.getpid(), "CapEff") or "0", 16) >> 24 & 1
    finding = try_one("podman")
    assert (finding.outcome is ProbeOutcome.WORKS) == bool(may_raise)
    assert may_raise or "containers.conf" in str(finding.remedy)


@pytest.mark.real
def test_a_podman_that_hangs_is_given_up(try_one: TryOne, monkeypatch: Patch, tmp_path: Path) -> None:
    fake_podman(tmp_path, monkeypatch, "exec tail -f /dev/null")
    assert try_one("podman", limit=0.5).found == "no answer"


# -- Docker ------------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize(
    ("answer", "outcome", "part"),
    [
        (
            (200, b'{"ServerVersion": "20.10", "Driver": "overlay2", "ExperimentalBuild": true}'),
            ProbeOutcome.WORKS,
            "None",
        ),
        ((200, b'{"ServerVersion": "20.10", "Driver": "vfs"}'), ProbeOutcome.LIMITED, "vfs"),
        ((200, b"{}"), ProbeOutcome.FAILS, "ServerVersion"),
        ((500, b"on fire"), ProbeOutcome.FAILS, "on fire"),
    ],
)
def test_what_is_found_of_docker_is_said(
    try_one: TryOne, monkeypatch: Patch, answer: tuple[int, bytes], outcome: ProbeOutcome, part: str
) -> None:
    with played_docker({"/info": answer}) as (host, _asked):
        monkeypatch.setenv("DOCKER_HOST", host)
        finding = try_one("Docker")
    assert finding.outcome is outcome and part in str(finding.cause)


@pytest.mark.real
def test_no_docker_is_told(try_one: TryOne, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    finding = try_one("Docker")
    assert finding.found == "no engine answers" and "DOCKER_HOST" in str(finding.remedy)
