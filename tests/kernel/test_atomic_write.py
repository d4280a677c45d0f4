"""A file is replaced as a whole or not at all, and made durable as far as was asked."""

from __future__ import annotations

import os

import pytest

from relive.kernel.atomic_write import Durability, replace_file, replacing

each_durability = pytest.mark.parametrize("durability", Durability)


@each_durability
def test_the_new_content_takes_the_place_of_the_old(tmp_path, durability):
    path = tmp_path / "state"
    for content in (b"old", b"new"):
        replace_file(path, content, durability=durability)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["state"]


def test_who_has_the_old_file_keeps_its_content(tmp_path):
    path, other = tmp_path / "state", tmp_path / "shared"
    path.write_bytes(b"old")
    other.hardlink_to(path)
    with path.open("rb") as reader:
        replace_file(path, b"new", durability=Durability.NONE)
        assert reader.read() == b"old"
    assert other.read_bytes() == b"old"


@pytest.mark.parametrize("shared", [False, True])
def test_an_error_leaves_all_as_it_was(tmp_path, shared):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), replacing(path, durability=Durability.NAME, shared=shared) as file:
        file.writelines([b"ne", "not bytes"])
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


def test_what_a_kill_left_is_neither_kept_nor_written_through(tmp_path):
    path, secret = tmp_path / "state", tmp_path / "secret"
    secret.write_bytes(b"host")
    (tmp_path / "state.new").symlink_to(secret)
    replace_file(path, b"new", durability=Durability.NONE)
    assert (path.read_bytes(), secret.read_bytes()) == (b"new", b"host")
    assert not path.is_symlink()


def test_several_may_replace_a_shared_file_at_once(tmp_path):
    path = tmp_path / "cache"
    with replacing(path, durability=Durability.NONE, shared=True) as first:
        first.write(b"first")
        replace_file(path, b"second", durability=Durability.NONE, shared=True)
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"


def test_a_mode_holds_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "read-by-all", b"", durability=Durability.NONE, mode=0o644)
        replace_file(tmp_path / "as-any", b"", durability=Durability.NONE)
    finally:
        os.umask(before)
    assert (tmp_path / "read-by-all").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "as-any").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("durability", "expected"),
    [
        (Durability.NONE, []),
        (Durability.CONTENT, ["state.new"]),
        (Durability.NAME, ["state.new", "."]),
    ],
)
def test_what_is_synced_is_what_was_asked_for(tmp_path, monkeypatch, durability, expected):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    replace_file(tmp_path / "state", b"new", durability=durability)
    assert [os.path.relpath(name, tmp_path) for name in synced] == expected
