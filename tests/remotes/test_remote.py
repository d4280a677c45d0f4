"""Remotes as such: addresses, formats, and putting what is not there yet."""

from __future__ import annotations

import pytest

from relive.errors import DiskFull, PermissionMissing, RemoteUnknown, StoreVersionUnknown, UsageError
from relive.remotes.remote import open_remote
from relive.remotes.remote_errors import remote_errors


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/path",
        "s3:",
        "s3://",
        "s3://x",
        "s3://UPPER/x",
        "file://",
        "file:///",
        "file://host/x",
        "http://x/y",
        "ssh://x",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(UsageError, match="is no remote"):
        open_remote(url, make=True)


def test_a_directory_that_is_not_there_is_made_to_push_and_missed_to_pull(tmp_path):
    with pytest.raises(RemoteUnknown, match="no such directory"):
        open_remote(f"file://{tmp_path}/a%20b/c", make=False)
    open_remote(f"file://{tmp_path}/a%20b/c", make=True)
    assert (tmp_path / "a b" / "c").stat().st_mode & 0o777 == 0o700


def test_what_is_put_if_absent_stays_as_the_first_has_put_it(remote):
    assert remote.write_new("a/b", b"first")
    assert not remote.write_new("a/b", b"second")
    assert remote.read("a/b") == b"first"


def test_a_remote_is_known_by_its_format_and_one_of_a_newer_relive_is_left_alone(remote):
    with pytest.raises(RemoteUnknown, match="nothing was ever pushed"):
        remote.check_format()
    remote.begin_sending()
    remote.check_format()
    remote.write("format", b'{"version": 2}')
    for ask in (remote.check_format, remote.begin_sending):
        with pytest.raises(StoreVersionUnknown, match="format 2"):
            ask()
    remote.write("format", b"[]")
    with pytest.raises(StoreVersionUnknown):
        remote.check_format()


def test_names_are_listed_with_their_sizes_within_one_directory_only(remote):
    remote.write("packs/ab/1", b"1")
    remote.write("packs/ab/2", b"22")
    remote.write("packs/abc/3", b"333")
    assert remote.sizes("packs/ab") == {"1": 1, "2": 2}
    assert remote.sizes("packs/none") == {}


def test_a_range_can_be_read(remote):
    remote.write("x", b"0123456789")
    assert remote.read("x", 2, 3) == b"234"
    assert remote.read("y", 2, 3) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No space left on device (os error 28)", DiskFull),
        ("Permission denied (os error 13)", PermissionMissing),
    ],
)
def test_failures_of_a_directory_are_told_as_those_of_a_disk(text, kind):
    from obstore.exceptions import GenericError

    with pytest.raises(kind) as caught, remote_errors("file:///x"):
        raise GenericError(f"Generic LocalFileSystem error: {text}\n\nDebug source: much")
    assert "Debug" not in str(caught.value.cause)
