"""Runs beside each other: another state in a branch, where two runs part, and schedules that make a race fail."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relive.incidents.runs import Runs
from relive.inspection.python.asking import ask
from relive.intervention.swaps import Happened, order_of
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.sandbox.branch import Branch, find_branch
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Refused, Relive
from .test_bisect import get, left_over


@dataclass(frozen=True)
class Racy:
    """The service, with a commit before a read and a move that overlapped, and a check that went well."""

    relive: Relive
    commit: str
    request: str
    order: list[Happened]

    def replay(self, *words: str) -> dict[str, Any]:
        done = self.relive.say("replay", self.commit, "--request", self.request, "--pace", "fast", *words)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def newest(self) -> int:
        """The number of the newest run."""
        (row,) = Runs(self.relive.settings.runs).page(service=None, incident=None, after=None, limit=1)
        return row.number

    def divergence(self, *refs: str) -> dict[str, Any]:
        found: dict[str, Any] = self.relive("divergence", *refs)
        return found


@contextlib.contextmanager
def running(later: float) -> Iterator[Racy]:
    """``later``: seconds in which a read has to be done, so that it does not meet the move."""
    home, data = (Path(tempfile.mkdtemp(prefix="relive-")) for _ in range(2))
    relive = Relive(home, "exploring")
    outer, inner = free_port(), free_port()
    uvicorn = str(PYTHON.with_name("uvicorn"))
    options = [
        "--name",
        "racy",
        "--every",
        "start",
        "--listen",
        f"127.0.0.1:{outer}",
        "--upstream",
        str(inner),
    ]
    command = [uvicorn, "racy:app", "--app-dir", str(SERVICES), "--port", str(inner)]
    environment = {"RACY": str(data / "racy.db"), "RACY_LATER": str(later)}
    try:
        relive("run", "--detach", *options, "--", *command, environment=environment)
        eventually(lambda: relive.commits("racy"), "the commit at the start")
        yield _went_well(relive, outer)
    finally:
        relive.close()
        for directory in (home, data):
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def racy(commands: None) -> Iterator[Racy]:
    with running(later=0.5) as made:
        yield made


def _went_well(relive: Relive, port: int) -> Racy:
    """A commit, then a read and a move at once and a check that went well: on a busy machine perhaps not the first time."""
    assert get(port, "/read/warm") == 200
    (life,) = relive.home.glob("capsules/racy/2*")
    for number in range(30):
        commit = relive("commit", "racy")["id"]
        both = [threading.Thread(target=get, args=(port, f"/{what}/k{number}")) for what in ("move", "read")]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(LIMIT)
        status = get(port, f"/check/k{number}")
        told = {one.target: one for one in Exchanges(Recording(life / "recording")).all()}
        read, move = told[f"/read/k{number}"], told[f"/move/k{number}"]
        if (
            status == 200
            and read.started_seq < (move.ended_seq or 0)
            and move.started_seq < (read.ended_seq or 0)
        ):
            eventually(lambda: _is_recorded(life, f"/check/k{number}"), "what happened inside is recorded")  # noqa: B023
            return Racy(relive, commit, str(told[f"/check/k{number}"].number), _order(life, number))
    raise AssertionError("never at once")


def _is_recorded(life: Path, target: str) -> bool:
    """The recorder's events of a request come a moment after its answer."""
    events = list(Recording(life / "inside").events())
    begun = {
        one.request
        for one in events
        if one.fields.get("target") == target and one.kind == EventKind.HANDLING_STARTED
    }
    return any(one.kind == EventKind.HANDLING_ENDED and one.request in begun for one in events)


def _order(life: Path, number: int) -> list[Happened]:
    """What the read, the move and the check of a round did, as it was recorded."""
    order = order_of(list(Recording(life / "inside").events()))
    return [one for one in order if one.words.endswith(f"/k{number}")]


def test_a_run_does_not_part_from_its_recording_and_says_so(racy: Racy) -> None:
    assert racy.replay()["runs"][0]["outcome"]["status"] == 200
    found = racy.divergence(f"{racy.newest()}.recorded", f"run/{racy.newest()}")
    assert found["is_known"] and found["divergences"] == []
    assert found["events"] == [] and found["ended"] is None


