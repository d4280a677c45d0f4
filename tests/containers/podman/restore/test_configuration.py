"""A container's configuration, sealed: nothing of its old network, pods or volumes is left in what podman is told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from relive.containers.podman.restore.configuration import COMMIT_LABEL, Dress, dressed, mounts_of

SPEC: dict[str, Any] = {
    "mounts": [
        {"destination": "/data", "type": "bind", "source": "/s/v", "options": ["rw"]},
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["ro"]},
        {"destination": "/etc/hosts", "type": "bind", "source": "/s/hosts", "options": ["bind"]},
        {"destination": "/proc", "type": "proc", "source": "proc"},
    ],
    "linux": {
        "namespaces": [
            {"type": "pid"},
            {"type": "ipc", "path": "/proc/1/ns/ipc"},
            {"type": "network", "path": "/n"},
        ]
    },
}
CONFIG: dict[str, Any] = {
    "spec": SPEC,
    "createNetNS": True,
    "networkMode": "bridge",
    "newNetworks": {"podman": {}},
    "newPortMappings": [{"host_port": 80}],
    "pod": "p",
    "namedVolumes": [{"volumeName": "v", "dest": "/data"}],
    "userVolumes": ["/data", "/usr"],
    "rootfsImageName": "app:latest",
    "runtime": "crun",
    "labels": {"mine": "1"},
}
DRESS = Dress("c1", Path("/r/network"), {"/data": Path("/r/0")}, "runc", "a1")


def test_it_is_sealed_and_has_copies_of_its_own() -> None:
    before = copy.deepcopy(CONFIG)
    config, spec = dressed(CONFIG, SPEC, DRESS)
    assert before == CONFIG  # the commit's own are not touched
    for one in (spec, config["spec"]):
        kinds = {space["type"]: space.get("path") for space in one["linux"]["namespaces"]}
        assert kinds == {"pid": None, "ipc": None, "network": "/r/network"}
        assert [mount["source"] for mount in one["mounts"]] == ["/r/0", "/usr", "/s/hosts", "proc"]
    assert (config["createNetNS"], config["networkMode"]) == (False, "ns:/r/network")
    assert not {"newNetworks", "newPortMappings", "pod"} & set(config)
    assert config["namedVolumes"] == []
    assert (config["rootfsImageName"], config["runtime"]) == ("a1", "runc")
    assert config["labels"] == {"mine": "1", COMMIT_LABEL: "c1"}


def test_one_of_the_hosts_network_gets_a_network_of_its_own() -> None:
    bare = {"mounts": [], "linux": {"namespaces": [{"type": "pid"}]}}
    _, spec = dressed({"spec": bare}, bare, DRESS)
    assert {"type": "network", "path": "/r/network"} in spec["linux"]["namespaces"]


def test_what_somebody_mounted_is_told_apart_from_what_podman_did() -> None:
    found = [(one.destination, one.volume, one.writable) for one in mounts_of(CONFIG)]
    assert found == [("/data", "v", True), ("/usr", "", False)]
