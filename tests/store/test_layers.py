"""What a capture scans of a directory, and what a layer laid out from it looks like: the same tree, in every respect.

Covers ``checkpoint.file_layers`` (scanning, copying) and ``store.layer_cache`` (laying out) against each other.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.checkpoint import file_layers
from relive.checkpoint.file_layers import LayerScanner
from relive.model.commit import EntryKind, Layer, LayerKind
from relive.store import Staging, Store

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes and trusted attributes")


@dataclass
class Round:
    """A directory, a scanner of it and a store, through which it is brought back."""

    top: Path
    scanner: LayerScanner
    store: Store
    copied: int = 0
    staged: list[Staging] = field(default_factory=list)

    def capture(self, **options: Any) -> Layer:
        """Scan and store, as a commit does."""
        staging = self.store.stage()
        self.staged.append(staging)  # small files are read where they lie
        scanned = self.scanner.scan(staging.files, **options)
        self.copied = sum(content is not None and content.object is None for _, content in scanned)
        entries = []
        for entry, content in scanned:
            if content is not None and content.object is None:
                assert content.copy is not None
                content.object = self.store.ingest_file(content.copy, None, content.part)
                content.copy = content.part = None
            name = content.object if content is not None else None
            entries.append(entry.model_copy(update={"object": name}))
        layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=entries)
        return Layer.model_validate_json(layer.model_dump_json())

    def back(self, **options: Any) -> Path:
        return self.store.files.lay_out_layer(self.capture(**options))


@contextlib.contextmanager
def new_round(directory: Path) -> Iterator[Round]:
    top = directory / "upper"
    top.mkdir()
    store = Store(directory / "store")
    made = Round(top, LayerScanner(top), store)
    yield made
    for staging in made.staged:
        staging.discard()
    store.close()


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Round]:
    with new_round(tmp_path) as made:
        yield made


def picture(top: Path) -> dict[bytes, dict[str, Any]]:
    """Everything about a tree that a service could notice, by the bytes of its paths; the top itself aside."""
    found = {}
    for directory, below, files in os.walk(os.fsencode(top)):
        for name in below + files:
            path = os.path.join(directory, name)  # noqa: PTH118 - bytes
            facts = os.lstat(path)
            seen: dict[str, Any] = {
                "mode": facts.st_mode,
                "owner": (facts.st_uid, facts.st_gid),
                "mtime_ns": facts.st_mtime_ns,
                "device": facts.st_rdev,
            }
            if stat.S_ISLNK(facts.st_mode):
                seen["link"] = os.readlink(path)
            else:
                seen["attributes"] = {
                    attribute: os.getxattr(path, attribute, follow_symlinks=False)
                    for attribute in os.listxattr(path, follow_symlinks=False)
                }
            if stat.S_ISREG(facts.st_mode):
                seen["content"] = Path(os.fsdecode(path)).read_bytes()
            found[os.path.relpath(path, os.fsencode(top))] = seen
    return found


def set_back(top: Path, seconds: float = 60.0) -> None:
    """Make everything look as if it had been changed long ago; change times cannot be set, so time is moved instead."""
    past = time.time_ns() - int(seconds * 1e9)
    for path in top.rglob("*"):
        os.utime(path, ns=(past, past), follow_symlinks=False)


@pytest.fixture
def later(monkeypatch):
    """What is copied from now on counts as copied a minute from now, far beyond the clock's grain."""
    monkeypatch.setattr(
        file_layers.time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + 60 * 10**9
    )


# -- kinds of entries --------------------------------------------------------------------------------------------------


def file(path: Path) -> None:
    path.write_bytes(b"content\0\xff")


def empty_file(path: Path) -> None:
    path.touch()


def large_file(path: Path) -> None:
    path.write_bytes(os.urandom(300_000))


def unreadable_file(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)


def setuid_file_of_another_user(path: Path) -> None:
    path.write_bytes(b"x")
    os.chown(path, 1234, 5678)
    path.chmod(0o6755)


