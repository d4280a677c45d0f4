"""What CRIU is told of a container is what runc would tell it: tried on this very process, whose mounts stand for a container's."""

from __future__ import annotations

import os

from relive.engine.podman.runtime import externals, outer_descriptors
from relive.kernel.mounts import read_mounts
from relive.kernel.namespaces import Namespace, namespace_id


def test_bound_and_masked_paths_are_external_under_the_names_of_the_specification() -> None:
    """Only what is mounted counts; a masked directory is a tmpfs, which CRIU saves by itself."""
    points = {mount.point for mount in read_mounts()}
    assert "/proc" in points
    spec = {
        "mounts": [
            {"destination": "/proc/self/root/proc", "type": "bind"},
            {"destination": "/not/mounted", "type": "bind"},
            {"destination": "/sys", "type": "sysfs"},
        ],
        "linux": {
            "maskedPaths": ["/proc", "/etc/hostname"],
            "namespaces": [{"type": "network", "path": "/n"}],
        },
    }
    network = namespace_id("self", Namespace.NETWORK)
    found = externals(os.getpid(), spec)
    assert found == ["mnt[/proc]:/proc/self/root/proc", f"net[{network}]:extRootNetNS"]
    spec["linux"]["namespaces"] = [{"type": "network"}]  # one of its own, which CRIU makes anew
    assert externals(os.getpid(), spec) == found[:1]


def test_without_a_runtimes_word_the_descriptors_of_now_are_told() -> None:
    assert outer_descriptors(os.getpid(), "nobody") == [
        os.readlink(f"/proc/self/fd/{one}") for one in range(3)
    ]
