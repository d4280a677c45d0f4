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
def export_store(tmp_path, clock):
    opened = ExportStore(tmp_path / "server", quota=1000, clock=clock)
    yield opened
    opened.close()


def keep(export_store, content=b"abc", *, identity=None, lifetime=60):
    return export_store.store_export(
        identity or new_export_id(),
        lambda path: path.write_bytes(content),
        name="pay.relive",
        lifetime=lifetime,
        asked_by="ci",
    )


def on_disk(tmp_path):
    return sorted(path.name for path in (tmp_path / "server" / "exports").iterdir())


def content_of(export_store, identity):
    kept, descriptor = export_store.open(identity)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read()
    assert len(content) == kept.bytes
    return content


def test_what_is_kept_is_given(export_store, tmp_path):
    kept = keep(export_store, b"abcdef")
    assert content_of(export_store, kept.id) == b"abcdef"
    assert export_store.all() == [kept] == [export_store.get(kept.id)]
    assert on_disk(tmp_path) == [f"{kept.id}.export"]
    assert stat.S_IMODE((tmp_path / "server" / "exports").stat().st_mode) == 0o700


def test_an_export_of_relive_is_kept(export_store, tmp_path):
    """The very function that the command calls writes it."""
    export_store._quota = 1 << 20
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

    kept = export_store.store_export(
        new_export_id(), write, name=f"{one.id[:10]}.relive", lifetime=60, asked_by="ci"
    )
    direct = tmp_path / "direct.relive"
    write(direct)
    assert content_of(export_store, kept.id) == direct.read_bytes()
    store.close()


def test_a_step_that_is_done_again_gives_what_is_there(export_store, tmp_path):
    """A server that was killed does the step of a task again."""
    first = keep(export_store, b"abc")
    assert keep(export_store, b"other", identity=first.id) == first
    assert content_of(export_store, first.id) == b"abc"
    assert on_disk(tmp_path) == [f"{first.id}.export"]


def test_of_two_attempts_at_one_export_the_first_stays(export_store, tmp_path):
    identity, inner = new_export_id(), []

    def write(path):
        inner.append(keep(export_store, b"first", identity=identity))
        path.write_bytes(b"second")

    outer = export_store.store_export(identity, write, name="pay.relive", lifetime=60, asked_by="ci")
    assert [outer] == inner
    assert content_of(export_store, identity) == b"first"
    assert on_disk(tmp_path) == [f"{identity}.export"]


def test_a_file_without_its_row_is_written_again(export_store, tmp_path):
    """The server died between the two."""
    identity = new_export_id()
    (tmp_path / "server" / "exports" / f"{identity}.export").write_bytes(b"of before")
    kept = keep(export_store, b"abc", identity=identity)
    assert content_of(export_store, kept.id) == b"abc"


def test_what_fails_leaves_nothing(export_store, tmp_path):
    def write(path):
        path.write_bytes(b"half")
        raise DiskFull("no space left while exporting")

    with pytest.raises(DiskFull):
        export_store.store_export(new_export_id(), write, name="pay.relive", lifetime=60, asked_by="ci")
    assert on_disk(tmp_path) == []
    assert export_store.all() == []


def test_the_quota_holds_for_all_together(export_store, tmp_path, clock):
    first = keep(export_store, b"a" * 600)
    with pytest.raises(ExportsFull, match="1001"):
        keep(export_store, b"b" * 401)
    assert on_disk(tmp_path) == [f"{first.id}.export"]
    keep(export_store, b"c" * 400)
    written = []
    with pytest.raises(ExportsFull):
        export_store.store_export(
            new_export_id(), written.append, name="pay.relive", lifetime=60, asked_by="ci"
        )
    assert written == []  # nothing is written in vain
    clock.now += 60
    keep(export_store, b"d" * 1000)


def test_an_export_ends_at_its_time_and_who_reads_it_gets_the_rest(export_store, tmp_path, clock):
    kept = keep(export_store, b"abc")
    other = keep(export_store, b"stays", lifetime=61)
    _, descriptor = export_store.open(kept.id)
    clock.now += 60
    with pytest.raises(KeptExportUnknown):
        export_store.open(kept.id)
    assert export_store.sweep() == 1
    assert export_store.sweep() == 0
    assert on_disk(tmp_path) == [f"{other.id}.export"]
    with os.fdopen(descriptor, "rb") as file:
        assert file.read() == b"abc"


def test_one_is_deleted(export_store, tmp_path):
    kept = keep(export_store)
    export_store.delete(kept.id)
    assert on_disk(tmp_path) == []
    with pytest.raises(KeptExportUnknown):
        export_store.delete(kept.id)


def test_what_a_crash_left_goes_after_an_hour_and_what_is_being_written_stays(export_store, tmp_path, clock):
    directory = tmp_path / "server" / "exports"
    for name, age in (("left", 3601), ("fresh", 3599), ("written", 3601)):
        (directory / f"{name}.part").write_bytes(b"x")
        os.utime(directory / f"{name}.part", (clock.now - age,) * 2)
    with (directory / "written.part").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert export_store.sweep() == 1
        assert on_disk(tmp_path) == ["fresh.part", "written.part"]


@pytest.mark.parametrize("change", [b"", b"ab", b"abcd"])
def test_a_file_that_is_not_what_was_written_is_not_given(export_store, tmp_path, change):
    kept = keep(export_store)
    (tmp_path / "server" / "exports" / f"{kept.id}.export").write_bytes(change)
    with pytest.raises(ObjectCorrupt, match="size"):
        export_store.open(kept.id)


def test_a_file_that_is_gone_and_a_link_are_not_given(export_store, tmp_path):
    kept = keep(export_store)
    path = tmp_path / "server" / "exports" / f"{kept.id}.export"
    path.unlink()
    with pytest.raises(ObjectCorrupt, match="no such file"):
        export_store.open(kept.id)
    (tmp_path / "else").write_bytes(b"abc")
    path.symlink_to(tmp_path / "else")
    with pytest.raises(Exception, match="opening"):
        export_store.open(kept.id)


@pytest.mark.parametrize(
    "identity", ["", "..", "../x", "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", "/etc/passwd"]
)
def test_no_id_is_a_path(export_store, identity):
    for act in (export_store.get, export_store.open, export_store.delete):
        with pytest.raises(KeptExportUnknown):
            act(identity)
    with pytest.raises(KeptExportUnknown):
        export_store.store_export(identity, lambda _path: None, name="a", lifetime=60, asked_by="ci")


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "../a", ".a", "a\r\nX: y", "ä", "a" * 101])
def test_no_name_leaves_its_header(export_store, name):
    with pytest.raises(UsageError):
        export_store.store_export(new_export_id(), lambda _path: None, name=name, lifetime=60, asked_by="ci")
