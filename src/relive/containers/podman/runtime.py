"""What a runtime tells CRIU of a container when it checkpoints one, so that it can restore what was dumped without it.

Mounts that were bound from outside are external, named by their destination in the OCI configuration; masked files are bound from
``/dev/null``, and named so for runc, by their paths for crun; a network namespace that has a path is external under the name that
both look for, and of one that has none the devices are left out. See ``Checkpoint`` in runc's ``libcontainer/container_linux.go``
and ``libcrun_container_checkpoint_linux_criu`` in crun's ``criu.c``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from relive.kernel.namespaces import Namespace, namespace_id

__all__ = ["externals", "outer_descriptors", "resolved"]

_NETWORK_KEY = "extRootNetNS"
_STATE = Path("/run")
_LINKS_MOST = 40
_CRUN, _NULL = "crun", "/dev/null"


def externals(pid: int, spec: dict[str, Any], runtime: str) -> list[str]:
    """CRIU's ``--external`` options for the container with this process 1 and a runtime of this name."""
    points = _mount_points(pid)
    found: dict[str, str] = {}
    for mount in spec.get("mounts") or []:
        if mount.get("type") == "bind" or {"bind", "rbind"} & set(mount.get("options") or []):
            found[resolved(pid, mount["destination"])] = mount["destination"]
        elif mount.get("type") == "cgroup" and not _has_own(spec, "cgroup"):
            # With version 1 of control groups: one bind mount for each controller.
            below = mount["destination"].rstrip("/") + "/"
            found |= {
                point: point for point, kind in points.items() if point.startswith(below) and kind == "cgroup"
            }
    linux = spec.get("linux") or {}
    for path in linux.get("maskedPaths") or []:
        if path in points and not Path(f"/proc/{pid}/root{path}").is_dir():
            found[path] = path if runtime == _CRUN else _NULL
    for device in linux.get("devices") or []:
        if device["path"] in points:
            found[device["path"]] = device["path"]
    options = [f"mnt[{point}]:{name}" for point, name in found.items() if point in points]
    if any(one.get("type") == "network" and one.get("path") for one in linux.get("namespaces") or []):
        options.append(f"net[{namespace_id(pid, Namespace.NETWORK)}]:{_NETWORK_KEY}")
    return options


def _has_own(spec: dict[str, Any], kind: str) -> bool:
    return any(one.get("type") == kind for one in (spec.get("linux") or {}).get("namespaces") or [])


def _mount_points(pid: int) -> dict[str, str]:
    """Type of the file system at each mount point, as the container sees them."""
    found = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines():
        words = line.split()
        point = words[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "surrogateescape")
        found[point] = words[words.index("-") + 1]
    return found


def resolved(pid: int, path: str) -> str:
    """A path of the container without symbolic links; absolute ones begin at its root."""
    parts, done, links = path.strip("/").split("/"), "", 0
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        try:
            target = os.readlink(f"/proc/{pid}/root{done}/{part}")
        except OSError:
            done = f"{done}/{part}"
            continue
        links += 1
        if links > _LINKS_MOST:
            return path
        done = "" if target.startswith("/") else done
        parts = target.split("/") + parts
    return done or "/"


def outer_descriptors(pid: int, container: str) -> list[str]:
    """What its standard input, output and error were when it was started, as links in /proc say it.

    The runtime remembers it (runc in ``state.json``, crun in ``status``); a restore puts new pipes in their places.
    """
    for path in (_STATE / "runc" / container / "state.json", _STATE / "crun" / container / "status"):
        try:
            found = json.loads(path.read_text())["external_descriptors"]
        except (OSError, ValueError, KeyError):
            continue
        listed = json.loads(found) if isinstance(found, str) else found
        return [str(one) for one in listed]
    return [_link(f"/proc/{pid}/fd/{number}") for number in range(3)]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
