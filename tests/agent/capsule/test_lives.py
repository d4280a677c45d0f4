"""Which lives there are, which of them runs, and which of its processes is the service."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.agent.capsule.lives import Capsule, all_lives, find_capsule, living_capsules
from relive.config import Settings
from relive.errors import TargetUnknown
from relive.kernel import procfs
from relive.model.capsule import CapsuleFacts, CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths

INIT, ROOT = 1_000_001, 1_000_002  # no process has such a number


def facts(**more: object) -> CapsuleFacts:
    spec = CapsuleSpec(
        name="pay", command=["serve"], directory="/", environment={}, policy=Policy(at_start=False)
    )
    told: dict[str, object] = {
        **{"spec": spec, "life": "1", "init": INIT, "init_started": 5, "root": ROOT, "root_inside": 2},
        **{"started_wall_ns": 1, "points": []},
    }
    return CapsuleFacts.model_validate(told | more)


@pytest.fixture
def capsule(tmp_path: Path) -> Capsule:
    return Capsule(LifePaths(tmp_path), facts())


@pytest.mark.parametrize(
    ("children", "lead", "strays"),
    [
        pytest.param([ROOT], ROOT, [], id="the service"),
        pytest.param([ROOT, 7], ROOT, [7], id="the service and a daemon"),
        pytest.param([7], 7, [], id="the daemon that it left"),
        pytest.param([7, 8], ROOT, [7, 8], id="two daemons"),
        pytest.param([], ROOT, [], id="nobody"),
    ],
)
def test_the_one_daemon_that_is_left_is_the_service(
    capsule: Capsule, monkeypatch: pytest.MonkeyPatch, children: list[int], lead: int, strays: list[int]
) -> None:
    monkeypatch.setattr(procfs, "is_same_process", lambda *_: True)
    monkeypatch.setattr(procfs, "children_of", lambda pid: children if pid == INIT else [])
    monkeypatch.setattr(procfs, "exists", lambda _: True)
    assert (capsule.lead, capsule.strays) == (lead, strays)


def test_a_zombie_main_thread_is_no_end_while_others_live(
    capsule: Capsule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procfs, "is_same_process", lambda *_: True)
    monkeypatch.setattr(procfs, "children_of", lambda _: [7, 8])
    monkeypatch.setattr(procfs, "exists", lambda _: False)
    monkeypatch.setattr(procfs, "threads_of", lambda pid: [7, 9] if pid == 7 else [8])
    assert capsule.heads() == [7]


def test_a_containers_process_1_is_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "is_same_process", lambda *_: True)
    monkeypatch.setattr(procfs, "children_of", lambda _: [7, 8])
    assert Capsule(LifePaths(tmp_path), facts(root=INIT)).heads() == [INIT]


def test_one_that_has_ended_has_no_processes(capsule: Capsule) -> None:
    assert not capsule.is_alive and capsule.heads() == [] and capsule.lead == ROOT


@pytest.mark.parametrize(
    ("noted", "status", "with_command"),
    [
        (None, None, False),
        ("", None, False),
        ("256", 256, False),
        ("256\n", 256, False),
        ("9 owner\n", 9, True),
    ],
)
def test_how_it_ended_is_what_process_1_could_note(
    capsule: Capsule, noted: str | None, status: int | None, with_command: bool
) -> None:
    if noted is not None:
        capsule.paths.status.write_text(noted)
    assert (capsule.wait_status, capsule.ended_with_its_command) == (status, with_command)


def test_it_does_what_would_be_started_by_the_same_words(capsule: Capsule) -> None:
    spec = capsule.facts.spec
    assert capsule.does_what(spec.model_copy(update={"environment": {"A": "b"}, "memory": 1}))
    for changed in ({"command": ["other"]}, {"user": "nobody"}, {"directory": "/tmp"}, {"name": "x"}):
        assert not capsule.does_what(spec.model_copy(update=changed))


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    """With two lives of a name, the later of which runs; with a torn life, and the link to the one that runs."""
    settings = Settings(home=tmp_path)
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    here = {"init": os.getpid(), "init_started": stat.start_ticks, "started_wall_ns": 3, "life": "b"}
    for life, made in {"z": facts(started_wall_ns=2, life="a"), "a": facts(**here)}.items():
        directory = settings.capsules / "pay" / life
        directory.mkdir(parents=True)
        (directory / "state.json").write_text(made.model_dump_json())
    (settings.capsules / "pay" / "torn").mkdir()
    (settings.capsules / "pay" / "torn" / "state.json").write_text('{"spec"')
    (settings.capsules / "pay" / "current").symlink_to("a")
    return settings


def test_all_lives_are_told_in_the_order_of_their_starts(home: Settings) -> None:
    assert [one.facts.life for one in all_lives(home)] == ["a", "b"]
    assert [one.facts.life for one in living_capsules(home)] == ["b"]


def test_a_name_means_the_life_that_runs(home: Settings) -> None:
    assert find_capsule(home, "pay").facts.life == "b"
    with pytest.raises(TargetUnknown) as refused:
        find_capsule(home, "other")
    assert "'other'" in refused.value.message and refused.value.remedy is not None