def test_another_clock_is_a_time_only(racy: Racy) -> None:
    racy.replay("--clock", "now")
    found = racy.divergence(f"{racy.newest()}.recorded", str(racy.newest()))
    assert [one["kind"] for one in found["divergences"]] == ["time"]
    assert found["body"], "the answer tells the time"
    refs = [f"run/{racy.newest()}.recorded", f"run/{racy.newest()}"]
    told = racy.relive.commands(["diff", *refs], racy.relive.environment).stdout
    assert "a time only" in told and '"at":' in told
    assert "not measured of both" in told
    refused = racy.relive.say("diff", refs[0], racy.commit)
    assert refused.returncode == 2 and "a commit and a run" in refused.stdout


def test_another_state_takes_another_way_and_the_first_event_is_named(racy: Racy) -> None:
    told = racy.replay("--set", "racy.asked = lambda *_: [(5,)]")
    assert told["changed"] == ["racy.asked = lambda *_: [(5,)]"]
    found = racy.divergence(f"{racy.newest()}.recorded", str(racy.newest()))
    first = found["divergences"][0]
    assert first["kind"] == "way" and first["before"]["kind"] == "query"


def test_a_value_is_set_before_anything_is_sent(racy: Racy) -> None:
    key = racy.replay()["runs"][0]["outcome"]["body"]
    assert "place" in key
    told = racy.replay("--set", "racy.remembered = None")
    assert told["runs"][0]["outcome"]["status"] == 500, told["runs"][0]["verdict"]


