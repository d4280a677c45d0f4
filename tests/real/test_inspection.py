"""Looking into commits of a real service, comparing two, and asking its Python in branches that leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from relive.sandbox.branch import list_branches
from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Capsule, Commit, Refused, Relive, ask

SECRET = "correct-horse-battery-staple"
HANGS = "[1 for _ in iter(int, 1)]"


@dataclass(frozen=True)
class Remembering:
    """The service, and its commits before and after its cache was poisoned."""

    relive: Relive
    place: Path
    port: int
    capsule: Capsule
    before: Commit
    after: Commit


@pytest.fixture(scope="module")
def service(commands: None) -> Iterator[Remembering]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    place = Path(tempfile.mkdtemp(prefix="relive-files-", dir="/var/tmp"))
    relive, port = Relive(home, "inspection"), free_port()
    capsule = relive.run(PYTHON, SERVICES / "remembering.py", port, place, API_TOKEN=SECRET)
    eventually(lambda: ask(port, "/"), "its first answer")
    before = relive.commit(capsule)
    ask(port, "/poison")
    yield Remembering(relive, place, port, capsule, before, relive.commit(capsule))
    relive.close()
    shutil.rmtree(home)
    shutil.rmtree(place)


def traces(service: Remembering) -> tuple[list[str], int, int]:
    """What a branch could leave: its directory, mounts, processes that name this home."""
    home = str(service.relive.home)
    mounts = sum(home in line for line in Path("/proc/self/mountinfo").read_text().splitlines())
    branches = service.relive.settings.branches
    processes = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            processes += f"{branches}/".encode() in path.read_bytes()
        except OSError:
            continue
    return sorted(path.name for path in branches.glob("*")) if branches.exists() else [], mounts, processes


def test_all_that_its_processes_hold_is_told_and_no_secret(service):
    state = service.relive("inspect", service.before.id)
    parent, child = state["processes"]
    assert child["parent"] == parent["pid"]
    assert parent["command"][1:] == [str(SERVICES / "remembering.py"), str(service.port), str(service.place)]
    assert parent["environment"]["API_TOKEN"] == "<secret>"
    assert SECRET not in json.dumps(state)
    files = {one["name"]: one for one in parent["descriptors"]}
    assert files[str(service.place / "log.txt")]["offset"] == len("first line\n")
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for one in parent["descriptors"]:
        by_kind.setdefault(one["kind"], []).append(one)
    assert {one["unread"] for one in by_kind["unix stream socket"]} == {0, 12}
    assert {one["unread"] for one in by_kind["pipe"]} == {5}
    (answerer,) = [one for one in by_kind["tcp socket"] if one["unread"]]
    assert (answerer["unread"], answerer["state"]) == (7, "established")
    assert f"127.0.0.1:{service.port}" in {one["name"] for one in by_kind["tcp socket"]}
    (thread,) = child["threads"]
    assert thread["call"].startswith("flock(") and int(thread["registers"]["ip"], 16) > 0
    (held,) = state["locks"]
    assert (held["pid"], held["kind"], held["path"]) == (parent["pid"], "flock", str(service.place / "lock"))
    (waiting,) = state["waiting"]
    assert (waiting["pid"], waiting["holder"]) == (child["pid"], parent["pid"])
    shared = [
        one for one in parent["regions"] if child["pid"] in one["shared_with"] and one["size"] == 1 << 16
    ]
    assert [one["stored"] > 0 for one in shared] == [True]


def test_the_text_for_people_names_the_same_things(service):
    done = service.relive.commands(["inspect", "--all", service.before.id], service.relive.environment)
    assert "12 B unread" in done.stdout and "who waits for whom" in done.stdout and "<secret>" in done.stdout
    assert SECRET not in done.stdout


def test_a_pattern_is_found_with_its_process_and_mapping(service):
    state = service.relive("inspect", service.before.id)
    parent, child = (one["pid"] for one in state["processes"])
    found = service.relive("inspect", service.before.id, "--find", "known to both ")
    assert [one["pids"] for one in found["hits"] if "shared memory" in one["region"]] == [[parent, child]]
    found = service.relive("inspect", service.before.id, "--find", "re:needle in [a-z] hay")
    private = [one for one in found["hits"] if one["pids"] == [parent]]
    assert private and all("needle in a haystack" in one["text"] for one in private)
    assert service.relive("inspect", service.before.id, "--find", "hex:6e6565646c65", "--most", "1")["more"]
    assert service.relive("inspect", service.before.id, "--find", "no such words anywhere")["hits"] == []
    found = service.relive("inspect", service.before.id, "--find", "API_TOKEN")
    assert found["hits"] and SECRET not in json.dumps(found)


def test_two_commits_differ_in_what_was_done_between_them(service):
    page = service.place / "page.html"
    found = service.relive("diff", service.before.id, service.after.id, "--python", "--html", str(page))
    told = page.read_text()
    assert "<summary>files: " in told and "+second line" in told and SECRET not in told
    assert "cache[&#x27;user:47&#x27;].role: &#x27;admin&#x27; -&gt; None" in told
    values = {one["name"]: (one["before"], one["after"]) for one in found["python"]["changes"]}
    assert values["cache['user:47'].role"] == ("'admin'", "None")
    assert values["cache['new'][1]"] == (None, "2")
    assert "cache['rates']['eur']" not in values and "needle" not in values
    parent = found["state"]["processes"][0]
    (offset,) = [
        field for one in parent["descriptors"] for field in one["fields"] if field["name"] == "offset"
    ]
    assert (offset["before"], offset["after"]) == ("11", "23")
    (changed,) = [one for one in found["files"] if one["path"] == str(service.place / "log.txt")]
    assert changed["lines"][-1] == "+second line"
    memory = found["memory"]
    assert 0 < memory["changed"] <= memory["compared"] < memory["pages"]
    assert found["same_life"]


def test_equal_commits_do_not_differ_and_no_page_is_read(service):
    found = service.relive("diff", service.after.id, service.after.id)
    assert found["memory"]["compared"] == found["memory"]["changed"] == 0
    assert found["files"] == found["memory"]["regions"] == found["state"]["processes"] == []


def test_what_only_grew_is_told_with_who_holds_it(service):
    refs = [service.after.id]
    for _ in range(2):
        ask(service.port, "/enter")
        refs.append(service.relive.commit(service.capsule).id)
    before = traces(service)
    found = service.relive("leaks", *refs)
    (entered,) = [one for one in found["collections"] if one["path"] == "entered"]
    assert entered["counts"] == [0, 100, 200]
    assert entered["kept"] == ["'user:0'", "'user:1'", "'user:2'"]
    (user,) = [one for one in found["types"] if one["name"] == "User"]
    assert user["counts"] == [1, 101, 201]
    assert user["held_by"].startswith("entered['user:")
    assert found["same_life"]
    assert traces(service) == before
    done = service.relive.commands(["leaks", *refs], service.relive.environment)
    assert "entered  dict: 0 -> 100 -> 200" in done.stdout
    with pytest.raises(Refused, match="not in the order"):
        service.relive("leaks", *reversed(refs))


def test_what_takes_most_memory_is_told_with_who_holds_it(service):
    before = traces(service)
    found = service.relive("inspect", service.before.id, "--objects", "--most", "5")
    assert len(found["types"]) == len(found["objects"]) == 5 and found["types_left_out"] > 0
    assert sum(one["size"] for one in found["types"]) < found["size"]
    assert found["count"] > sum(one["count"] for one in found["types"])
    sizes = [one["size"] for one in found["objects"]]
    assert sizes == sorted(sizes, reverse=True) and any(one["held_by"] for one in found["objects"])
    assert SECRET not in json.dumps(found) and traces(service) == before
    done = service.relive.commands(["inspect", service.before.id, "--objects"], service.relive.environment)
    assert "objects, most bytes first" in done.stdout and found["types"][0]["name"] in done.stdout
    with pytest.raises(Refused, match="--python and --objects are 2 questions"):
        service.relive("inspect", service.before.id, "--objects", "--python")


def test_stacks_are_told_with_locals_and_globals(service):
    found = service.relive("inspect", service.before.id, "--python")
    frames = [frame["function"] for frame in found["threads"][0]["frames"]]
    assert any("serve_forever" in one for one in frames) and frames[-1] == "<module>"
    assert "User object" in found["globals"]["__main__"]["cache"]
    assert SECRET not in json.dumps(found)


def test_an_expression_has_the_value_of_that_moment(service):
    for commit, role in ((service.before, "'admin'"), (service.after, "None")):
        found = service.relive("eval", commit.id, "cache['user:47'].role")
        assert (found["outcome"], found["text"]) == ("value", role)
    found = service.relive("inspect", service.after.id, "--python", "cache")
    assert {"path": "['user:47'].role", "text": "None"} in found["parts"]


@pytest.mark.parametrize(
    ("expression", "outcome", "words"),
    [
        ("cache['nobody']", "raised", "'nobody'"),
        ("cache = 1", "raised", "invalid syntax"),
        ("__import__('os')._exit(0)", "died", "its process ended"),
        ("__import__('ctypes').string_at(0)", "died", "signal 11"),
        (HANGS, "hung", "did not end within 1 s"),
    ],
)
def test_an_expression_that_does_harm_harms_nobody_and_leaves_nothing(service, expression, outcome, words):
    before = traces(service)
    done = service.relive.say(
        "eval", service.before.id, expression, "--limit", "1" if expression == HANGS else "60"
    )
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["outcome"], words in found["text"]) == (outcome, True)
    assert traces(service) == before
    assert list_branches(service.relive.settings) == []
    assert ask(service.port, "/") == "done"


@pytest.mark.parametrize("answer", ["[]", "no JSON", '{"raised": 7}'])
def test_an_expression_that_changes_who_answers_is_told(service, answer):
    before = traces(service)
    lies = f"setattr(__import__('json')._default_encoder, 'encode', lambda _: {answer!r})"
    with pytest.raises(Refused, match="cannot be understood"):
        service.relive("eval", service.before.id, lies)
    assert traces(service) == before


def test_what_an_expression_changes_goes_with_its_branch(service):
    path = service.place / "log.txt"
    text = path.read_text()
    writes = f"[cache.clear(), open({str(path)!r}, 'w').write('gone'), __import__('os').listdir({str(service.place)!r})]"
    assert service.relive("eval", service.before.id, writes)["outcome"] == "value"
    connects = "__import__('socket').socket().connect_ex(('192.0.2.1', 80))"
    found = service.relive("eval", service.before.id, connects)
    assert (found["text"], found["refused"] > 0) == ("101", True)  # ENETUNREACH
    assert path.read_text() == text
    assert service.relive("eval", service.before.id, "len(cache)")["text"] == "2"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("inspect", "nobody"), "ref-unknown"),
        (("inspect", "REF", "--process", "77777"), "usage"),
        (("inspect", "REF", "--find", "re:("), "usage"),
        (("inspect", "REF", "cache"), "usage"),
        (("inspect", "REF", "--python", "--find", "x"), "usage"),
        (("eval", "REF", "1", "--process", "77777"), "usage"),
        (("eval", "REF", "1", "--module", "no.such"), "usage"),
        (("eval", "nobody", "1"), "ref-unknown"),
        (("diff", "REF", "nobody"), "ref-unknown"),
        (("leaks", "REF", "REF"), "usage"),
        (("leaks", "REF", "REF", "REF"), "usage"),
        (("leaks", "REF", "nobody", "REF"), "ref-unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing(service, words, code):
    before = traces(service)
    with pytest.raises(Refused) as refused:
        service.relive(*(service.before.id if word == "REF" else word for word in words))
    assert (refused.value.code, bool(refused.value.remedy or refused.value.cause)) == (code, True)
    assert traces(service) == before


def test_a_program_that_is_no_python_is_shown_and_can_be_asked_nothing(service):
    one = service.relive.commit(service.relive.run("/usr/bin/sleep", "1000", name="sleep"))
    (process,) = service.relive("inspect", one.id)["processes"]
    assert process["threads"][0]["call"].startswith("clock_nanosleep(")
    before = traces(service)
    with pytest.raises(Refused, match="no process of the commit can be asked about itself"):
        service.relive("eval", one.id, "1")
    with pytest.raises(Refused, match="are different services"):
        service.relive("diff", service.before.id, one.id)
    assert traces(service) == before


def test_a_commit_before_a_fatal_signal_is_asked_in_the_thread_that_held_the_lock(service):
    """ctypes.string_at keeps the interpreter's lock, so no other thread would ever get it."""
    program = """
import ctypes, signal, threading
state = {"orders": 3}
def fault():
    ctypes.string_at(0)
signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=fault).start())
while True:
    signal.pause()
"""
    capsule = service.relive.run(PYTHON, "-c", program, name="faulting")
    ready = eventually(lambda: _when_it_takes_signals(capsule.pid), "its handler")
    assert ready and service.relive.commit(capsule).id  # so the tracer is there
    os.kill(capsule.pid, signal.SIGUSR1)
    found = eventually(
        lambda: next(
            (one for one in service.relive.incidents() if one["service"] == "faulting" and one["at"]), None
        ),
        "its incident",
    )
    assert service.relive("eval", found["at"], "state['orders']")["text"] == "3"
    threads = service.relive("inspect", found["at"], "--python")["threads"]
    assert "fault" in [frame["function"] for thread in threads for frame in thread["frames"]]


def _when_it_takes_signals(pid: int) -> bool:
    """It has a handler for SIGUSR1."""
    return bool(int(procfs.status_field(pid, "SigCgt") or "0", 16) >> (signal.SIGUSR1 - 1) & 1)
