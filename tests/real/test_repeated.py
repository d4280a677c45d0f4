"""Runs of a replay that are put back in place end as those that are restored anew, whatever a run has left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from relive.model.commit import CommitId
from relive.model.outcome import Run
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.replay import branch_supply
from relive.replay.plan import Pace
from relive.replay.replay import replay
from relive.replay.replay_input import case_of_request
from relive.replay.replay_options import ReplayOptions
from relive.sandbox.branch import list_branches
from relive.store import Store
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Http, Relive, ask

_PATIENCE = 120.0  # [s] that a run may be late here, however busy the machine is


class Counting(BaseHTTPRequestHandler):
    """Never gives the same answer twice."""

    numbers = iter(range(1, 1000))

    def do_GET(self) -> None:
        body = b"%d" % next(self.numbers)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Recorded:
    """A commit with a client connected, and the request that came on that connection afterwards."""

    relive: Relive
    commit: CommitId
    request: int
    count: int  # of requests before it

    def runs(self, times: int, **others: Any) -> list[Run]:
        settings = self.relive.settings
        with closing(Store(settings.store)) as store:
            case = case_of_request(settings, store, self.commit, self.request)
            options = ReplayOptions(times=times, jobs=1, pace=Pace.FAST, **others)
            return asyncio.run(replay(settings, store, case, options)).runs


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    place = tmp_path_factory.mktemp("repeated")
    elsewhere = HTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    relive, port = Relive(place / "home", "repeated"), free_port()
    words = (str(port), str(elsewhere.server_address[1]), place)
    capsule = relive.run(
        PYTHON, SERVICES / "repeated.py", *words, options=("--wait", "--listen", f"127.0.0.1:{port}")
    )
    life = relive.home / "capsules" / capsule.name / capsule.life

    def number_of(path: str) -> int | None:
        found = (
            one
            for one in Exchanges(Recording(life / "recording")).all()
            if one.target == path and one.ended_seq
        )
        return next((one.number for one in found), None)

    def is_recorded() -> bool:
        ask(
            port, "/first"
        )  # on a connection of its own: one that is there before its recorder is not followed
        return number_of("/first") is not None

    try:
        eventually(is_recorded, "requests are recorded")
        with Http(port) as client:
            before = client("GET", "/before")
            commit = relive.commit(capsule)
            client("GET", "/after")
        relive("stop", capsule.name)  # what it was answered is recorded, too
        request = eventually(lambda: number_of("/after"), "the request is recorded")
        yield Recorded(relive, commit.id, request, before["count"] + 1)
    finally:
        relive.close()
        elsewhere.shutdown()
        elsewhere.server_close()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_supply, "LATE_MOST", _PATIENCE)


def ends(runs: list[Run]) -> list[Any]:
    """What each run came to, without what its time and its numbers in the host make of it."""
    found = []
    for run in runs:
        assert run.outcome is not None
        events = [(one.kind, one.data) for one in run.outcome.events or ()]
        found.append((run.verdict.kind, run.verdict.difference, run.outcome.body, events, run.outcome.misses))
    return found


def test_runs_put_back_in_place_end_as_those_that_are_restored(recorded: Recorded) -> None:
    """GIVEN a request with which threads, descriptors, memory and a client's connection change, and another server is asked
    WHEN it is replayed from one branch that is put back between the runs, and from one branch for each
    THEN all answers, verdicts and events are the same, and each run says which way it took.
    """
    in_place, anew = recorded.runs(5), recorded.runs(2, anew=True)
    assert any(run.is_put_back for run in in_place), [run.anew_because for run in in_place]
    assert [(run.is_put_back, run.anew_because) for run in anew] == [(False, None), (False, "as asked")]
    found = ends([*in_place, *anew])
    assert len({str(end) for end in found}) == 1, found
    told = json.loads(found[0][2])
    assert (told["count"], told["offset"]) == (recorded.count, 7 * recorded.count), "it is as the commit was"
    assert not list_branches(recorded.relive.settings)


def test_a_rewinder_that_is_killed_amid_leaves_a_run_that_is_restored(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies with it, since it is neither what it was nor what it is to be, and the run begins with another one."""
    begin_anew = branch_supply.ReplayBranch._begin_anew
    killed = []

    def kill(used: branch_supply.ReplayBranch, stage: Any) -> None:
        begin_anew(used, stage)
        killed.append(rewinder_of(used.branch.directory))
        os.kill(killed[-1], signal.SIGKILL)

    monkeypatch.setattr(branch_supply.ReplayBranch, "_begin_anew", kill)
    runs = recorded.runs(3)
    assert killed
    assert not any(run.is_put_back for run in runs)
    assert len({str(end) for end in ends(runs)}) == 1


def rewinder_of(directory: Path) -> int:
    """The one that keeps the branch of that directory."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and str(directory) in _command(name)]
    (pid,) = [pid for pid in found if "relive-rewind" in _command(str(pid))]
    return pid


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