def test_a_restored_branch_has_the_value_and_the_file_and_they_can_be_kept(
    racy: Racy, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    note.write_text("something else")
    path, gone = f"{tmp_path}/written", tmp_path / "gone"
    gone.touch()
    words = ("--set", "racy.remembered['x'] = 7", "--set", "CAREFUL = True", "--module", "racy")
    branch = racy.relive("restore", racy.commit, *words, "--write", f"{path}={note}")["id"]
    try:
        inside = find_branch(racy.relive.settings, branch)
        assert _within(inside, "cat", path) == "something else"
        assert _value(inside) == "(7, True)"
        _within(inside, "rm", str(gone))
        kept = racy.relive("commit", branch[:6], "--tag", "healed")
        assert _value(inside) == "(7, True)", "it runs on"
    finally:
        racy.relive("stop", branch)
    assert gone.exists() and not Path(path).exists(), "the host's files are as they were"
    assert (kept["parent"], kept["trigger"], kept["tags"]) == (racy.commit, "branch", ["healed"])
    _is_kept(racy, path, gone)


def _is_kept(racy: Racy, path: str, gone: Path) -> None:
    """It can be restored, compared and replayed, and is not the service's newest commit."""
    before = left_over(racy.relive)
    assert racy.relive("verify", "healed")["problems"] == []
    assert racy.relive("show", "racy")["id"] == racy.commit
    again = find_branch(racy.relive.settings, racy.relive("restore", "healed")["id"])
    try:
        assert _value(again) == "(7, True)"
        assert _within(again, "sh", "-c", f"cat {path}; ls {gone.parent}; hostname").split() == [
            *("something", "elsenote", "written"),
            _within(again, "hostname").strip(),
        ]
        assert again.facts.id in _within(again, "hostname"), "not the name of the branch that was kept"
    finally:
        racy.relive("stop", again.facts.id)
    told = racy.relive.say("diff", racy.commit, "healed", "--python").stdout
    assert "remembered['x']" in told and "CAREFUL" in told and path in told, told
    there = replace(racy, commit="healed").replay("--set", "assert racy.remembered['x'] == 7")
    assert there["runs"][0]["outcome"]["status"] == 200
    assert left_over(racy.relive) == before


def _within(branch: Branch, *command: str) -> str:
    inside = branch.command_inside(list(command))
    return subprocess.run(inside, capture_output=True, check=True, timeout=LIMIT, text=True).stdout


def _value(branch: Branch) -> str:
    question = {"kind": "evaluate", "expression": "(racy.remembered['x'], racy.CAREFUL)", "module": None}
    return str(ask(branch.facts.root, question | {"depth": 0, "most": 1}, LIMIT)["text"])


def test_what_cannot_be_kept_is_refused_and_the_branch_runs_on(racy: Racy) -> None:
    branch = racy.relive("restore", racy.commit)["id"]
    commits = racy.relive.commits("racy")
    try:
        inside = find_branch(racy.relive.settings, branch)
        with subprocess.Popen(
            inside.command_inside(["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as beside:
            assert beside.stdin is not None and beside.stdout is not None
            beside.stdin.write(b"x\n")
            beside.stdin.flush()
            assert beside.stdout.readline() == b"x\n"
            with pytest.raises(Refused, match="beside its service there run cat"):
                racy.relive("commit", branch)
            beside.communicate()
        racy.relive("tag", "taken", racy.commit)
        with pytest.raises(Refused, match="the tag 'taken' exists"):
            racy.relive("restore", racy.commit, "--set", "x = 1", "--keep-as", "taken")
        with pytest.raises(Refused, match="the tag 'taken' exists"):
            racy.relive("commit", branch, "--tag", "taken")
        assert inside.is_alive and racy.relive.commits("racy") == commits
    finally:
        racy.relive("stop", branch)


def test_a_change_is_kept_as_it_is_made(racy: Racy) -> None:
    made = racy.relive("restore", racy.commit, "--set", "racy.CAREFUL = 'very'", "--keep-as", "careful")
    racy.relive("stop", made["id"])
    found = racy.relive("show", "careful")
    assert found["id"] == made["kept"] and found["parents"] == [racy.commit]


def test_a_delay_after_the_read_has_asked_makes_it_fail_and_can_be_kept(racy: Racy) -> None:
    """It remembers its answer after the move then."""
    place = next(one.place for one in racy.order if "select" in one.words and "/read/" in one.words)
    before = left_over(racy.relive)
    told = racy.replay("--delay", f"{place}=3000")
    assert told["runs"][0]["outcome"]["status"] == 500, told["runs"][0]["verdict"]
    assert told["changed"] == ["schedule: 1 delay"]
    kept = {"relive_kept": 1, "name": "race", "commit": racy.commit, "request": int(racy.request)}
    kept |= {"expect": "status == 200", "pace": "fast", "delay": [f"{place}=3000"]}
    file = racy.relive.home / "race.relive.yaml"
    file.write_text(json.dumps(kept))
    done = racy.relive.say("kept", str(file), "--as-committed")
    assert json.loads(done.stdout)["met"] is False, done.stdout
    assert left_over(racy.relive) == before


def test_a_search_that_may_not_go_on_tells_what_it_knows_by_then(racy: Racy) -> None:
    done = racy.relive.say("replay", racy.commit, "--request", racy.request, "--chaos", "--most", "3")
    told = json.loads(done.stdout)
    assert told["replays"] <= 3 and len(told["plain"]) == 2
    assert done.returncode == 10 if told["seed"] is None else told["run"], told
    assert "3 replays were allowed" in told["why_not"]


@pytest.mark.soak
def test_a_race_that_was_not_lost_is_lost_under_a_schedule_that_is_found(commands: None) -> None:
    words = ["--chaos", "--rate", "0.01", "--most", "400", "--within", "100", "--pace", "fast"]
    with running(later=0.06) as racy:
        done = racy.relive.say("replay", racy.commit, "--request", racy.request, *words)
        told = json.loads(done.stdout)
        assert done.returncode == 0, told
        assert told["seed"] and "is remembered where it was" in told["result"]
        found = racy.divergence(f"{told['run']}.1", f"{told['run']}.2")
    assert found["ended"] == ["answered with status 200", "answered with status 500"]


@pytest.mark.parametrize(
    "words", [["--delay", "anything=1"], ["--chaos", "--set", "a = 1"], ["--rate", "0.1"]]
)
def test_a_schedule_that_cannot_be_meant_is_refused(racy: Racy, words: list[str]) -> None:
    assert racy.relive.say("replay", racy.commit, "--request", racy.request, *words).returncode == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--set", "racy.remembered["], "SyntaxError"),
        (["--set", "nobody.knows = 1"], "NameError"),
        (["--set", "remembred = 1"], "no name 'remembred'"),
        (["--set", "1 / 0"], "ZeroDivisionError"),
        (["--set", "x = 1", "--module", "nobody"], "no module 'nobody'"),
        (["--write", "relative=/etc/hostname"], "names no file"),
        (["--write", "/tmp/x=/nowhere"], "cannot be read"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_and_leaves_nothing(
    racy: Racy, words: list[str], reason: str
) -> None:
    before = left_over(racy.relive)
    with pytest.raises(Refused, match=reason):
        racy.relive("restore", racy.commit, *words)
    assert left_over(racy.relive) == before
