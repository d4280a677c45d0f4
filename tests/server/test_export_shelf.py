"""Exports that are kept: whole or not at all, within the quota, until their end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

import pytest

from relive.errors import DiskFull, ExportsFull, KeptExportUnknown, ObjectCorrupt, UsageError
from relive.remotes.exporting import export
from relive.server.export_shelf import ExportStore, new_export_id
from relive.store import Store
from store.builders import commit


class Clock:
    def __init__(self):
        self.now = 2_000_000_000.0  # later than any file of this test

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shelf(tmp_path, clock):
    opened = ExportStore(tmp_path / "server", quota=1000, clock=clock)
    yield opened
    opened.close()


def keep(shelf, content=b"abc", *, identity=None, lifetime=60):
    return shelf.keep(
        identity or new_export_id(),
        lambda path: path.write_bytes(content),
        name="pay.relive",
        lifetime=lifetime,
        asked_by="ci",
    )


def on_disk(tmp_path):
    return sorted(path.name for path in (tmp_path / "server" / "exports").iterdir())


def content_of(shelf, identity):
    kept, descriptor = shelf.open(identity)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read()
    assert len(content) == kept.bytes
    return content


def test_what_is_kept_is_given(shelf, tmp_path):
    kept = keep(shelf, b"abcdef")
    assert content_of(shelf, kept.id) == b"abcdef"
    assert shelf.all() == [kept] == [shelf.get(kept.id)]
    assert on_disk(tmp_path) == [f"{kept.id}.export"]
    assert stat.S_IMODE((tmp_path / "server" / "exports").stat().st_mode) == 0o700


def test_an_export_of_relive_is_kept(shelf, tmp_path):
    """The very function that the command calls writes it."""
    shelf._quota = 1 << 20
    store = Store(tmp_path / "store")
    one = commit(store)

    def write(path):
        return export(
            store,
            one.id,
            path,
            keys=None,
            force=False,
            show=lambda *_: contextlib.nullcontext(lambda _: None),
        )

    kept = shelf.keep(new_export_id(), write, name=f"{one.id[:10]}.relive", lifetime=60, asked_by="ci")
    direct = tmp_path / "direct.relive"
    write(direct)
    assert content_of(shelf, kept.id) == direct.read_bytes()
    store.close()


def test_a_step_that_is_done_again_gives_what_is_there(shelf, tmp_path):
    """A server that was killed does the step of a task again."""
    first = keep(shelf, b"abc")
    assert keep(shelf, b"other", identity=first.id) == first
    assert content_of(shelf, first.id) == b"abc"
    assert on_disk(tmp_path) == [f"{first.id}.export"]


def test_of_two_attempts_at_one_export_the_first_stays(shelf, tmp_path):
    identity, inner = new_export_id(), []

    def write(path):
        inner.append(keep(shelf, b"first", identity=identity))
        path.write_bytes(b"second")

    outer = shelf.keep(identity, write, name="pay.relive", lifetime=60, asked_by="ci")
    assert [outer] == inner
    assert content_of(shelf, identity) == b"first"
    assert on_disk(tmp_path) == [f"{identity}.export"]


def test_a_file_without_its_row_is_written_again(shelf, tmp_path):
    """The server died between the two."""
    identity = new_export_id()
    (tmp_path / "server" / "exports" / f"{identity}.export").write_bytes(b"of before")
    kept = keep(shelf, b"abc", identity=identity)
    assert content_of(shelf, kept.id) == b"abc"


def test_what_fails_leaves_nothing(shelf, tmp_path):
    def write(path):
        path.write_bytes(b"half")
        raise DiskFull("no space left while exporting")

    with pytest.raises(DiskFull):
        shelf.keep(new_export_id(), write, name="pay.relive", lifetime=60, asked_by="ci")
    assert on_disk(tmp_path) == []
    assert shelf.all() == []


def test_the_quota_holds_for_all_together(shelf, tmp_path, clock):
    first = keep(shelf, b"a" * 600)
    with pytest.raises(ExportsFull, match="1001"):
        keep(shelf, b"b" * 401)
    assert on_disk(tmp_path) == [f"{first.id}.export"]
    keep(shelf, b"c" * 400)
    written = []
    with pytest.raises(ExportsFull):
        shelf.keep(new_export_id(), written.append, name="pay.relive", lifetime=60, asked_by="ci")
    assert written == []  # nothing is written in vain
    clock.now += 60
    keep(shelf, b"d" * 1000)


def test_an_export_ends_at_its_time_and_who_reads_it_gets_the_rest(shelf, tmp_path, clock):
    kept = keep(shelf, b"abc")
    other = keep(shelf, b"stays", lifetime=61)
    _, descriptor = shelf.open(kept.id)
    clock.now += 60
    with pytest.raises(KeptExportUnknown):
        shelf.open(kept.id)
    assert shelf.sweep() == 1
    assert shelf.sweep() == 0
    assert on_disk(tmp_path) == [f"{other.id}.export"]
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"abc"


def test_one_is_deleted(shelf, tmp_path):
    kept = keep(shelf)
    shelf.delete(kept.id)
    assert on_disk(tmp_path) == []
    with pytest.raises(KeptExportUnknown):
        shelf.delete(kept.id)


def test_what_a_crash_left_goes_after_an_hour_and_what_is_being_written_stays(shelf, tmp_path, clock):
    directory = tmp_path / "server" / "exports"
    for name, age in (("left", 3601), ("fresh", 3599), ("written", 3601)):
        (directory / f"{name}.part").write_bytes(b"x")
        os.utime(directory / f"{name}.part", (clock.now - age,) * 2)
    with (directory / "written.part").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert shelf.sweep() == 1
        assert on_disk(tmp_path) == ["fresh.part", "written.part"]


@pytest.mark.parametrize("change", [b"", b"ab", b"abcd"])
def test_a_file_that_is_not_what_was_written_is_not_given(shelf, tmp_path, change):
    kept = keep(shelf)
    (tmp_path / "server" / "exports" / f"{kept.id}.export").write_bytes(change)
    with pytest.raises(ObjectCorrupt, match="size"):
        shelf.open(kept.id)


def test_a_file_that_is_gone_and_a_link_are_not_given(shelf, tmp_path):
    kept = keep(shelf)
    path = tmp_path / "server" / "exports" / f"{kept.id}.export"
    path.unlink()
    with pytest.raises(ObjectCorrupt, match="no such file"):
        shelf.open(kept.id)
    (tmp_path / "else").write_bytes(b"abc")
    path.symlink_to(tmp_path / "else")
    with pytest.raises(Exception, match="opening"):
        shelf.open(kept.id)


@pytest.mark.parametrize(
    "identity", ["", "..", "../x", "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", "/etc/passwd"]
)
def test_no_id_is_a_path(shelf, identity):
    for act in (shelf.get, shelf.open, shelf.delete):
        with pytest.raises(KeptExportUnknown):
            act(identity)
    with pytest.raises(KeptExportUnknown):
        shelf.keep(identity, lambda _path: None, name="a", lifetime=60, asked_by="ci")


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "../a", ".a", "a\r\nX: y", "ä", "a" * 101])
def test_no_name_leaves_its_header(shelf, name):
    with pytest.raises(UsageError):
        shelf.keep(new_export_id(), lambda _path: None, name=name, lifetime=60, asked_by="ci")
