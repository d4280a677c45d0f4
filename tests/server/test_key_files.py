"""Keys of the server: made once, private, never replaced unasked."""

from __future__ import annotations

import stat
import threading

import pytest

from relive.errors import KeyWrong, StoreError
from relive.server.key_files import private_directory, read_key, replace_key


def test_a_key_is_made_once_and_is_private(tmp_path):
    key = read_key(tmp_path / "a.key")
    assert len(key) == 32
    assert read_key(tmp_path / "a.key") == key
    assert read_key(tmp_path / "b.key") != key
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.key", "b.key"]


def test_two_at_once_have_the_same(tmp_path):
    found, start = [], threading.Barrier(8)

    def read():
        start.wait()
        found.append(read_key(tmp_path / "a.key"))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_another_one_takes_its_place(tmp_path):
    key = read_key(tmp_path / "a.key")
    replace_key(tmp_path / "a.key")
    assert read_key(tmp_path / "a.key") != key
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_what_is_no_key_is_told_and_left(tmp_path, content):
    (tmp_path / "a.key").write_bytes(content)
    with pytest.raises(KeyWrong, match="holds no key"):
        read_key(tmp_path / "a.key")
    assert (tmp_path / "a.key").read_bytes() == content


def test_a_directory_that_was_open_is_closed(tmp_path):
    (tmp_path / "server").mkdir(mode=0o755)
    assert stat.S_IMODE(private_directory(tmp_path / "server").stat().st_mode) == 0o700
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        private_directory(tmp_path / "file")
