"""Another signing key: what was signed before stays accepted, or is signed anew and the old key accepted no more."""

from __future__ import annotations

import pytest

from relive.errors import SignatureInvalid
from relive.maintenance.signers import change_signer
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.keyring import Keyring
from store.builders import commit, is_whole
from store.test_damage import flip


def test_what_the_old_key_signed_is_accepted_and_the_new_one_signs(store, home):
    one = commit(store, capture="1").id
    old = Keyring(home.parent / "keys").public_key
    long_open = Store(home)  # such as an agent's, from before the change
    new, count = change_signer(store, disown=False)
    assert (Keyring(home.parent / "keys").public_key, count) == (new, 0)
    assert new != old
    two = commit(long_open, capture="2", parents=[one]).id
    assert is_whole(store, one)
    assert is_whole(long_open, two)
    assert signer(store, one) == old
    assert signer(store, two) == new
    assert Keyring(home.parent / "keys").own_before() == {old}
    long_open.close()


def signer(store: Store, commit_id: CommitId) -> bytes:
    found = {
        key
        for key in (*store.internals.keyring.own_before(), store.internals.keyring.public_key)
        if key in store.internals.placements.raw(commit_id)
    }
    (only,) = found
    return only


def test_a_key_that_is_disowned_signs_nothing_that_is_accepted(store, home, tmp_path):
    """GIVEN commits of this host, by two keys, one of a friend, and a damaged one."""
    keys = home.parent / "keys"
    one = commit(store, capture="1").id
    change_signer(store, disown=False)
    two = commit(store, capture="2").id
    damaged = commit(store, capture="3").id
    flip(store.internals.directory / "placements" / damaged, 9)
    friend = Keyring(tmp_path / "friend")
    Keyring(keys).trust("friend", friend.public_key)
    third = commit(store, capture="4").id
    theirs = Store(home, friend)
    friend.trust("host", Keyring(keys).public_key)
    theirs.internals.placements.write(theirs.internals.placements.read(third))
    stolen = (keys / "signing.key").read_bytes()
    before = store.internals.placements.raw(third)

    _, count = change_signer(store, disown=True)

    assert count == 2
    assert store.internals.placements.raw(third) == before
    assert Keyring(keys).own_before() == set()
    here = Store(home)
    assert all(is_whole(here, commit_id) for commit_id in (one, two, third))
    assert verify(here).spoiled == [damaged]
    (tmp_path / "thief").mkdir()
    (tmp_path / "thief" / "signing.key").write_bytes(stolen)
    thief = Keyring(tmp_path / "thief")
    thief.trust("host", Keyring(keys).public_key)
    theirs = Store(home, thief)
    theirs.internals.placements.write(theirs.internals.placements.read(one))
    with pytest.raises(SignatureInvalid, match="not trusted"):
        is_whole(here, one)
