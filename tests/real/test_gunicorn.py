"""gunicorn with two workers: a master, sockets shared by fork, shared memory, temporary files that are unlinked."""

from __future__ import annotations

from pathlib import Path

from support.ports import free_port

from .harness import PYTHON, SERVICES, Relive, ask
from .scenario import lives_twice


def test_gunicorn_with_two_workers(relive: Relive, tmp_path: Path) -> None:
    port = free_port()
    capsule = relive.run(
        *(PYTHON, "-m", "gunicorn", "--preload", "--workers", "2", "--worker-class", "gthread"),
        *("--chdir", SERVICES, "--bind", f"127.0.0.1:{port}", "wsgi_counter:app"),
        COUNTER_LOG=str(tmp_path / "counts"),
    )
    ask(port, "/state")
    commit, branches = lives_twice(relive, capsule, port)
    assert len(commit.manifest.target.processes) == 3
    # The master still masters: it replaces a worker that dies.
    before = branches[0].pids()
    branches[0].exec("kill", "-9", str(before[-1]))
    ask(branches[0].ports[port], "/state")
