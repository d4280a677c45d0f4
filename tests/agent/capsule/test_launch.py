"""A start that fails leaves nothing; one that does not is the current life. No agent is started: it is played."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.agent.capsule import injection
from relive.agent.capsule import launch as tested
from relive.agent.capsule.injection import remove_rings
from relive.agent.capsule.launch import launch
from relive.config import Settings
from relive.errors import CapsuleExists, CapsuleStartFailed, DiskFull, HostIncapable, PermissionMissing
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths

SPEC = CapsuleSpec(
    name="pay", command=["serve"], directory="/", environment={}, policy=Policy(at_start=False)
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what is started belongs to root")
Begin = Callable[[LifePaths], None]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Begin], None]:
    """Have the agent do this when it is started."""

    def play(begin: Begin) -> None:
        def start(_settings: Settings, paths: LifePaths, *_: Any, **__: Any) -> None:
            begin(paths)

        monkeypatch.setattr(tested, "start_agent", start)

    return play


def writes_its_state(paths: LifePaths) -> None:
    told = {"life": paths.directory.name, "init": 1, "init_started": 1, "root": 1, "root_inside": 2}
    facts = CapsuleFacts.model_validate({"spec": SPEC, **told, "started_wall_ns": 1, "points": []})
    paths.state.write_text(facts.model_dump_json())


def fails(_: LifePaths) -> None:
    raise CapsuleStartFailed("no such program")


def lives(settings: Settings) -> list[Path]:
    return [path for path in (settings.capsules / "pay").glob("*") if path.is_dir() and not path.is_symlink()]


def test_what_was_started_is_the_current_life(settings: Settings, agent) -> None:
    agent(writes_its_state)
    first, second = launch(settings, SPEC), launch(settings, SPEC)
    assert first.facts.life != second.facts.life
    assert (settings.capsules / "pay" / "current").readlink() == Path(second.facts.life)
    assert first.paths.rings.resolve().is_dir() and first.paths.io.is_dir()
    for one in (first, second):
        remove_rings(one.paths)


def test_a_start_that_fails_leaves_nothing(settings: Settings, agent) -> None:
    rings: list[Path] = []

    def looks_and_fails(paths: LifePaths) -> None:
        rings.append(paths.rings.resolve())
        assert rings[0].is_dir()
        fails(paths)

    agent(looks_and_fails)
    with pytest.raises(CapsuleStartFailed):
        launch(settings, SPEC)
    assert lives(settings) == [] and not rings[0].exists()
    assert not (settings.capsules / "pay" / "current").exists()


def test_a_service_that_runs_all_the_same_keeps_its_life(settings: Settings, agent) -> None:
    """The agent was lost after it had started the service."""

    def both(paths: LifePaths) -> None:
        writes_its_state(paths)
        fails(paths)

    agent(both)
    with pytest.raises(CapsuleStartFailed):
        launch(settings, SPEC)
    (life,) = lives(settings)
    assert (life / "state.json").exists()
    remove_rings(LifePaths(life))


def test_what_is_done_before_the_start_may_fail(settings: Settings, agent) -> None:
    agent(writes_its_state)
    with pytest.raises(CapsuleStartFailed):
        launch(settings, SPEC, prepare=fails)
    assert lives(settings) == []


def test_a_name_that_runs_is_refused_before_its_port_is_tried(
    settings: Settings, agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port is taken then, which would hide the reason."""
    running: Any = SimpleNamespace(facts=SimpleNamespace(spec=SPEC), lead=77)
    monkeypatch.setattr(tested, "living_capsules", lambda _: [running])
    monkeypatch.setattr(tested, "check_port", lambda _: pytest.fail("its port was tried"))
    with pytest.raises(CapsuleExists) as refused:
        launch(settings, SPEC.model_copy(update={"listen": ("127.0.0.1", 1)}))
    assert refused.value.cause == "its service is process 77"
    assert not settings.capsules.exists()


def test_without_root_that_is_said_before_anything_else(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(tested, "living_capsules", lambda _: pytest.fail("it looked"))
    with pytest.raises(PermissionMissing):
        launch(settings, SPEC)


@pytest.mark.parametrize(
    ("options", "error"),
    [("ro", HostIncapable), *((f"nr_inodes={most}", DiskFull) for most in range(1, 8))],
)
def test_a_disk_that_takes_no_more_is_told_and_gets_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    options: str,
    error: type[HostIncapable],
) -> None:
    """The last step before the agent is its log; each step before it needs a directory."""
    in_memory = tmp_path_factory.mktemp("memory")
    monkeypatch.setattr(injection, "IN_MEMORY", in_memory)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", settings.home], check=True)
    try:
        with pytest.raises(error) as told:
            launch(settings, SPEC)
        assert str(settings.home) in (told.value.cause or "")
        assert not list(in_memory.iterdir())
        assert not [one for one in settings.home.rglob("*") if one != settings.capsules]
    finally:
        subprocess.run(["umount", settings.home], check=True)
