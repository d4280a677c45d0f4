"""Archives: what was cut off, changed or put in another order is refused in words, never taken in, and never a traceback."""

from __future__ import annotations

import json
import subprocess

import pytest
from cryptography.fernet import Fernet, MultiFernet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.errors import (
    ArchiveInvalid,
    HostUnfit,
    KeyMissing,
    KeyWrong,
    ObjectCorrupt,
    SignatureInvalid,
    StoreVersionUnknown,
    UsageError,
)
from relive.operations.imports import import_archive
from relive.remotes import envelope
from relive.remotes.exporting import export
from relive.remotes.imported import Imported
from store.builders import OLD, commit, contents

from .conftest import HERE, Host, silent
from .test_push import flip

OLD_KEY, NEW_KEY = Fernet.generate_key(), Fernet.generate_key()
KEYS = MultiFernet([Fernet(NEW_KEY), Fernet(OLD_KEY)])
REFUSED = (ArchiveInvalid, ObjectCorrupt, SignatureInvalid, StoreVersionUnknown, KeyWrong)


def no_keys() -> MultiFernet:
    return envelope.read_keys(None)


def take(host: Host, path, *, keys=KEYS, force=False, here=HERE) -> Imported:
    return import_archive(host.store, path, here, keys=lambda: keys, force=force, show=silent)


def write(host: Host, commit_id, path, *, keys=None, force=False):
    return export(host.store, commit_id, path, keys=keys, force=force, show=silent)


@pytest.fixture(params=["plain", "sealed"])
def keys(request, monkeypatch):
    """Of an archive of each kind; with small frames, so that there are several."""
    monkeypatch.setattr(envelope, "FRAME_SIZE", 3000)
    return KEYS if request.param == "sealed" else None


@pytest.fixture
def archive(sender, keys, tmp_path):
    one = commit(sender.store, files={"a": b"1" * 600, "b": b""})
    write(sender, one.id, tmp_path / "one.relive", keys=keys)
    return tmp_path / "one.relive"


def test_a_commit_goes_through_a_file_bit_for_bit(sender, receiver, keys, tmp_path):
    old = commit(sender.store, files={"a": b"1", "empty": b""}, pages=b"p" * 50_000)
    one = commit(sender.store, files={"a": b"2"}, pages=b"q" * 50_000, parents=[old.id], capture="2")
    exported = write(sender, one.id, tmp_path / "x", keys=keys)
    assert exported.bytes == (tmp_path / "x").stat().st_size
    assert take(receiver, tmp_path / "x").is_new
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)
    assert take(receiver, tmp_path / "x") == Imported(one.id, 0, 0, exported.parts, False)


def test_any_tar_can_unpack_a_plain_archive(sender, tmp_path):
    one = commit(sender.store)
    write(sender, one.id, tmp_path / "x.tar")
    names = subprocess.run(["tar", "tf", tmp_path / "x.tar"], capture_output=True, text=True, check=True)
    assert names.stderr == ""
    assert names.stdout.split()[:3] == ["relive.json", "manifest.json", "placement"]
    mark = subprocess.run(["tar", "xOf", tmp_path / "x.tar", "relive.json"], capture_output=True, check=True)
    assert json.loads(mark.stdout) == {"version": 1, "commit": one.id}


# -- what is not as it was written --------------------------------------------------------------------------------------

examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def refuses(receiver: Host, path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(REFUSED):
        take(receiver, path)
    assert receiver.store.log() == []


@examples
@given(data=st.data())
def test_a_flipped_bit_is_refused(data, archive, receiver, tmp_path):
    changed = bytearray(archive.read_bytes())
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    refuses(receiver, tmp_path / "changed", bytes(changed))


@examples
@given(data=st.data())
def test_a_cut_archive_is_refused(data, archive, receiver, tmp_path):
    whole = archive.read_bytes()
    refuses(receiver, tmp_path / "changed", whole[: data.draw(st.integers(0, len(whole) - 1))])


@examples
@given(more=st.binary(min_size=1, max_size=600))
def test_an_archive_with_something_behind_it_is_refused(more, archive, receiver, tmp_path):
    refuses(receiver, tmp_path / "changed", archive.read_bytes() + more)


@examples
@given(junk=st.binary(max_size=2000), sealed=st.booleans())
def test_a_file_that_is_no_archive_is_refused(junk, sealed, receiver, tmp_path):
    refuses(receiver, tmp_path / "junk", b"relive-sealed-archive 1\n" * sealed + junk)


@pytest.mark.parametrize("text", [b"", b"hello\n", b"PK\x03\x04" + bytes(600)])
def test_of_what_is_no_archive_it_is_not_said_that_it_is_cut_off(text, receiver, tmp_path):
    (tmp_path / "notes.txt").write_bytes(text)
    with pytest.raises(ArchiveInvalid) as told:
        take(receiver, tmp_path / "notes.txt")
    assert "cut off" not in str(told.value.cause)
    assert "`relive export`" in str(told.value.remedy)


@examples
@given(data=st.data())
def test_blocks_or_frames_in_another_order_left_out_or_doubled_are_refused(
    data, archive, keys, receiver, tmp_path
):
    whole = archive.read_bytes()
    blocks = [whole[begin : begin + 512] for begin in range(0, len(whole), 512)]
    pieces = blocks if keys is None else whole.splitlines(keepends=True)
    numbers = data.draw(st.lists(st.integers(0, len(pieces) - 1), min_size=1, max_size=len(pieces) + 2))
    changed = b"".join(pieces[number] for number in numbers)
    if changed != whole:
        refuses(receiver, tmp_path / "changed", changed)


def test_frames_of_another_archive_do_not_fit(sender, receiver, tmp_path, monkeypatch):
    monkeypatch.setattr(envelope, "FRAME_SIZE", 3000)
    one = commit(sender.store)
    for name in ("a", "b"):
        write(sender, one.id, tmp_path / name, keys=KEYS)
    a, b = ((tmp_path / name).read_bytes().splitlines(keepends=True) for name in ("a", "b"))
    assert len(a) == len(b) > 3
    refuses(receiver, tmp_path / "c", b"".join([*a[:2], b[2], *a[3:]]))


def test_a_directory_or_nothing_is_no_archive(receiver, tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises((UsageError, ArchiveInvalid)):
            take(receiver, path)


def test_an_archive_of_a_newer_relive_is_left_alone(archive, keys, receiver):
    data = archive.read_bytes()
    if keys is None:
        from relive.remotes.archive import entry

        text = b'{"version": 3, "commit": "' + b"a" * 64 + b'"}'
        archive.write_bytes(b"".join(entry("relive.json", len(text), iter([text]))))
    else:
        archive.write_bytes(data.replace(b"archive 1\n", b"archive 2\n", 1))
    with pytest.raises(StoreVersionUnknown):
        take(receiver, archive)


# -- whom it trusts, what it opens --------------------------------------------------------------------------------------


def test_a_commit_of_a_stranger_or_for_a_better_host_is_refused(archive, tmp_path, receiver):
    stranger = Host(tmp_path / "stranger")
    with pytest.raises(SignatureInvalid, match="not trusted"):
        take(stranger, archive, force=True)
    stranger.store.close()
    old = HERE.model_copy(update={"kernel": "5.10"})
    with pytest.raises(HostUnfit):
        take(receiver, archive, here=old)
    assert take(receiver, archive, here=old, force=True).is_new


def test_a_commit_of_a_sealed_store_needs_its_key(sender, receiver, tmp_path):
    key = sender.keyring.make_store_key()
    one = commit(sender.store)
    write(sender, one.id, tmp_path / "x")
    with pytest.raises(KeyMissing):
        take(receiver, tmp_path / "x")
    assert receiver.store.log() == []
    (receiver.home / "keys" / "store.key").write_bytes(key)
    assert take(receiver, tmp_path / "x").is_new


# -- keys ---------------------------------------------------------------------------------------------------------------


def test_keys_rotate(sender, receiver, tmp_path):
    """GIVEN an archive of the old key THEN a file with the new one before it opens that, and writes with the new one."""
    one = commit(sender.store)
    write(sender, one.id, tmp_path / "old", keys=MultiFernet([Fernet(OLD_KEY)]))
    assert take(receiver, tmp_path / "old").is_new
    write(sender, one.id, tmp_path / "new", keys=KEYS)
    with pytest.raises(KeyWrong):
        take(receiver, tmp_path / "new", keys=MultiFernet([Fernet(OLD_KEY)]))
    assert not take(receiver, tmp_path / "new", keys=MultiFernet([Fernet(NEW_KEY)])).is_new


def test_a_file_of_keys_has_one_a_line_and_may_have_remarks(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes(b"# of May\n" + NEW_KEY + b"\n\n" + OLD_KEY + b"\n")
    read = envelope.read_keys(path)
    assert Fernet(NEW_KEY).decrypt(read.encrypt(b"x")) == b"x"
    assert read.decrypt(Fernet(OLD_KEY).encrypt(b"y")) == b"y"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (b"", KeyMissing, "holds no key"),
        (b"# nothing\n", KeyMissing, "holds no key"),
        (NEW_KEY + b"\nshort\n", KeyWrong, "line 2"),
        (b"\xff" * 44, KeyWrong, "line 1"),
    ],
    ids=["empty", "a remark", "a key and a word", "no text"],
)
def test_a_file_that_holds_no_keys_is_told(text, kind, words, tmp_path):
    path = tmp_path / "keys"
    path.write_bytes(text)
    with pytest.raises(kind, match=words):
        envelope.read_keys(path)


def test_no_keys_at_all_is_told_with_a_way_to_make_one(tmp_path):
    with pytest.raises(KeyMissing):
        no_keys()
    with pytest.raises(KeyMissing) as caught:
        envelope.read_keys(tmp_path / "none")
    command = str(caught.value.remedy).split("`")[1]
    subprocess.run(["sh", "-c", command], check=True)
    envelope.read_keys(tmp_path / "none")


# -- the file -----------------------------------------------------------------------------------------------------------


def test_a_file_that_exists_is_replaced_only_by_force_and_never_left_half_written(sender, tmp_path):
    one = commit(sender.store, files={"a": b"1"}, version=OLD)
    target = tmp_path / "out" / "x"
    with pytest.raises(UsageError, match="no directory"):
        write(sender, one.id, target)
    target.parent.mkdir()
    target.write_text("before")
    with pytest.raises(UsageError, match="exists"):
        write(sender, one.id, target)
    flip(next((sender.home / "store" / "objects").glob("*/*")))
    with pytest.raises(ObjectCorrupt):
        write(sender, one.id, target, force=True)
    assert target.read_text() == "before"
    assert list(target.parent.iterdir()) == [target]
