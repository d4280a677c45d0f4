"""A Java server on the platform's own JVM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.ports import free_port

from .harness import SERVICES, Relive, ask
from .scenario import lives_twice


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac")
def test_java_server(relive: Relive, tmp_path: Path) -> None:
    subprocess.run(["javac", "-d", tmp_path, SERVICES / "Counter.java"], check=True)
    port = free_port()
    capsule = relive.run(
        "java",
        "-Xmx64m",
        "-Dsun.net.httpserver.nodelay=true",
        "-cp",
        tmp_path,
        "Counter",
        str(port),
        tmp_path / "counts",
    )
    ask(port, "/state")
    commit, _ = lives_twice(relive, capsule, port)
    assert commit.manifest.target.processes[0].threads > 10
