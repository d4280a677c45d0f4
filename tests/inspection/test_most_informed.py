"""Which process of a server with workers is asked about its Python: one that has loaded the service, not the master."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relive.inspection.python.branches import most_informed
from relive.kernel import procfs
from support.ports import free_port
from support.waiting import eventually

_CONFIGURATION = "bind = '127.0.0.1:{port}'\nraw_env = ['A=1']\n"


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["", "preload"])
def test_a_worker_of_gunicorn_is_asked_and_not_its_master(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The master has loaded a module, too, which is none of gunicorn's: its configuration; with ``--preload`` all."""
    (tmp_path / "shop.py").write_text("prices = {'tea': 3}\n\ndef app(environment, start): ...\n")
    (tmp_path / "gunicorn.conf.py").write_text(_CONFIGURATION.format(port=free_port()))
    ready = tmp_path / "ready"
    with (tmp_path / "gunicorn.conf.py").open("a") as configuration:
        configuration.write(f"def post_worker_init(worker):\n    open({str(ready)!r}, 'w').close()\n")
    master = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "shop:app"], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        eventually(ready.exists, "its worker")
        pids = procfs.tree_of(master.pid)
        assert pids[0] == master.pid and len(pids) == 2
        assert most_informed(pids) == pids[1]
        assert most_informed(pids[:1]) == master.pid
    finally:
        master.terminate()
        master.wait()
