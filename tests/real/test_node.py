"""A Node.js server: V8's memory, libuv's threads and event loop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.ports import free_port

from .harness import SERVICES, Relive, ask
from .scenario import lives_twice

node = shutil.which("node")


@pytest.mark.skipif(node is None, reason="needs node")
def test_node_server(relive: Relive, tmp_path: Path) -> None:
    port = free_port()
    capsule = relive.run(str(node), SERVICES / "counter.js", str(port), tmp_path / "counts")
    ask(port, "/state")
    _, branches = lives_twice(relive, capsule, port)
    ticks = ask(branches[0].ports[port], "/state")["ticks"]
    while ask(branches[0].ports[port], "/state")["ticks"] == ticks:  # its timer runs on
        pass
