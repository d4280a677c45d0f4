"""A real container of podman: its checkpoint becomes a commit, and comes back with podman and goes on counting."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from containers.archive.checkpoints import FIRST
from relive.store import Store

from .harness import PROGRAMS, TOOLS, Process, Relive, compiled
from .podman import Podman

_checkpointctl = TOOLS / "newer" / "checkpointctl"


@pytest.fixture
def podman(podman_works: None) -> Iterator[Podman]:
    made = Podman()
    yield made
    made.close()


def test_a_container_goes_through_the_store_and_counts_on(
    relive: Relive, podman: Podman, tmp_path: Path
) -> None:
    """GIVEN two checkpoints of a counter, WHEN they were in the store and are restored, THEN each goes on where it was."""
    podman.start_counter("web")
    first, second = tmp_path / "first.tar", tmp_path / "second.tar"
    podman.count_to("web", 2)
    podman.run("container", "checkpoint", "web", f"--export={first}", "--compress=gzip", "--leave-running")
    counted = podman.numbers("web")[-1:]
    podman.count_to("web", counted[0] + 2)
    podman.run("container", "checkpoint", "web", f"--export={second}")
    counted += podman.numbers("web")[-1:]
    podman.run("rm", "--force", "--time=0", "web")

    commits = [relive("import", str(archive))["id"] for archive in (first, second)]
    with contextlib.closing(Store(relive.settings.store)) as store:
        assert store.manifest(commits[1]).parents == commits[:1]
        assert store.get(commits[1]).new_bytes < store.get(commits[0]).new_bytes / 4

    for commit, suffix, last in zip(commits, (".tar.gz", ".tar.zst"), counted, strict=True):
        back = tmp_path / f"back{suffix}"
        relive("export", commit, str(back), "--format=podman")
        began = datetime.now(UTC)
        podman.run("container", "restore", f"--import={back}")
        found = podman.count_to("web", last + 1, since=began)
        assert 1 < found[0] <= last + 1  # a counter whose memory was lost would begin with 1
        assert found == list(range(found[0], found[0] + len(found)))
        assert podman.state("web")["Status"] == "running"
        podman.run("rm", "--force", "--time=0", "web")


@pytest.mark.skipif(not _checkpointctl.exists(), reason="needs checkpointctl: scripts/setup/newer.sh")
def test_checkpointctl_shows_what_is_written(
    relive: Relive, start: Callable[..., Process], tmp_path: Path
) -> None:
    """Both kinds: a container's, and that of a process, which is for looking into only; with what it finds in their memory."""
    program = compiled(PROGRAMS / "counter.c", tmp_path, "-static", "-nostdlib", "-fno-stack-protector")
    process = start(program)
    commits = {
        ("counter", "/bin/counter"): relive("import", str(FIRST))["id"],
        (f"pid:{process.pid}", str(program)): relive("commit", f"pid:{process.pid}")["id"],
    }
    for (name, command), commit in commits.items():
        target = tmp_path / f"{commit}.tar"
        relive("export", commit, str(target), "--format=checkpointctl")

        def said(*words: str, target: Path = target) -> str:
            done = subprocess.run(
                [_checkpointctl, *words, target], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert name in said("show")
        found = json.loads(said("inspect", "--all", "--format=json"))[0]
        assert (found["container_name"], found["process_tree"]["cmdline"].strip()) == (name, command)
        row = said("memparse").splitlines()[-2].split("|")
        assert row[2].strip() == "counter" and not row[3].strip().startswith("0 ")
