"""uvicorn with FastAPI, on its default loop (uvloop, from which io_uring is hidden) and on asyncio."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port

from .harness import PYTHON, SERVICES, Capsule, Http, Relive, ask, counting
from .scenario import lives_twice, settled


def start_counter(relive: Relive, tmp_path: Path, *options: str) -> tuple[Capsule, int]:
    port = free_port()
    capsule = relive.run(
        *(
            PYTHON,
            "-m",
            "uvicorn",
            "--app-dir",
            SERVICES,
            "counter_app:app",
            "--port",
            str(port),
            "--timeout-keep-alive",
            "60",
        ),
        *options,
        COUNTER_DB=str(tmp_path / "hits.db"),
    )
    ask(port, "/state")
    return capsule, port


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--loop", "uvloop"), id="uvloop"),
        pytest.param(("--loop", "asyncio", "--http", "h11"), id="asyncio"),
    ],
)
def test_a_commit_under_load_lives_twice_beside_the_original(
    relive: Relive, tmp_path: Path, options: tuple[str, ...]
) -> None:
    capsule, port = start_counter(relive, tmp_path, *options)
    lives_twice(relive, capsule, port)


def test_clients_amid_a_request_or_idle_do_not_notice(relive: Relive, tmp_path: Path) -> None:
    """One client waits for a slow answer, one keeps its connection: both are served by the original afterwards."""
    capsule, port = start_counter(relive, tmp_path)
    idle = Http(port)
    idle("POST", "/count")
    answers: list[Any] = []

    def wait_for_answer() -> None:
        with Http(port) as client:
            answers.append(client("GET", "/slow/1.5"))

    waiting = threading.Thread(target=wait_for_answer)
    waiting.start()
    with counting(port):
        commit = relive.commit(capsule, measured=False)
        branch = relive.restore(commit, port)
        waiting.join()
    assert answers and answers[0]["after"] > answers[0]["before"]
    assert idle("POST", "/count")["count"] > 0
    inward = [one for one in commit.manifest.connections if one.inward]
    assert len(inward) >= 3
    # In the branch the forged clients still hold their connections, and new ones are served.
    settled(ask(branch.ports[port], "/state"))
    sockets = branch.exec("cat", "/proc/net/tcp")
    assert sum(line.split()[3] == "01" for line in sockets.splitlines()[1:]) >= 2 * len(inward)
    idle.close()
