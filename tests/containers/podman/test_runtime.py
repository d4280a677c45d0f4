"""What CRIU is told of a container is what its runtime would tell it: tried on processes whose mounts stand for a container's."""

from __future__ import annotations

import os
import subprocess

from kernel.helpers import needs_root
from relive.containers.podman.runtime import externals, outer_descriptors
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
    found = externals(os.getpid(), spec, "runc")
    assert found == ["mnt[/proc]:/proc/self/root/proc", f"net[{network}]:extRootNetNS"]
    spec["linux"]["namespaces"] = [{"type": "network"}]  # one of its own, which CRIU makes anew
    assert externals(os.getpid(), spec, "runc") == found[:1]


@needs_root
def test_a_masked_file_is_named_as_its_runtime_will_ask_for_it() -> None:
    """By its path for crun, by what covers it for runc."""
    spec = {"linux": {"maskedPaths": ["/etc/hostname"]}}
    mask = ["unshare", "--mount", "sh", "-c", "mount --bind /dev/null /etc/hostname && echo && exec cat"]
    with subprocess.Popen(mask, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline()
        assert externals(process.pid, spec, "runc") == ["mnt[/etc/hostname]:/dev/null"]
        assert externals(process.pid, spec, "crun") == ["mnt[/etc/hostname]:/etc/hostname"]
        process.stdin.close()


def test_without_a_runtimes_word_the_descriptors_of_now_are_told() -> None:
    assert outer_descriptors(os.getpid(), "nobody") == [
        os.readlink(f"/proc/self/fd/{one}") for one in range(3)
    ]
