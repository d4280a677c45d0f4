"""A container's configuration is found in both databases that podman has had."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from relive.containers.podman.database import read_configuration
from relive.errors import TargetUndumpable

from .test_bolt import database, leaf, meta

ID = "c" * 64


def inline(items: list[tuple[bytes, int, bytes]]) -> bytes:
    return bytes(16) + leaf(0, items)


def test_in_bolt_with_its_networks(tmp_path: Path) -> None:
    networks = inline([(b"podman", 0, b'{"interface_name":"eth0"}')])
    container = inline([(b"config", 0, b'{"id":"it"}'), (b"networks", 1, networks)])
    (tmp_path / "libpod").mkdir()
    database(
        tmp_path / "libpod" / "bolt_state.db",
        meta(0, 3, 1),
        meta(1, 3, 0),
        b"",
        leaf(3, [(b"ctr", 1, inline([(ID.encode(), 1, container)]))]),
    )
    assert read_configuration(tmp_path, ID) == {
        "id": "it",
        "newNetworks": {"podman": {"interface_name": "eth0"}},
    }
    with pytest.raises(TargetUndumpable, match="no container"):
        read_configuration(tmp_path, "d" * 64)


def test_in_sqlite(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "db.sql")) as made:
        made.execute("CREATE TABLE ContainerConfig (ID TEXT, Name TEXT, JSON TEXT)")
        made.execute("INSERT INTO ContainerConfig VALUES (?, 'web', ?)", (ID, json.dumps({"id": "it"})))
        made.commit()
    assert read_configuration(tmp_path, ID) == {"id": "it"}
    with pytest.raises(TargetUndumpable):
        read_configuration(tmp_path, "d" * 64)


def test_nothing_there_is_said_with_what_helps(tmp_path: Path) -> None:
    with pytest.raises(TargetUndumpable) as error:
        read_configuration(tmp_path, ID)
    assert "relive import" in str(error.value.remedy)
