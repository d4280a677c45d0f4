"""What podman keeps of a container: its configuration, which a checkpoint archive has as ``config.dump``.

No command of podman tells it but ``podman container checkpoint --export``, so it is read where podman has it: in the table
``ContainerConfig`` of ``db.sql`` (SQLite; since 4.8), else in the buckets ``ctr``, ID of ``libpod/bolt_state.db``.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from relive.containers.podman.bolt import BoltInvalid, read_bolt
from relive.errors import TargetUndumpable

__all__ = ["read_configuration"]

_BUSY_LIMIT = 5.0  # [s] that podman may keep its database locked


def read_configuration(graph_root: Path, container: str) -> dict[str, Any]:
    """The configuration of a container, by its full id, with the networks that it is in.

    Raises:
        TargetUndumpable: podman keeps it in a way that is not known here, or not at all.
    """
    try:
        found = _read(graph_root, container)
    except (BoltInvalid, sqlite3.Error, OSError, ValueError) as error:
        raise _unknown(graph_root, container, str(error)) from error
    if not isinstance(found, dict):
        raise _unknown(graph_root, container, "it has no container of this id")
    return found


def _read(graph_root: Path, container: str) -> Any:
    database = graph_root / "db.sql"
    if database.exists():
        return _from_sqlite(database, container)
    return _from_bolt(graph_root / "libpod" / "bolt_state.db", container)


def _from_sqlite(path: Path, container: str) -> Any:
    with contextlib.closing(
        sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_LIMIT)
    ) as connection:
        row = connection.execute("SELECT JSON FROM ContainerConfig WHERE ID = ?", (container,)).fetchone()
    return json.loads(row[0]) if row is not None else None


def _from_bolt(path: Path, container: str) -> Any:
    containers = read_bolt(path).bucket(b"ctr")
    bucket = containers.bucket(container.encode()) if containers is not None else None
    text = bucket.get(b"config") if bucket is not None else None
    if bucket is None or text is None:
        return None
    found = json.loads(text)
    networks = bucket.bucket(b"networks")
    if networks is not None:
        # Beside the configuration, since they can change; an archive has them in it.
        found["newNetworks"] = {
            name.decode(): json.loads(options) for name, options in networks.values().items()
        }
    return found


def _unknown(graph_root: Path, container: str, cause: str) -> TargetUndumpable:
    return TargetUndumpable(
        f"the configuration of container {container[:12]} was not found in podman's database",
        cause=f"below {graph_root}: {cause}",
        remedy="use `podman container checkpoint --leave-running --export FILE` and `relive import FILE`; and report "
        "podman's version",
    )
