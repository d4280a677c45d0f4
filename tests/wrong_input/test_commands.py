"""Requests that cannot be meant, and a host that lacks something."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.waiting import eventually

from .conftest import TOOLS, Home, Program

MEMORY = Path("/sys/fs/cgroup")  # of both versions


@pytest.fixture(scope="module")
def capsule(home: Home) -> Iterator[str]:
    home.ask("run", "--detach", "--every", "never", "--name", "taken", "--", "sleep", "1000")
    yield "taken"
    home.ask("stop", "taken")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "options",
    [
        ("--every", "sometimes"),
        ("--every", "-1s"),
        ("--every", "0s"),
        ("--memory", "much"),
        ("--memory", "-5M"),
        ("--name", "a/b"),
        ("--name", ".."),
        ("--upstream", "8001"),
        ("--listen", "nowhere", "--upstream", "8001"),
        ("--listen", "127.0.0.1:99999", "--upstream", "8001"),
        ("--user", "nobody-of-that-name"),
    ],
    ids=" ".join,
)
def test_options_of_run_that_cannot_be_meant(home: Home, options: tuple[str, ...]):
    home.refused("usage", 2, "run", *options, "--", "sleep", "1000")
    assert not list((home.path / "capsules").glob("sleep/*/state.json"))


def test_a_port_that_is_taken(home: Home, taken_port: int):
    error = home.refused(
        "usage", 2, "run", "--listen", f"127.0.0.1:{taken_port}", "--upstream", "1", "--", "sleep", "1000"
    )
    assert str(taken_port) in error["message"] and "--listen" in error["remedy"]


def test_a_name_that_is_taken(home: Home, capsule: str):
    error = home.refused("capsule-exists", 9, "run", "--name", capsule, "--", "sleep", "1000")
    assert "--name" in error["remedy"]


def test_of_two_starts_of_one_name_at_once_one_is_refused(home: Home):
    words = ("run", "--detach", "--every", "never", "--name", "twin", "--", "sleep", "1000")
    with ThreadPoolExecutor(2) as pool:  # processes of their own: the forker runs one after the other
        done = list(pool.map(lambda _: home.command(*words, under=("env",)), range(2)))
    assert sorted(one.returncode for one in done) == [0, 9]
    assert [one["id"] for one in home.ask("ps") if one["id"] == "twin"] == ["twin"]
    home.ask("stop", "twin")


def test_a_service_that_does_not_heed_stop_is_killed_after_the_time(home: Home):
    deaf = "trap '' TERM; echo deaf; while :; do sleep 1; done"
    home.ask("run", "--detach", "--every", "never", "--name", "deaf", "--", "sh", "-c", deaf)
    eventually(lambda: home.ask("logs", "deaf")["stdout"] == "deaf\n", "it is deaf")
    said = home.command("stop", "--timeout", "1.2", "deaf")
    assert (said.returncode, said.stdout) == (0, "deaf\n")
    assert "deaf was asked to end (SIGTERM); it is killed unless it ends within 1.2 s." in said.stderr
    assert "deaf has not ended 1.2 s after SIGTERM; what is left of it is killed." in said.stderr
    assert not [one for one in home.ask("ps") if one["id"] == "deaf"]


def test_a_command_that_does_not_exist(home: Home):
    error = home.refused("capsule-start-failed", 9, "run", "--", "/no/such/program")
    assert "/no/such/program" in error["message"]


def test_a_command_that_cannot_be_executed(home: Home):
    groups = [*MEMORY.rglob("relive/passwd-*")]
    error = home.refused("capsule-start-failed", 9, "run", "--", "/etc/passwd")
    assert "executable" in error["remedy"]
    assert [*MEMORY.rglob("relive/passwd-*")] == groups


@pytest.mark.parametrize(
    "publish", ["x", "127.0.0.1:1:2:3:4", "0:0:0", "127.0.0.1:99999:80", "127.0.0.1:x:80"]
)
def test_a_publication_that_cannot_be_meant(home: Home, publish: str):
    home.refused("usage", 2, "restore", "good", "--publish", publish)
    assert home.branches() == []


@pytest.mark.parametrize("policy", ["perhaps", "no-kind:pass", "query:", ""])
def test_a_policy_for_misses_that_is_none(home: Home, policy: str):
    error = home.refused("usage", 2, "replay", "77", "--on-miss", policy)
    assert repr(policy) in error["message"]


def test_a_published_port_that_is_taken(home: Home, taken_port: int):
    error = home.refused("usage", 2, "restore", "good", "--publish", f"127.0.0.1:{taken_port}:80")
    assert str(taken_port) in error["message"]
    assert home.branches() == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("branch-unknown", ("stop", "nobody")),
        ("branch-unknown", ("exec", "nobody", "--", "true")),
        ("incident-unknown", ("replay", "77")),
        ("ref-unknown", ("show", "nobody")),
        ("ref-unknown", ("tag", "nobody", "x")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_names_that_stand_for_nothing(home: Home, code: str, words: tuple[str, ...]):
    home.refused(code, 3, *words)


@pytest.mark.parametrize("name", ["RELIVE_KEEP", "RELIVE_COMMIT_LIMIT"])
@pytest.mark.parametrize("value", ["0", "-1", "some"])
def test_a_setting_that_cannot_be(home: Home, name: str, value: str):
    error = home.refused("config-invalid", 2, "log", **{name: value})
    assert value in error["message"]


def test_without_tools(home: Home, service: Program, tmp_path: Path):
    for words in (("commit", f"pid:{service.pid}"), ("run", "--", "sleep", "1000"), ("restore", "good")):
        error = home.refused("tool-missing", 4, *words, RELIVE_TOOLS=str(tmp_path))
        assert "make setup" in error["remedy"]
    service.assert_unharmed()


@pytest.mark.parametrize("tool", ["criu", "relive-watchdog"])
def test_a_tool_that_cannot_be_executed(home: Home, service: Program, tmp_path: Path, tool: str):
    tools = tmp_path / "tools"
    shutil.copytree(TOOLS, tools)
    (tools / tool).chmod(0o600)
    home.refused("tool-missing", 4, "commit", f"pid:{service.pid}", RELIVE_TOOLS=str(tools))
    service.assert_unharmed()
