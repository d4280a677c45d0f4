"""When a service counts as ready, and what is said where it does not become so."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.agent.capsule import readiness
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.readiness import Ready, await_ready, listens
from relive.errors import CapsuleStartFailed, NotReady
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths

LONG = 60.0  # [s]
Make = Callable[..., Capsule]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Goes on until its input is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


@pytest.fixture
def capsule(tmp_path: Path) -> Make:
    def make(pid: int, **spec: object) -> Capsule:
        stat = procfs.read_stat(pid)
        assert stat is not None
        told = {"name": "pay", "command": ["serve"], "directory": "/", "environment": {}}
        facts = {"life": "1", "init": pid, "init_started": stat.start_ticks, "root": pid, "root_inside": 2}
        wanted = CapsuleSpec.model_validate({**told, "policy": Policy(at_start=False), **spec})
        (tmp_path / "io").mkdir()
        return Capsule(
            LifePaths(tmp_path),
            CapsuleFacts.model_validate({"spec": wanted, **facts, "started_wall_ns": 1, "points": []}),
        )

    return make


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_one_that_was_executed_is_ready_where_that_is_enough(capsule: Make, process) -> None:
    await_ready(capsule(process.pid), Ready.STARTED, threading.Event(), LONG)


def test_one_of_which_nothing_is_known_is_ready_when_it_has_run_a_while(
    capsule: Make, process, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = capsule(process.pid)
    monkeypatch.setattr(readiness, "RUN_FOR", 0.0)
    await_ready(made, None, threading.Event(), LONG)
    monkeypatch.setattr(readiness, "RUN_FOR", LONG)
    with pytest.raises(NotReady, match="pay is not ready after 0 s; it runs on"):
        await_ready(made, None, threading.Event(), 0.0)


def test_one_that_says_so_is_ready_when_it_has(capsule: Make, process) -> None:
    said, made = threading.Event(), capsule(process.pid)
    with pytest.raises(NotReady) as refused:
        await_ready(made, Ready.SERVICE, said, 0.0)
    assert refused.value.cause == "it has not said READY=1 to its NOTIFY_SOCKET"
    said.set()
    await_ready(made, Ready.SERVICE, said, LONG)


def test_one_whose_port_is_known_is_ready_when_it_listens(capsule: Make, listener: socket.socket) -> None:
    """And where there is a proxy, when that listens too."""
    port = listener.getsockname()[1]
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # nobody else gets it
        free = other.getsockname()[1]
        both = capsule(os.getpid(), upstream=("127.0.0.1", port), listen=("127.0.0.1", free))
        assert not listens(both)
        with pytest.raises(NotReady) as refused:
            await_ready(both, None, threading.Event(), 0.0)
        assert refused.value.cause == f"nothing listens at port {port}"
        assert "--upstream" in (refused.value.remedy or "")
        other.listen()
        assert listens(both)
        await_ready(both, None, threading.Event(), LONG)


@pytest.mark.parametrize(
    ("noted", "how"), [("768", "with status 3"), ("9", "with status 137"), (None, "killed")]
)
def test_one_that_ends_instead_is_told_with_its_last_words(
    capsule: Make, process, noted: str | None, how: str
) -> None:
    made = capsule(process.pid)
    process.kill()
    process.wait()
    if noted is not None:
        made.paths.status.write_text(noted)
    made.paths.logs[1].write_text("loading\nno such account\n\n")
    with pytest.raises(CapsuleStartFailed, match=f"pay ended before it was ready, {how}") as refused:
        await_ready(made, Ready.SERVICE, threading.Event(), LONG)
    assert refused.value.cause == "no such account"


def test_one_that_was_done_is_no_failure(capsule: Make, process) -> None:
    made = capsule(process.pid)
    process.kill()
    process.wait()
    made.paths.status.write_text("0")
    await_ready(made, Ready.SERVICE, threading.Event(), LONG)