def file_with_attributes(path: Path) -> None:
    path.write_bytes(b"x")
    os.setxattr(path, "user.colour", b"blue\0\xff")
    os.setxattr(path, "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))


def file_with_an_empty_attribute(path: Path) -> None:
    path.write_bytes(b"x")
    os.setxattr(path, "user.empty", b"")


def file_from_before_1970(path: Path) -> None:
    path.write_bytes(b"x")
    os.utime(path, ns=(-(10**15) + 1, -(10**15) + 1))


def sparse_file(path: Path) -> None:
    with path.open("wb") as sparse:
        sparse.truncate(1 << 20)
        sparse.seek(1 << 19)
        sparse.write(b"in the middle")


def link(path: Path) -> None:
    path.symlink_to("some/where")


def dangling_link_of_another_user(path: Path) -> None:
    path.symlink_to(b"\xff\xfe nowhere".decode(errors="surrogateescape"))
    os.lchown(path, 12, 34)


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def directory(path: Path) -> None:
    path.mkdir(mode=0o700)


def sticky_directory_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "below").write_bytes(b"x")
    os.setxattr(path, "user.colour", b"red")
    os.chown(path, 1, 2)
    path.chmod(0o3777)


def opaque_directory(path: Path) -> None:
    path.mkdir()
    os.setxattr(path, "trusted.overlay.opaque", b"y")
    (path / "new").write_bytes(b"x")


def deep_directory(path: Path) -> None:
    (path / "a" / "b" / "c").mkdir(parents=True)
    (path / "a" / "b" / "c" / "d").write_bytes(b"x")


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o620)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        directory = os.open(path.parent, os.O_RDONLY)
        bound.bind(f"/proc/self/fd/{directory}/s")
        os.close(directory)
    (path.parent / "s").rename(path)
    path.chmod(0o777)


KINDS = [
    *(
        file,
        empty_file,
        large_file,
        unreadable_file,
        setuid_file_of_another_user,
        file_with_attributes,
        file_with_an_empty_attribute,
    ),
    *(file_from_before_1970, sparse_file, link, dangling_link_of_another_user, whiteout, directory),
    *(sticky_directory_with_a_file, opaque_directory, deep_directory, pipe, unix_socket),
]


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_it_comes_back_in_every_respect(around, make):
    make(around.top / "it")
    if make is not file_from_before_1970:
        set_back(around.top)
    tree = around.back()
    assert picture(tree) == picture(around.top)


