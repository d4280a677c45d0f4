"""What podman says of a container, read; a script stands for the real one (which tests/real/test_containers.py has)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from relive.containers.podman.container import find_container, network_status, parse_target
from relive.errors import PermissionMissing, TargetUndumpable, TargetUnknown, ToolMissing

FACTS: dict[str, Any] = {
    "Id": "c" * 64,
    "Name": "web",
    "Created": "2026-01-01T00:00:00Z",
    "Path": "python3",
    "Args": ["app.py"],
    "State": {"Status": "running", "Running": True, "Paused": False, "Pid": 1234},
    "Image": "a" * 64,
    "ImageName": "localhost/app:latest",
    "ImageDigest": "sha256:" + "b" * 64,
    "Rootfs": "",
    "OCIRuntime": "/usr/bin/runc",
    "StaticDir": "/s/overlay-containers/" + "c" * 64 + "/userdata",
    "OCIConfigPath": "/s/overlay-containers/" + "c" * 64 + "/userdata/config.json",
    "GraphDriver": {
        "Name": "overlay",
        "Data": {"UpperDir": "/s/o/x/diff", "LowerDir": "/s/o/1/diff:/s/o/2/diff"},
    },
    "Mounts": [{"Type": "volume", "Name": "v", "Source": "/s/v", "Destination": "/data", "RW": True}],
    "NetworkSettings": {
        "Ports": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}], "81/tcp": None},
        "Networks": {
            "podman": {
                "IPAddress": "10.88.0.4",
                "IPPrefixLen": 16,
                "Gateway": "10.88.0.1",
                "MacAddress": "a6",
            }
        },
    },
    "HostConfig": {"NetworkMode": "bridge"},
}


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose text ``podman`` prints; with an empty one it fails."""
    said = tmp_path / "said"
    program = tmp_path / "podman"
    program.write_text(
        f'#!/bin/sh\n[ -s {said} ] && exec cat {said}\necho "Error: no such container" >&2; exit 125\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    return said


def test_it_is_described(podman: Path) -> None:
    podman.write_text(json.dumps([FACTS]))
    found = find_container("web")
    assert (found.pid, found.runtime, found.command) == (1234, "runc", ["python3", "app.py"])
    assert (found.graph_root, found.merged) == (Path("/s"), Path("/s/o/x/merged"))
    assert found.lower == (Path("/s/o/1/diff"), Path("/s/o/2/diff"))
    assert found.ports == ["0.0.0.0:8080:80/tcp"]
    assert [(one.volume, one.writable) for one in found.mounted] == [("v", True)]
    subnets = json.loads(network_status(found))["podman"]["interfaces"]["eth0"]["subnets"]
    assert subnets == [{"ipnet": "10.88.0.4/16", "gateway": "10.88.0.1"}]


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"State": {"Status": "exited", "Pid": 0}}, "podman start web"),
        ({"State": {"Status": "running", "Pid": 5, "Paused": True}}, "podman unpause web"),
        ({"OCIRuntime": "kata"}, "runc"),
        ({"Rootfs": "/tree", "Image": ""}, "podman import"),
        ({"GraphDriver": {"Name": "vfs", "Data": {}}}, 'driver = "overlay"'),
    ],
)
def test_what_cannot_be_committed_is_said_with_what_helps(
    podman: Path, changed: dict[str, Any], part: str
) -> None:
    podman.write_text(json.dumps([FACTS | changed]))
    with pytest.raises(TargetUndumpable) as error:
        find_container("web")
    assert part in str(error.value.remedy)


def test_who_is_not_there(podman: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetUnknown, match="no such container"):
        find_container("web")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissing):
        find_container("web")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(PermissionMissing, match="podman:web") as error:
        find_container("web")
    assert "sudo" in str(error.value.remedy)


def test_only_podmans_targets_are_its() -> None:
    assert parse_target("podman:web") == "web"
    assert parse_target("pid:1") is None and parse_target("web") is None
