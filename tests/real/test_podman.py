"""A real container of podman: its checkpoint becomes a commit, and comes back with podman and goes on counting."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from exchange.checkpoints import FIRST

from .harness import PROGRAMS, RELIVE, Process, Refused, Relive, compiled
from .podman import Podman, why_not


@pytest.fixture(scope="module", autouse=True)
def reason() -> None:
    """Where CI promises a podman that works, its lack is a failure."""
    found = why_not()
    if found is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"podman cannot be tried: {found}")


@pytest.fixture
def podman() -> Iterator[Podman]:
    made = Podman()
    yield made
    made.close()


def ask(relive: Relive, *arguments: str | Path) -> dict[str, object]:
    done = subprocess.run(
        [RELIVE, *map(str, arguments), "--json"],
        env=relive.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    value = json.loads(done.stdout or done.stderr)
    if done.returncode != 0:
        raise Refused(value["error"], done.returncode)
    return dict(value)


def assert_counts_on(found: list[int], last: int) -> None:
    """The log comes back with the container, and may be ahead of its memory; memory that is lost would begin with 1."""
    breaks = [place for place, (a, b) in enumerate(pairwise(found), 1) if b != a + 1]
    assert len(breaks) <= 1, found
    resumed = found[breaks[0]] if breaks else found[0]
    assert resumed == found[0] == 1 or 1 < resumed <= last + 1, found


def test_a_container_goes_through_the_store_and_counts_on(
    relive: Relive, podman: Podman, tmp_path: Path
) -> None:
    """GIVEN two checkpoints of a counter, WHEN they were in the store and are restored, THEN each goes on where it was."""
    podman.start_counter("web")
    archives, counted = [], []
    for number, compression in enumerate(("zstd", "gzip")):
        archives.append(tmp_path / f"{number}.tar")
        podman.count_to("web", 5 * number + 2)
        more = ["--leave-running"] if number == 0 else []
        podman.run(
            "container", "checkpoint", "web", f"--export={archives[-1]}", f"--compress={compression}", *more
        )
        if number == 0:
            before = podman.numbers("web")
            counted.append(before[-1])
    counted.append(podman.numbers("web")[-1])
    podman.run("rm", "--force", "--time=0", "web")

    commits = [str(ask(relive, "import", archive)["id"]) for archive in archives]
    second = ask(relive, "show", commits[1])
    assert second["target"]["name"] == "web" and second["container"]["engine"] == "podman"  # type: ignore[index]
    assert second["parents"] == [commits[0]]
    with pytest.raises(Refused) as refused:
        ask(relive, "restore", commits[1])
    assert refused.value.code == "restore-unsupported"

    for commit, suffix, last in zip(commits, (".tar.gz", ".tar.zst"), counted, strict=True):
        back = tmp_path / f"back{suffix}"
        ask(relive, "export", commit, back, "--format", "podman")
        podman.run("container", "restore", f"--import={back}")
        assert_counts_on(podman.count_to("web", last + 2), last)
        assert podman.state("web") == "running"
        podman.run("rm", "--force", "--time=0", "web")


@pytest.mark.skipif(shutil.which("checkpointctl") is None, reason="needs checkpointctl (Debian 13 has it)")
def test_checkpointctl_shows_what_is_written(
    relive: Relive, start: Callable[..., Process], tmp_path: Path
) -> None:
    """Both kinds: a container's, and that of a process, which is for looking into only."""
    program = compiled(PROGRAMS / "counter.c", tmp_path, "-static", "-nostdlib", "-fno-stack-protector")
    process = start(program)
    taken = [ask(relive, "import", FIRST)["id"], ask(relive, "commit", f"pid:{process.pid}")["id"]]
    for number, (commit, name) in enumerate(zip(taken, ("counter", f"pid:{process.pid}"), strict=True)):
        goal = tmp_path / f"{number}.tar"
        ask(relive, "export", str(commit), goal, "--format", "checkpointctl")
        for command in (["show"], ["inspect", "--all"], ["memparse"]):
            done = subprocess.run(
                ["checkpointctl", *command, goal], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert command == ["memparse"] or name in done.stdout
