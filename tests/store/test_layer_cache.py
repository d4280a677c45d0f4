"""What was laid out for branches is looked at before it is used again: whatever was changed is laid out anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.maintenance.problems import Kind
from relive.maintenance.verify import verify
from relive.store import Store, layer_checksums

from .builders import commit

FILES = {"data/log": b"r29-4\n" * 100, "data/empty": b"", "etc/conf": b"limit=5\n"}


@pytest.fixture
def laid(store: Store) -> Callable[[], Path]:
    """The directory that the only layer of a commit is laid out in."""
    made = commit(store, files=FILES)

    def lay_out() -> Path:
        (layer,) = store.manifest(made.id).layers
        return store.files.lay_out_layer(layer)

    return lay_out


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a bit": lambda top: flip(top / "data/log"),
    "a file too many": lambda top: (top / "data/new").touch(),
    "a file too few": lambda top: (top / "etc/conf").unlink(),
    "a mode": lambda top: (top / "etc/conf").chmod(0o777),
    "an owner": lambda top: os.chown(top / "etc/conf", 7, 7),
    "an attribute": lambda top: os.setxattr(top / "etc/conf", "user.a", b"b"),
    "a link instead": lambda top: ((top / "etc/conf").unlink(), (top / "etc/conf").symlink_to("/etc/passwd")),
    "the mode of the top": lambda top: top.chmod(0o700),
    "the seal": lambda top: flip(top.parent / "seal"),
    "no seal": lambda top: (top.parent / "seal").unlink(),
    "an empty seal": lambda top: (top.parent / "seal").write_bytes(b""),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_was_changed_is_found_by_verify_and_never_given_out(
    store: Store, laid: Callable[[], Path], change: Callable[[Path], object]
) -> None:
    top = laid()
    before = contents(top)
    assert laid() == top
    assert verify(store).problems == []
    change(top)
    assert [one.kind for one in verify(store).problems] == [Kind.LAID_OUT]
    assert laid() == top
    assert contents(top) == before == FILES
    assert verify(store).problems == []


def test_repair_makes_it_anew(store: Store, laid: Callable[[], Path]) -> None:
    top = laid()
    flip(top / "data/log")
    assert [text.partition(" ")[0] for text in store.renew_derived()] == ["laid-out"]
    assert store.renew_derived() == []
    assert verify(store).problems == []
    assert contents(laid()) == FILES


def test_what_a_branch_has_mounted_stays_where_it_is_when_it_is_laid_out_anew(
    laid: Callable[[], Path],
) -> None:
    top = laid()
    with (top / "etc/conf").open("rb") as used:
        flip(top / "data/log")
        laid()
        assert used.read() == FILES["etc/conf"]
        assert Path(f"/proc/self/fd/{used.fileno()}").exists()


def test_what_the_disk_itself_changed_is_found_within_a_minute(
    store: Store, laid: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the kernel tells of the files has changed then."""
    top = laid()
    facts = layer_checksums._facts(top)
    flip(top / "data/log")
    monkeypatch.setattr(layer_checksums, "_facts", lambda _tree: facts)
    assert laid() == top
    assert contents(top) != FILES, "it was looked at a moment ago"
    assert [one.kind for one in verify(store).problems] == [Kind.LAID_OUT]
    past = time.time() - 61
    os.utime(top.parent / "seal", (past, past))
    monkeypatch.undo()
    assert contents(laid()) == FILES


@pytest.mark.parametrize("size", [0, 1, 10_000, 40_960])
def test_a_large_file_is_known_by_its_bytes_and_where_they_are(tmp_path, monkeypatch, size):
    """Holes are not read, and what is zero counts as one."""
    monkeypatch.setattr(layer_checksums, "_LARGE", 0)
    monkeypatch.setattr(layer_checksums, "_STEP", 4096)
    path = tmp_path / "file"

    def digest(*written: tuple[int, bytes]) -> str:
        path.write_bytes(b"")
        os.truncate(path, size)
        with path.open("r+b") as file:
            for at, data in written:
                file.seek(at)
                file.write(data)
        return layer_checksums._contents(tmp_path)

    digests = [digest((at, b"x")) for at in range(0, size, 1000)]
    digests += [digest(), digest((size, b"x"))]
    assert len(set(digests)) == len(digests)
    assert digest((0, bytes(size))) == digest()
