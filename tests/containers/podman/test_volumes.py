"""What of volumes becomes part of a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relive.checkpoint import watched_files
from relive.containers.podman.container import Mounted, PodmanContainer
from relive.containers.podman.volumes import open_files_of_volumes, whole_volumes
from relive.model.commit import EntryKind, LayerKind


@pytest.fixture
def container(tmp_path: Path) -> PodmanContainer:
    """With two writable directories, of which one lies in the other, one that is read only, and a single file."""
    for name in ("data", "inner", "fixed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "open").write_text(name)
        (tmp_path / name / "closed").write_text(name)
    mounted = [
        Mounted("kept", tmp_path / "data", "/data", True),
        Mounted("", tmp_path / "inner", "/data/inner", True),
        Mounted("", tmp_path / "fixed", "/fixed", False),
        Mounted("", tmp_path / "data" / "open", "/one", True),
    ]
    return cast(PodmanContainer, SimpleNamespace(pid=1, mounted=mounted))


def test_all_of_those_that_can_be_written_to(container: PodmanContainer) -> None:
    assert [(one.point, one.kind) for one in whole_volumes(container)] == [
        ("/data", LayerKind.VOLUME),
        ("/data/inner", LayerKind.VOLUME),
    ]


def test_the_open_files_of_each_by_the_mount_that_they_are_seen_through(
    container: PodmanContainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = dict.fromkeys(("/data/open", "/data/inner/open", "/fixed/open", "/etc/passwd", "/data/tmp/x"))
    monkeypatch.setattr(watched_files, "opened_files", lambda *_, **__: opened)
    (tmp_path / "data" / "tmp").mkdir()
    (tmp_path / "data" / "tmp" / "x").touch()  # hidden by a mount
    points = ("/proc", "/data", "/data/inner", "/data/tmp", "/fixed", "/one")
    sources = open_files_of_volumes(container, points, 1 << 20, tmp_path / "home")
    found: dict[str, Any] = {}
    for source in sources:
        staging = tmp_path / f"staging{len(found)}"
        staging.mkdir()
        found[source.point] = [(entry.path, entry.kind) for entry, _ in source.scanner.scan(staging)]
    assert found == {"/data": [("open", EntryKind.FILE)], "/data/inner": [("open", EntryKind.FILE)]}
    assert {source.kind for source in sources} == {LayerKind.OVERLAY}
    assert [line for source in sources for line in source.left_out] == [
        "data\tof the files in it only those that were open are held",
        "data/inner\tof the files in it only those that were open are held",
    ]


def test_open_files_where_the_destination_leads_through_a_link_or_into_the_system(tmp_path: Path) -> None:
    """GIVEN a container with links to the directories of its volumes, of which one is below /usr."""
    root, runs, libraries = (tmp_path / name for name in ("root", "runs", "libraries"))
    for path in (root / "run/x", root / "usr/share/lib", root / "var", runs, libraries):
        path.mkdir(parents=True)
    (root / "var/run").symlink_to("/run")
    (root / "var/lib").symlink_to("../usr/share/lib")
    for path in (runs / "written", libraries / "read", root / "usr/share/own"):
        path.touch()
    script = f"""mount --bind {root} {root} && cd {root} && mount --bind {runs} run/x &&
        mount --bind {libraries} usr/share/lib && pivot_root . . &&
        exec 3<>/run/x/written 4</usr/share/lib/read 5</usr/share/own && echo ready && read word"""
    command = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        mounted = [Mounted("", runs, "/var/run/x", True), Mounted("", libraries, "/var/lib", True)]
        container = cast(PodmanContainer, SimpleNamespace(pid=process.pid, mounted=mounted))
        points = [one.destination for one in mounted]
        sources = open_files_of_volumes(container, points, 1 << 20, tmp_path / "home")
        found = {}
        for source in sources:
            staging = tmp_path / f"staging{len(found)}"
            staging.mkdir()
            found[source.point] = [entry.path for entry, _ in source.scanner.scan(staging)]
        process.stdin.close()
    assert found == {"/run/x": ["written"], "/usr/share/lib": ["read"]}
