"""uvicorn with FastAPI, on its default loop (uvloop, from which io_uring is hidden) and on asyncio."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Capsule, Http, Relive, ask, counting
from .scenario import lives_twice, settled

TRIES = 10


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


def connections_at(port: int) -> int:
    """Those that the service has taken or could take."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def test_clients_amid_a_request_or_idle_do_not_notice(relive: Relive, tmp_path: Path) -> None:
    """One client waits for a slow answer, one keeps its connection: both are served by the original afterwards."""
    capsule, port = start_counter(relive, tmp_path)
    idle = Http(port)
    idle("POST", "/count")
    answers: list[Any] = []

    def wait_for_answer() -> None:
        with Http(port) as client:
            answers.append(client("GET", "/slow/1.5"))

    with counting(port):
        for number in range(1, TRIES):
            waiting = threading.Thread(target=wait_for_answer)
            waiting.start()
            eventually(lambda: connections_at(port) >= 3, "the third client is there")
            commit = relive.commit(capsule, measured=False)
            inward = [one for one in commit.manifest.connections if one.inward]
            if len(inward) >= 3:  # on a loaded machine it may have its answer before the commit
                branch = relive.restore(commit, port)
            waiting.join()
            assert len(answers) == number and answers[-1]["after"] > answers[-1]["before"]
            if len(inward) >= 3:
                break
    assert len(inward) >= 3
    assert idle("POST", "/count")["count"] > 0
    # In the branch the forged clients still hold their connections, and new ones are served.
    settled(ask(branch.ports[port], "/state"))
    sockets = branch.exec("cat", "/proc/net/tcp")
    assert sum(line.split()[3] == "01" for line in sockets.splitlines()[1:]) >= 2 * len(inward)
    idle.close()