NAMES = [
    *(
        b"a b",
        b"new\nline",
        b"tab\t",
        b"\xff\xfe",
        "ü".encode(),
        "\u2028".encode(),
        b"back\\slash",
        b"\\xff",
        b"-rf",
        b"'",
        b'"',
    ),
    *(b"...", b"a" * 255, b"\x01", "é".encode("latin-1"), b"~", b"*", b"name,with:colon"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("make", [file, directory, link], ids=lambda make: make.__name__)
def test_any_name_comes_back(around, name, make):
    """Also one whose bytes are no UTF-8: a manifest is JSON, and escapes them."""
    make(around.top / os.fsdecode(name))
    assert picture(around.back()) == picture(around.top)


def test_all_of_it_together_comes_back(around):
    for number, make in enumerate(KINDS):
        make(around.top / f"{number}")
    for name in NAMES:
        file(around.top / os.fsdecode(name))
    assert picture(around.back()) == picture(around.top)


def test_the_opaque_mark_is_a_fact_and_no_attribute(around):
    opaque_directory(around.top / "it")
    entry = around.capture().entries[0]
    assert entry.opaque
    assert entry.attributes == {}


def test_overlays_own_attributes_are_left_out(around):
    file(around.top / "it")
    os.setxattr(around.top / "it", "trusted.overlay.origin", b"\0")
    assert around.capture().entries[0].attributes == {}


def test_names_of_one_file_come_back_as_files_of_their_own(around):
    """A known limit: what is written through one name in a branch is not seen through the other."""
    file(around.top / "one")
    (around.top / "other").hardlink_to(around.top / "one")
    tree = around.back()
    assert picture(tree) == picture(around.top)
    assert (tree / "one").stat().st_nlink == 1


def test_device_nodes_are_left_out_since_branches_have_their_own(around):
    os.mknod(around.top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(around.top / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    assert around.capture().entries == []


def test_parents_stand_before_their_children(around):
    for path in ("a-b", "a", "a/b", "a.c"):
        (around.top / path).mkdir()
    paths = [entry.path for entry in around.capture().entries]
    assert paths.index("a") < paths.index("a/b")
    assert picture(around.back()) == picture(around.top)


def test_a_layer_is_laid_out_once(around):
    file(around.top / "it")
    layer = around.capture()
    tree = around.store.files.lay_out_layer(layer)
    inode = (tree / "it").stat().st_ino
    assert around.store.files.lay_out_layer(layer) == tree
    assert (tree / "it").stat().st_ino == inode


def test_an_empty_directory_is_an_empty_layer(around):
    assert list(around.back().iterdir()) == []


def test_a_directory_that_is_not_there_is_an_empty_layer(tmp_path, around):
    assert LayerScanner(tmp_path / "nothing").scan(tmp_path) == []


# -- what is copied again ----------------------------------------------------------------------------------------------


def test_an_unchanged_file_is_not_copied_again(around, later):
    for number in range(3):
        file(around.top / f"{number}")
    first = around.capture()
    assert around.copied == 3
    assert around.capture() == first
    assert around.copied == 0


def test_a_file_changed_shortly_before_it_was_copied_is_copied_again(around):
    """Within the clock's grain it could have changed once more with the same times."""
    file(around.top / "it")
    around.capture()
    around.capture()
    assert around.copied == 1


def test_a_changed_file_is_copied_again_though_its_size_and_mtime_are_the_same(around, later):
    path = around.top / "it"
    path.write_bytes(b"before")
    facts = path.stat()
    around.capture()
    path.write_bytes(b"after!")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert picture(around.back()) == picture(around.top)
    assert around.copied == 1


def test_a_file_replaced_by_another_of_the_same_size_and_mtime_is_copied_again(around, later):
    path = around.top / "it"
    path.write_bytes(b"before")
    around.capture()
    other = around.top / "other"
    other.write_bytes(b"after!")
    shutil.copystat(path, other)
    other.replace(path)
    assert picture(around.back()) == picture(around.top)


def test_a_file_mapped_shared_is_always_copied_again(around, later):
    """Writes through a mapping do not move a file's times."""
    file(around.top / "it")
    (around.top / "d").mkdir()
    file(around.top / "d" / "mapped")
    around.capture()
    around.capture(always={"d/mapped"})
    assert around.copied == 1


def test_a_changed_mode_is_noticed_without_copying(around, later):
    path = around.top / "it"
    file(path)
    around.capture()
    path.chmod(0o600)
    assert picture(around.back()) == picture(around.top)


def test_what_is_to_be_skipped_is_skipped_with_all_below_it(around):
    deep_directory(around.top / "it")
    file(around.top / "other")
    paths = [entry.path for entry in around.capture(skip={"it/a"}).entries]
    assert paths == ["it", "other"]


def test_files_above_the_limit_are_left_out(around):
    file(around.top / "small")
    large_file(around.top / "large")
    around.scanner.largest = 1000
    assert [entry.path for entry in around.capture().entries] == ["small"]


def test_what_was_forgotten_is_copied_again(around, later, tmp_path):
    """As after a commit that failed, whose copies are gone."""
    file(around.top / "it")
    staging = tmp_path / "staging"
    staging.mkdir()
    [(_, content)] = around.scanner.scan(staging)
    assert content is not None
    around.scanner.forget([content])
    around.capture()
    assert around.copied == 1


def test_a_file_that_became_a_directory_comes_back_as_one(around, later):
    file(around.top / "it")
    around.capture()
    (around.top / "it").unlink()
    sticky_directory_with_a_file(around.top / "it")
    assert picture(around.back()) == picture(around.top)


@pytest.mark.parametrize("make", [whiteout, directory, dangling_link_of_another_user])
def test_what_took_a_files_place_has_none_of_its_content(around, make):
    """A commit would be refused where the store has freed that content meanwhile."""
    path = around.top / "f"
    path.write_text("content")
    around.capture()
    path.unlink()
    make(path)
    assert [entry.object for entry in around.capture().entries if entry.path == "f"] == [None]
    assert "f" not in around.scanner.known


def test_a_link_is_never_followed(around, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (around.top / "it").symlink_to(tmp_path / "secret")
    (around.top / "dir").symlink_to(tmp_path)
    assert {entry.kind for entry in around.capture().entries} == {EntryKind.LINK}


# -- any edits ---------------------------------------------------------------------------------------------------------

PATHS = st.sampled_from(["a", "b", "a/c", "a/d", "b/c", os.fsdecode(b"\xff"), "a/\n"])
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.binary(max_size=3)),
    st.tuples(st.just("same-times"), PATHS, st.binary(max_size=3)),
    st.tuples(st.sampled_from(["mkdir", "whiteout", "pipe", "link", "remove", "chmod"]), PATHS, st.just(b"")),
)


def edit(top: Path, what: str, name: str, data: bytes) -> None:
    """One change, where it is possible."""
    path = top / name
    with contextlib.suppress(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError):
        match what:
            case "write" if not path.is_symlink() and not path.is_fifo():
                path.write_bytes(data)
            case "same-times" if path.is_file() and not path.is_symlink():
                facts = path.stat()
                path.write_bytes(data)
                os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            case "mkdir":
                path.mkdir()
            case "whiteout":
                whiteout(path)
            case "pipe":
                pipe(path)
            case "link":
                link(path)
            case "remove" if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            case "remove":
                path.unlink()
            case "chmod" if not path.is_symlink() and not path.is_char_device():  # a whiteout has no mode
                path.chmod(0o700)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(EDITS, max_size=5), min_size=1, max_size=4))
def test_after_any_edits_the_layer_is_the_directory_at_the_time_of_the_scan(rounds):
    """GIVEN scans with random edits between them, real times, THEN each layer is what the directory was just then."""
    with tempfile.TemporaryDirectory(prefix="relive-layers-") as name, new_round(Path(name)) as around:
        for edits in rounds:
            for what, path, data in edits:
                try:
                    edit(around.top, what, path, data)
                except OSError as error:
                    assert error.errno in (6, 22)  # noqa: PT017 - a whiteout cannot be opened (ENXIO)
            before = picture(around.top)
            assert picture(around.back()) == before


def test_what_nobody_mounts_or_asks_for_does_not_stay_laid_out(around, monkeypatch):
    layer = around.capture()
    trees = around.store.files._layer_cache
    kept = trees.made("a" * 64, lambda target: (target / "f").write_text("kept"))
    gone = trees.made("b" * 64, lambda target: (target / "f").write_text("gone"))
    trees.drop_unused(lambda: "")
    assert kept.exists() and gone.exists()  # they may be about to be mounted
    monkeypatch.setattr("relive.store.layer_cache._ASKED_LATELY", -1.0)
    trees.drop_unused(lambda: f"36 35 0:30 / /x ro - overlay overlay ro,lowerdir={kept}")
    assert kept.exists() and not gone.exists()
    assert (
        trees.made("b" * 64, lambda target: (target / "f").write_text("anew")).joinpath("f").read_text()
        == "anew"
    )
    assert list(around.store.files.lay_out_layer(layer).iterdir()) is not None
