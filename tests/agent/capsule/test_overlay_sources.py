"""What of the host's file systems in memory is the service's, where its files lie on overlays."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from relive.agent.capsule import starting
from relive.config import load_settings
from relive.forkserver.rendezvous import PLACE_OF_ROOT


def test_sockets_of_relives_own_servers_are_not_committed(tmp_path: Path) -> None:
    """GIVEN /run with a socket of a service and one of Relive's own; WHEN it is committed; THEN only the service's is in it."""
    run, staging = tmp_path / "run", tmp_path / "staging"
    for name in ("pay", PLACE_OF_ROOT.name):
        (run / name).mkdir(parents=True)
        os.mknod(run / name / "socket", 0o140600)
    staging.mkdir()
    capsule: Any = SimpleNamespace(
        facts=SimpleNamespace(points=[], init=os.getpid()),
        paths=SimpleNamespace(layers=tmp_path, trust=tmp_path / "trust"),
    )
    source = starting._overlay_sources(load_settings(home=tmp_path), capsule)[-1]
    assert source.point == "/run"
    source.scanner.directory = run  # instead of this process's
    found = [entry.path for entry, _ in source.scanner.scan(staging, skip=source.skip)]
    assert found == ["pay", "pay/socket"]
