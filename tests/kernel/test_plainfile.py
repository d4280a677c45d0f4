"""Only regular files are opened, whatever was put in their place."""

from __future__ import annotations

import os

import pytest

from relive.kernel.plainfile import open_plain


def test_a_file_is_read_and_appended_to(tmp_path):
    path = tmp_path / "log"
    for text in (b"one ", b"two"):
        with open_plain(path, appending=True) as file:
            file.write(text)
    with open_plain(path) as file:
        assert file.read() == b"one two"


@pytest.mark.parametrize("appending", [False, True])
def test_what_a_link_leads_to_is_neither_read_nor_written(tmp_path, appending):
    secret = tmp_path / "secret"
    secret.write_text("host")
    (tmp_path / "log").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        open_plain(tmp_path / "log", appending=appending)
    assert secret.read_text() == "host"


def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="regular"):
        open_plain(tmp_path / "log")
    with pytest.raises(OSError):
        open_plain(tmp_path / "log", appending=True)
