"""Where Relive's own processes look for modules when the service is given a ``PYTHONPATH``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relive


@pytest.mark.parametrize(
    ("words", "is_moved"),
    [
        (["/usr/bin/python3", "/opt/bin/relive", "run"], True),
        (["python3", "-P", "-m", "relive.operations", "x"], True),
        (["python3", "-m", "relive"], True),
        (["python3", "-m", "pytest", "relive"], False),
        (["python3", "-m"], False),
        (["pytest"], False),
        ([], False),
    ],
)
def test_only_in_its_own_processes_the_service_s_directories_come_last(
    words: list[str], is_moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["/srv/lib", "/usr/lib/python", "/here", "/site"])
    relive._look_last_where_the_service_looks_first(words, "/srv/lib::/here/")
    moved = ["/usr/lib/python", "/site", "/srv/lib", "/here"]
    assert sys.path == (moved if is_moved else ["/srv/lib", "/usr/lib/python", "/here", "/site"])
    monkeypatch.setattr(sys, "path", ["/a", "/b"])
    relive._look_last_where_the_service_looks_first(words, None)
    assert sys.path == ["/a", "/b"]


def test_a_module_of_the_service_does_not_stand_for_one_that_relive_imports(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('of the service')\n")
    environment = {
        "PYTHONPATH": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "RELIVE_HOME": str(tmp_path / "home"),
    }
    words = [Path(sys.executable).with_name("relive"), "ps", "--json"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), "what it imports, imports queue"
