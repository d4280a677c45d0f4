"""What cannot be followed or kept is said; the service goes on, whatever befalls Relive."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs
from relive.sandbox.changed_files import LaterFiles
from waiting import eventually

from .harness import Commit, Refused, Relive
from .likeness import differences, likeness
from .obedient import HELPERS, Obedient, seen_in


@pytest.fixture
def narrow(relive: Relive) -> Iterator[Path]:
    """Where Relive keeps journals and bases is a file system of 2 MB."""
    directory = relive.home / "capsules"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], check=True)
    yield directory
    relive.close()
    subprocess.run(["umount", directory], check=True)


def left_out(commit: Commit) -> str:
    return "\n".join(line for layer in commit.manifest.layers for line in layer.left_out)


def test_a_full_disk_is_never_the_services(relive: Relive, narrow: Path, place: Path) -> None:
    for number in range(8):
        (place / f"a{number}").write_bytes(bytes([number]) * 400_000)
    service = Obedient(relive)
    service(HELPERS + f"\nd = Path({str(place)!r})")
    first = relive.commit(service.capsule)
    service("for n in range(8): w(d/f'a{n}', 'new')")
    assert {path.read_text() for path in place.iterdir()} == {"new"}
    fill = narrow / "fill"
    descriptor = os.open(fill, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while os.write(descriptor, bytes(100)):
            pass
    os.close(descriptor)
    service("for n in range(2000): w(d/f'b{n}', 'new')")
    assert len(list(place.iterdir())) == 2008
    fill.unlink()
    service("w(d/'c', 'new')")
    second = relive.commit(service.capsule)
    assert "changes are not known" in left_out(second)
    assert str(place / "c") in {
        layer.point.rstrip("/") + "/" + entry.path
        for layer in second.manifest.layers
        for entry in layer.entries
    }
    missing = LaterFiles.of(relive.settings, first.manifest)
    missing.read()
    assert {one.path: one.reason for one in missing.missing if one.path.startswith(str(place))}


@pytest.fixture
def full(relive: Relive, place: Path) -> Iterator[Path]:
    """A file system of 2 MB, for the service."""
    directory = place / "full"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", directory], check=True)
    yield directory
    relive.close()
    subprocess.run(["umount", directory], check=True)


def test_a_full_disk_of_the_services_own(relive: Relive, full: Path) -> None:
    """It is told of it as ever, is committed and comes back; the branch has room of its own."""
    service = Obedient(relive)
    service(HELPERS + f"\nd = Path({str(full)!r})\nw(d/'old', 'old'); f = open(d/'fill', 'wb', 0)")
    write = "try:\n    while f.write(bytes(4096)): pass\nexcept OSError as error: said = error.errno"
    assert service(write) == errno.ENOSPC
    commit, then = relive.commit(service.capsule), likeness(full)
    assert not left_out(commit)
    service("(d/'fill').unlink(); f.truncate(0); w(d/'old', 'new'); w(d/'more', 'new')")
    branch = relive.restore(commit, service.port)
    found = seen_in(branch, full)
    for one in (then, found):
        one.pop(str(full))  # a mount point itself is in no commit
    assert not differences(then, found)
    assert service("w(d/'old', 'x' * 100_000); said = f.write(bytes(100))", branch.ports[service.port]) == 100
    assert {path.name: path.read_text() for path in full.iterdir()} == {"old": "new", "more": "new"}


def test_a_process_1_of_another_version_is_not_guessed_at(relive: Relive, place: Path) -> None:
    """After an upgrade a new agent meets an old process 1, or the other way round: what they share has a number."""
    (place / "old").write_text("old")
    service = Obedient(relive)
    service(HELPERS + f"\nd = Path({str(place)!r})")
    commit = relive.commit(service.capsule)
    control = relive.home / "capsules" / "service" / service.capsule.life / "files" / "control"
    assert struct.unpack_from("=I", control.read_bytes(), 40) == (1,)

    def say(version: int) -> None:
        with control.open("r+b") as file:
            file.seek(40)
            file.write(struct.pack("=I", version))

    say(7)
    service("w(d/'old', 'new'); w(d/'new', 'new')")
    for words in (["commit", "service"], ["restore", commit.id]):
        with pytest.raises(Refused) as refused:
            relive(*words)
        assert refused.value.code == "capsule-version-unknown" and "version 7" in refused.value.message
    assert service("said = (d/'old').read_text()") == "new"
    say(1)
    after = relive.commit(service.capsule)
    assert relive.restore(commit).exec("cat", str(place / "old")) == "old"
    assert relive.restore(after).exec("cat", str(place / "old"), str(place / "new")) == "newnew"


def test_an_agent_that_is_killed_misses_nothing(relive: Relive, place: Path) -> None:
    service = Obedient(relive)
    service(HELPERS + f"\nd = Path({str(place)!r})\nf = open(d/'open', 'w')")
    relive.commit(service.capsule)
    for number in range(3):
        pid = int(
            (relive.home / "capsules" / "service" / service.capsule.life / "agent.pid").read_text().split()[0]
        )
        os.kill(pid, signal.SIGKILL)
        service(
            f"w(d/'a{number}', 'x'); f.write('x'); f.flush(); (d/'moved').mkdir(exist_ok=True); w(d/'moved/m{number}', 'x')"
        )
        # Not its main thread alone: until the last one has ended, its socket takes connections that nobody answers.
        eventually(lambda p=pid: (found := procfs.read_stat(p)) is None or found.has_ended, "it ends")
        then = likeness(place)
        commit = relive.commit(service.capsule)
        service(f"w(d/'a{number}', 'later'); shutil.rmtree(d/'moved')")
        branch = relive.restore(commit)
        assert not differences(then, seen_in(branch, place))
        branch.stop()
