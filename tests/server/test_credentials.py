"""Tokens: what is kept of them, who they let in, when they end."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import KeyWrong, StoreVersionUnknown, TokenUnknown, UsageError
from relive.server.credentials import Scope, Tokens, TokenState, reach

SECOND = 10**9


class Clock:
    def __init__(self):
        self.now = 1_700_000_000 * SECOND

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(tmp_path, clock):
    with Tokens(tmp_path / "server", clock=clock) as opened:
        yield opened


def test_a_token_is_recognized_and_its_secret_is_nowhere(tokens, tmp_path):
    made, text = tokens.create("ci", [Scope.OPERATE, Scope.READ], lifetime=None)
    found = tokens.verify(text)
    assert found == made
    assert found.scopes == (Scope.READ, Scope.OPERATE)
    secret = text.rpartition("_")[2]
    for path in (tmp_path / "server").iterdir():
        assert secret.encode() not in path.read_bytes()
        assert bytes.fromhex(secret) not in path.read_bytes()


def test_only_the_owner_can_read_what_is_kept(tokens, tmp_path):
    old = os.umask(0)
    try:
        tokens.create("ci", [Scope.READ], lifetime=None)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "server").stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "server").iterdir()}
    assert set(modes) >= {"credentials.sqlite", "token.key"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text[:4] + ("0" if text[4] != "0" else "1") + text[5:],
        lambda text: text + "0",
        lambda text: text.upper(),
        lambda text: text.removeprefix("rlv_"),
        lambda text: text + "\n",
        lambda _: "",
        lambda _: "rlv_" + "٠" * 16 + "_" + "0" * 64,
    ],
)
def test_what_differs_in_anything_is_no_token(tokens, change):
    text = tokens.create("ci", [Scope.READ], lifetime=None)[1]
    assert tokens.verify(change(text)) is None
    assert tokens.verify(text) is not None


def test_a_token_ends_at_its_time(tokens, clock):
    made, text = tokens.create("ci", [Scope.READ], lifetime=60)
    clock.now += 60 * SECOND - 1
    assert tokens.verify(text) == made
    clock.now += 1
    assert tokens.verify(text) is None
    assert tokens.all()[0].state(clock.now) is TokenState.EXPIRED


def test_a_revoked_token_ends_at_once_for_other_processes_too(tokens, tmp_path, clock):
    made, text = tokens.create("ci", [Scope.READ], lifetime=None)
    with Tokens(tmp_path / "server", clock=clock) as others:
        assert others.verify(text) is not None
        ended = tokens.revoke(made.id)
        assert others.verify(text) is None
    clock.now += SECOND
    assert tokens.revoke(made.id) == ended


def test_a_name_revokes_the_one_that_has_it(tokens):
    first, _ = tokens.create("ci", [Scope.READ], lifetime=None)
    assert tokens.revoke("ci").id == first.id
    with pytest.raises(TokenUnknown):
        tokens.revoke("ci")
    twins = [tokens.create("ci", [Scope.READ], lifetime=None)[0].id for _ in range(2)]
    with pytest.raises(UsageError) as raised:
        tokens.revoke("ci")
    assert all(one in raised.value.cause for one in twins)


def test_use_is_noted_at_most_once_a_minute(tokens, clock):
    made, text = tokens.create("ci", [Scope.READ], lifetime=None)
    assert tokens.is_use_unnoted(made)
    tokens.note_use(made)
    assert tokens.verify(text).last_used_ns == clock.now
    assert not tokens.is_use_unnoted(tokens.verify(text))
    clock.now += 60 * SECOND
    assert tokens.is_use_unnoted(tokens.verify(text))


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a" * 65, "a\n", "../a", "ä"])
def test_a_name_that_would_not_do_in_a_log_is_refused(tokens, name):
    with pytest.raises(UsageError):
        tokens.create(name, [Scope.READ], lifetime=None)


def test_a_token_without_a_scope_is_refused(tokens):
    with pytest.raises(UsageError, match="opens nothing"):
        tokens.create("ci", [], lifetime=None)


@given(st.sets(st.sampled_from(Scope)))
def test_memory_is_only_for_whom_it_was_given_to(scopes):
    assert (Scope.MEMORY in reach(scopes)) == (Scope.MEMORY in scopes)
    assert (Scope.ADMIN in reach(scopes)) == (Scope.ADMIN in scopes)
    assert (Scope.OPERATE in reach(scopes)) == bool(scopes & {Scope.OPERATE, Scope.ADMIN})
    assert (Scope.READ in reach(scopes)) == bool(scopes)


def test_a_database_alone_does_not_open_the_server(tokens, tmp_path, clock):
    """Somebody who can write into the database, and has not the key, makes no token that counts."""
    _, text = tokens.create("ci", [Scope.READ], lifetime=None)
    (tmp_path / "other").mkdir()
    with Tokens(tmp_path / "other", clock=clock) as forger:
        forged = forger.create("ci", [Scope.ADMIN], lifetime=None)[1]
    mine = sqlite3.connect(tmp_path / "server" / "credentials.sqlite")
    theirs = sqlite3.connect(tmp_path / "other" / "credentials.sqlite")
    row = theirs.execute("SELECT * FROM tokens").fetchone()
    mine.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    mine.commit()
    mine.close()
    theirs.close()
    assert tokens.verify(forged) is None
    assert tokens.verify(text) is not None


def test_a_key_that_is_none_is_not_replaced(tmp_path):
    Tokens(tmp_path / "server").close()
    (tmp_path / "server" / "token.key").write_bytes(b"short")
    with pytest.raises(KeyWrong, match=r"token\.key"):
        Tokens(tmp_path / "server")
    assert (tmp_path / "server" / "token.key").read_bytes() == b"short"


def test_a_newer_database_is_left_alone(tmp_path):
    Tokens(tmp_path / "server").close()
    database = sqlite3.connect(tmp_path / "server" / "credentials.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreVersionUnknown):
        Tokens(tmp_path / "server")


def test_many_may_open_it_for_the_first_time_at_once(tmp_path):
    """All have the same key and the same tables."""
    texts, troubles, start = [], [], threading.Barrier(6)

    def open_and_make():
        try:
            start.wait()
            with Tokens(tmp_path / "server") as opened:
                texts.append(opened.create("ci", [Scope.READ], lifetime=None)[1])
        except Exception as error:
            troubles.append(error)

    threads = [threading.Thread(target=open_and_make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    with Tokens(tmp_path / "server") as opened:
        assert [opened.verify(text) is not None for text in texts] == [True] * 6
