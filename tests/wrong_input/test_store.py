"""A store that is damaged, too new, or on a full disk: nothing of it is used, and what is whole stays usable."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.model.commit import CommitId, Manifest
from relive.store import Store
from relive.store.manifests import canonical
from relive.store.objects import hash_bytes
from support.forker import Forker

from .conftest import Home, Program, new_home


@pytest.fixture(autouse=True)
def _unharmed(service: Program) -> Iterator[None]:
    yield
    service.assert_unharmed()


def good(home: Home) -> CommitId:
    return CommitId((home.store / "tags" / "good").read_text().strip())


def pack(home: Home) -> Path:
    """The pack that holds the good commit's pages and small images: the largest."""
    return max((home.store / "packs").iterdir(), key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def test_a_flipped_byte_is_found_and_nothing_restored(fresh_home: Home):
    flip(pack(fresh_home))
    error = fresh_home.refused("object-corrupt", 7, "restore", "good")
    assert "damaged" in error["message"] and "relive log" in error["remedy"]
    assert fresh_home.branches() == []


def test_a_missing_pack(fresh_home: Home):
    pack(fresh_home).unlink()
    fresh_home.refused("object-missing", 7, "restore", "good")
    assert fresh_home.branches() == []


def test_a_placement_of_a_host_that_is_not_trusted(fresh_home: Home):
    """As if the store had been copied here without its keys."""
    (fresh_home.path / "keys" / "signing.key").write_bytes(bytes(32))
    error = fresh_home.refused("signature-invalid", 7, "restore", "good")
    assert "relive key trust" in error["remedy"]
    assert fresh_home.branches() == []


@pytest.mark.parametrize("damage", ["flipped", "empty", "no JSON"])
def test_a_damaged_manifest(fresh_home: Home, damage: str):
    path = fresh_home.store / "manifests" / f"{good(fresh_home)}.json"
    if damage == "flipped":
        flip(path)
    else:
        path.chmod(0o600)
        path.write_bytes(b"" if damage == "empty" else b"{")
    fresh_home.refused("object-corrupt", 7, "restore", "good")
    fresh_home.refused("object-corrupt", 7, "show", "good")


@pytest.mark.parametrize(
    "command", [("log",), ("commit", "pid:{pid}"), ("restore", "good"), ("tag", "good", "x")]
)
@pytest.mark.parametrize("text", ['{"version": 99}', "{}", "junk"])
def test_a_store_of_another_version_is_left_alone(
    fresh_home: Home, service: Program, command: tuple[str, ...], text: str
):
    (fresh_home.store / "format").chmod(0o600)
    (fresh_home.store / "format").write_text(text)
    words = [word.format(pid=service.pid) for word in command]
    fresh_home.refused("store-version-unknown", 7, *words)


@pytest.mark.parametrize(
    "ref", ["nothing", "0000", "good@{1}", "pid:1@{1 minute ago}", "x@{yesterday}", "", "@"]
)
def test_a_reference_that_names_nothing(home: Home, ref: str):
    home.refused("ref-unknown", 3, "restore", ref)


def test_an_id_that_fits_several(fresh_home: Home):
    store = Store(fresh_home.store)
    manifest = store.manifest(good(fresh_home)).model_copy(update={"images": []})
    seen: dict[str, Manifest] = {}
    for number in range(100_000):
        other = manifest.model_copy(update={"capture": f"{number:032x}"})
        prefix = hash_bytes(canonical(other))[:4]
        if prefix in seen and seen[prefix] is not other:
            for one in (other, seen[prefix]):
                store.add(one)
            break
        seen[prefix] = other
    store.close()
    error = fresh_home.refused("ref-ambiguous", 3, "restore", prefix)
    assert error["cause"].count(prefix) == 2


@pytest.fixture
def small_home(service: Program, forker: Forker) -> Iterator[Home]:
    """On a file system of its own, that has room for one commit of the service and not for two."""
    with new_home(forker) as made:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "relive-test", made.path], check=True)
        try:
            made.ask("commit", f"pid:{service.pid}", "--tag", "good")
            yield made
        finally:
            subprocess.run(["umount", "--lazy", made.path], check=True)


@pytest.mark.parametrize("free", [1 << 18, 1 << 20], ids=["256 KiB left", "1 MiB left"])
def test_a_disk_that_is_nearly_full(small_home: Home, service: Program, free: int):
    """GIVEN a disk that is full WHEN a service is committed THEN it says so, and what was stored before still lives."""
    filler = small_home.path / "filler"
    facts = os.statvfs(small_home.path)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, facts.f_bavail * facts.f_frsize - free)
    error = small_home.refused("disk-full", 4, "commit", f"pid:{service.pid}")
    assert "No space left on device" in error["cause"] or "Img trimmed" in error["cause"]
    service.assert_unharmed()
    filler.unlink()
    branch = small_home.ask("restore", "good")["id"]
    assert [one["id"] for one in small_home.branches()] == [branch]
    small_home.ask("stop", branch)
    small_home.ask("commit", f"pid:{service.pid}")


def test_a_disk_without_a_byte_left(small_home: Home, service: Program):
    facts = os.statvfs(small_home.path)
    with (small_home.path / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, facts.f_bavail * facts.f_frsize)
    small_home.refused("disk-full", 4, "commit", f"pid:{service.pid}")
    small_home.refused("disk-full", 4, "run", "--detach", "--every", "never", "--", "sleep", "7319")
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert b"sleep\0007319\0" not in running, "a service whose start failed does not run"
