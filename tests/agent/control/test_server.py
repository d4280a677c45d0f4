"""Commands to the agent over its socket: answers, errors as they were raised, and nobody there."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.agent.control import server as control_server
from relive.agent.control.client import ask_agent
from relive.agent.control.server import serve_control
from relive.errors import AgentUnreachable, CommitFailed, ReliveError, TargetUndumpable, UsageError
from relive.model.advance import Advance
from support.waiting import eventually


class PlayedAgent:
    """A control server in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.advance = Advance()
        self.is_told = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(10)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await serve_control(self.path, self._handle, self.advance)
        self._ready.set()
        await self._ended.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*connections, return_exceptions=True)

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "echo":
                return {"said": request["text"]}
            case "fail":
                raise TargetUndumpable("it holds a ring", cause="CRIU says so", remedy="hide it")
            case "work":
                stage = self.advance.begin("counting", 10**9)
                while not self.is_told.is_set():
                    stage.step()
                    await asyncio.sleep(0.001)
                return {"counted": True}
            case "hang":
                await self._ended.wait()
        raise ValueError("no such operation")

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[PlayedAgent]:
    played = PlayedAgent(tmp_path / "agent.sock")
    yield played
    played.end()


def ask(agent: PlayedAgent, limit: float = 10, **request: Any) -> dict[str, Any]:
    return ask_agent(agent.path, request, limit=limit)


def test_an_answer_comes_back(agent):
    assert ask(agent, op="echo", text="ü" * 1000) == {"said": "ü" * 1000}


def test_an_error_is_raised_as_the_agent_raised_it(agent):
    with pytest.raises(TargetUndumpable) as caught:
        ask(agent, op="fail")
    assert isinstance(caught.value, CommitFailed)
    assert caught.value.as_json() == {
        "code": "target-undumpable",
        "message": "it holds a ring",
        "cause": "CRIU says so",
        "remedy": "hide it",
    }


@pytest.mark.parametrize("request_", [{"op": "nonsense"}, {"oops": 1}, {"op": "echo"}])
def test_what_the_agent_does_not_understand_is_a_usage_error(agent, request_):
    with pytest.raises(UsageError):
        ask_agent(agent.path, request_, limit=10)


def test_only_its_owner_can_connect(agent):
    assert stat.S_IMODE(agent.path.stat().st_mode) == 0o600


def test_junk_is_answered_and_the_next_line_too(agent):
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(agent.path))
        channel.sendall(b'junk\n[1]\n{"op": "echo", "text": "still here"}\n')
        with channel.makefile("rb") as lines:
            assert b"error" in lines.readline()
            assert b"error" in lines.readline()
            assert b"still here" in lines.readline()


def test_while_work_goes_on_the_agent_says_how_far_it_is_and_the_answer_comes_behind(agent, monkeypatch):
    monkeypatch.setattr(control_server, "_ADVANCE_EVERY", 0.01)
    told = []

    def hear(message: dict[str, Any]) -> None:
        told.append(message)
        if len(told) == 3:
            agent.is_told.set()

    assert ask_agent(agent.path, {"op": "work"}, limit=30, on_progress=hear) == {"counted": True}
    assert all(one["what"] == "counting" and one["total"] == 10**9 for one in told)
    assert sorted({one["done"] for one in told}) == [one["done"] for one in told]


def test_an_agent_whose_work_does_not_move_is_unreachable_however_it_is_asked(agent, monkeypatch):
    monkeypatch.setattr(control_server, "_ADVANCE_EVERY", 0.001)
    agent.advance.begin("standing still", 1)
    with pytest.raises(AgentUnreachable):
        ask_agent(agent.path, {"op": "hang"}, limit=0.1, on_progress=lambda _told: None)


def test_work_is_done_though_who_asked_is_gone(agent, monkeypatch):
    monkeypatch.setattr(control_server, "_ADVANCE_EVERY", 0.001)
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(agent.path))
        channel.sendall(b'{"op": "work", "progress": true}\n')
        with channel.makefile("rb") as lines:
            assert b"counting" in lines.readline()
    moves = agent.advance.moves
    eventually(lambda: agent.advance.moves > moves + 100)
    agent.is_told.set()
    assert ask(agent, op="echo", text="x") == {"said": "x"}


def test_an_agent_that_does_not_answer_in_time_is_unreachable(agent):
    with pytest.raises(AgentUnreachable):
        ask(agent, limit=0.05, op="hang")


def test_a_socket_without_an_agent_is_unreachable(tmp_path):
    (tmp_path / "closed").touch()
    for path in (tmp_path / "agent.sock", tmp_path / "no" / "agent.sock"):
        with pytest.raises(AgentUnreachable) as caught:
            ask_agent(path, {"op": "echo"}, limit=1)
        assert "relive ps" in (caught.value.remedy or "")


def test_a_path_too_long_for_a_socket_is_no_hindrance(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    directory = os.open(deep, os.O_RDONLY)
    played = PlayedAgent(Path(f"/proc/self/fd/{directory}/agent.sock"))
    try:
        assert ask_agent(deep / "agent.sock", {"op": "echo", "text": "x"}, limit=5) == {"said": "x"}
    finally:
        played.end()
        os.close(directory)


def played_end(tmp_path: Path, answer: bytes) -> Path:
    """A server that gives one answer, whatever is asked, and hangs up."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "agent.sock"))
    server.listen()

    def serve() -> None:
        with server, server.accept()[0] as channel:
            channel.recv(1000)
            channel.sendall(answer)

    threading.Thread(target=serve).start()
    return tmp_path / "agent.sock"


def test_an_agent_that_hangs_up_is_unreachable(tmp_path):
    with pytest.raises(AgentUnreachable):
        ask_agent(played_end(tmp_path, b""), {"op": "commit"}, limit=5)


def test_an_error_of_a_kind_that_this_version_does_not_know_is_still_one(tmp_path):
    answer = b'{"error": {"code": "novel", "message": "new", "cause": null, "remedy": null}}\n'
    with pytest.raises(ReliveError, match="new"):
        ask_agent(played_end(tmp_path, answer), {"op": "commit"}, limit=5)


def test_an_agent_that_dies_in_the_middle_of_its_answer_is_unreachable(tmp_path):
    with pytest.raises(AgentUnreachable):
        ask_agent(played_end(tmp_path, b'{"ok": {"id"'), {"op": "commit"}, limit=5)
