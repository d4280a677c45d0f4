"""Lines that break and processes that are killed: bounded tries, clear words, and going on afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from relive.errors import RefUnknown, RemoteRefused, RemoteUnknown, RemoteUnreachable
from relive.remotes.remote import open_remote
from relive.remotes.remote_layout import PIECE_SIZE
from store.builders import commit, contents

from .flaky import FlakyLine
from .test_push import fetch, noise, send

TESTS = Path(__file__).parent.parent


@pytest.fixture
def through(s3, monkeypatch):
    """Opens a remote whose requests go through a line."""

    def open_through(url: str, line: FlakyLine):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        return open_remote(url, make=True)

    return open_through


def test_connections_that_are_cut_are_made_again(s3, through, sender, receiver):
    """In the middle of a request, of an answer, and of a piece."""
    one = commit(sender.store, pages=noise(PIECE_SIZE + 4096))
    url = s3.fresh_url()
    with FlakyLine.to(s3.port, after=300_000, cuts=3) as line:
        assert send(sender, through(url, line), one.id).is_new
        assert line.connections > 3
    with FlakyLine.to(s3.port, after=300_000, cuts=3) as line:
        assert fetch(receiver, through(url, line), one.id).is_new
        assert line.connections > 3
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)


def test_a_line_that_stays_dead_is_told_after_a_bounded_number_of_tries_and_the_next_time_goes_on(
    s3, through, sender, receiver
):
    one = commit(sender.store, pages=noise(6 * PIECE_SIZE))
    url = s3.fresh_url()
    direct = open_remote(url, make=True)

    def fails_at(action, host) -> None:
        with FlakyLine.to(s3.port, after=4 * PIECE_SIZE + PIECE_SIZE // 2) as line:
            with pytest.raises(RemoteUnreachable) as caught:
                action(host, through(url, line), one.id)
            assert "run it again" in str(caught.value.remedy)
            assert line.connections <= 40

    fails_at(send, sender)
    with pytest.raises(RefUnknown):
        fetch(receiver, direct, one.id)
    sent = send(sender, direct, one.id).bytes
    assert 2 * PIECE_SIZE <= sent < 6 * PIECE_SIZE
    fails_at(fetch, receiver)
    assert receiver.store.log() == []
    assert fetch(receiver, direct, one.id).bytes < 6 * PIECE_SIZE
    assert contents(receiver.store, one.id) == contents(sender.store, one.id)


def test_a_remote_that_nobody_serves_is_told_so(s3, through, sender, monkeypatch):
    one = commit(sender.store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(RemoteUnreachable, match="does not answer"):
        send(sender, open_remote("s3://states/x", make=True), one.id)


def test_wrong_credentials_are_told_as_such(s3, sender, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(RemoteRefused, match="refuses"):
        send(sender, open_remote(s3.fresh_url(), make=True), commit(sender.store).id)


def test_a_bucket_that_is_not_there_is_told_as_such(s3, sender):
    with pytest.raises(RemoteUnknown, match="no such bucket"):
        send(sender, open_remote("s3://nowhere/x", make=True), commit(sender.store).id)


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_a_death_at_any_moment_leaves_nothing_that_looks_whole_and_it_can_be_done_again(kind):
    """See death_driver: it also counts, so that deaths that miss the work are noticed."""
    # A death of the process asks nothing of the disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        done = subprocess.run(
            [sys.executable, "-m", "remotes.death_driver", kind, directory, "1"],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) >= 10
