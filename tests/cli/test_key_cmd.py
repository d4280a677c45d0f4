"""Keys from the command line: what they change, and that no secret is shown or lost."""

from __future__ import annotations

import json
import os

import pytest

from relive import config
from relive.errors import KeyMissing, KeyWrong, SignatureInvalid
from relive.store import Store
from relive.store.keyring import Keyring
from relive.store.pages.sealing import key_name
from store.builders import commit, contents, is_whole

from .test_listing import cells


def is_sealed(store, commit_id):
    placement = store.internals.placements.read(commit_id)
    (name,) = placement.needed()
    return store.internals.packs.path(name).read_bytes()[:9] == b"RELPACK4\1"


def test_from_the_new_key_on_nothing_is_written_without_it(relive, home, store):
    plain = commit(store, capture="1").id
    said = relive("key", "new")
    assert said.status == 0
    assert said.err == f"What is committed from now on is sealed with {said.out.strip()}.\n"
    sealed = commit(store, capture="2").id
    assert (is_sealed(store, plain), is_sealed(store, sealed)) == (False, True)
    key = (home / "keys" / "store.key").read_bytes()
    (home / "keys" / "store.key").unlink()
    with pytest.raises(KeyMissing):
        commit(store, capture="3")
    said = relive("key", "new")
    assert said.status == 7
    assert "(key-missing)" in said.err
    (home / "copy").write_bytes(key)
    assert relive("key", "new", "--from", str(home / "copy")).status == 0
    assert is_whole(store, sealed)
    assert is_whole(store, commit(store, capture="3").id)


def test_without_a_commit_in_between_the_key_is_noted_all_the_same(relive, home, store):
    relive("key", "new")
    (home / "keys" / "store.key").unlink()
    with pytest.raises(KeyMissing):
        commit(store)


def test_after_a_change_old_commits_are_read_and_new_ones_need_the_new_key(relive, home, store):
    assert relive("key", "rotate").status == 7
    first = relive("key", "new").out.strip()
    assert relive("key", "new").status == 2
    one = commit(store, capture="1", pages=os.urandom(8192)).id
    before = contents(store, one)
    second = relive("key", "rotate").out.strip()
    assert first != second
    two = commit(store, capture="2", pages=before[0]["pages-1.img"], parents=[one]).id
    third = relive("key", "rotate").out.strip()
    three = commit(store, capture="3", pages=os.urandom(8192)).id
    assert contents(store, one) == before
    assert is_whole(store, two)
    assert relive("verify", "--data").status == 0
    listed = [cells(line) for line in relive("key", "list").out.splitlines()[1:]]
    assert ["store key", "store.key", third] in listed
    assert {line[2] for line in listed if line[0] == "old store key"} == {first, second}
    # Each needs its own key: the new one opens nothing old, the old ones nothing new.
    old = {name: (home / "keys" / "old" / f"{name}.key") for name in (first, second)}
    old[first].rename(home / "away")
    with pytest.raises(KeyWrong):
        contents(store, one)
    assert is_whole(store, three)
    (home / "away").rename(old[first])
    (home / "keys" / "store.key").rename(home / "away")
    with pytest.raises(KeyWrong):
        contents(store, three)
    assert contents(store, one) == before
    with pytest.raises(KeyMissing):
        commit(store, capture="4")
    listed = [cells(line) for line in relive("key", "list").out.splitlines()[1:]]
    assert ["missing store key", "-", third] in listed


def test_no_secret_is_shown(relive, home):
    relive("key", "new")
    relive("key", "rotate")
    secrets = [path.read_bytes().hex() for path in (home / "keys").rglob("*.key")]
    assert len(secrets) == 2
    assert relive("key", "list").status == 0
    secrets = [path.read_bytes().hex() for path in (home / "keys").rglob("*.key")]
    assert len(secrets) == 3  # the signer's, too
    for said in (relive("key", "list"), relive("key", "list", "--json")):
        assert not any(secret in said.out + said.err for secret in secrets)


def test_a_host_that_is_trusted_can_give_commits(relive, home, store, tmp_path):
    one = commit(store).id
    (home / "keys").rename(tmp_path / "elsewhere")
    with pytest.raises(SignatureInvalid):
        contents(Store(home / "store"), one)
    signer = Keyring(tmp_path / "elsewhere").public_key.hex()
    (tmp_path / "host.pub").write_text(signer + "\n")
    said = relive("key", "trust", str(tmp_path / "host.pub"), "--name", "build-host")
    assert str(said) == f"{signer}\n! Commits that build-host signed are accepted.\n= 0"
    assert is_whole(Store(home / "store"), one)
    found = json.loads(relive("key", "list", "--json").out)
    assert {"kind": "trusted", "name": "build-host", "key": signer} in found
    assert relive("key", "trust", signer.upper()).status == 0
    assert (home / "keys" / "trusted" / f"{signer[:10]}.pub").read_text() == signer + "\n"


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "/nonexistent", "."])
def test_what_is_no_public_key_is_refused(relive, home, text):
    said = relive("key", "trust", text)
    assert (said.status, said.out) == (2, "")
    assert not (home / "keys" / "trusted").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x"])
def test_a_signers_name_is_no_path(relive, home, name):
    assert relive("key", "trust", "ab" * 32, "--name", name).status == 2


@pytest.mark.parametrize("command", ["new", "rotate"])
@pytest.mark.parametrize("data", [b"", b"x" * 31, b"x" * 33, None])
def test_a_file_that_holds_no_key_is_refused_and_changes_nothing(relive, home, tmp_path, command, data):
    if command == "rotate":
        relive("key", "new")
    before = {path: path.read_bytes() for path in (home / "keys").rglob("*.key")}
    if data is not None:
        (tmp_path / "file").write_bytes(data)
    assert relive("key", command, "--from", str(tmp_path / "file")).status == (2 if data is None else 7)
    assert {path: path.read_bytes() for path in (home / "keys").rglob("*.key")} == before


def test_another_signing_key_is_told_for_the_other_hosts(relive, home, store):
    one = commit(store).id
    said = relive("key", "rotate-signing")
    assert said.status == 0
    assert said.out.strip() == Keyring(home / "keys").public_key.hex()
    assert "relive key trust" in said.err
    assert is_whole(Store(home / "store"), one)
    found = json.loads(relive("key", "rotate-signing", "--disown", "--json").out)
    assert found == {"signer": Keyring(home / "keys").public_key.hex(), "signed_anew": 1}
    assert Keyring(home / "keys").trusted() == {}
    assert is_whole(Store(home / "store"), one)
    assert relive("key", "trust", "ab" * 32, "--name", "own-x").status == 2


@pytest.fixture
def given(monkeypatch):
    """Sets the variable for the commands that follow; which of them takes it out of the environment is all the same."""

    def set_to(*keys: bytes) -> None:
        monkeypatch.setattr(config, "_given_keys", ())
        monkeypatch.setenv(config.STORE_KEY, ",".join(key.hex() for key in keys))

    monkeypatch.setattr(config, "_given_keys", ())
    return set_to


def test_a_key_of_the_environment_seals_and_lies_in_no_file(relive, home, given):
    key, other = os.urandom(32), os.urandom(32)
    given(key)
    assert relive("log").status == 0
    assert config.STORE_KEY not in os.environ
    store = Store(home / "store")
    one = commit(store, capture="1", pages=b"secret" * 1000).id
    assert is_sealed(store, one)
    listed = [cells(line) for line in relive("key", "list").out.splitlines()[1:]]
    assert ["store key", "RELIVE_STORE_KEY", key_name(key)] in listed
    for command in ("new", "rotate"):
        assert relive("key", command).status == 7
    for path in home.rglob("*"):
        assert not path.is_file() or (
            key not in path.read_bytes() and key.hex().encode() not in path.read_bytes()
        )
    given(other)
    relive("log")
    with pytest.raises(KeyWrong):
        contents(store, one)
    with pytest.raises(KeyWrong):
        commit(store, capture="2")
    given(other, key)
    relive("log")
    assert is_whole(store, one)
    two = commit(store, capture="2").id
    listed = [cells(line) for line in relive("key", "list").out.splitlines()[1:]]
    assert ["old store key", "RELIVE_STORE_KEY", key_name(key)] in listed
    given(other)
    relive("log")
    assert is_whole(store, two)
    given()
    relive("log")
    with pytest.raises(KeyMissing) as caught:
        contents(store, two)
    assert "RELIVE_STORE_KEY" in str(caught.value.cause)
    with pytest.raises(KeyMissing) as caught:
        commit(store, capture="3")
    assert "RELIVE_STORE_KEY" in str(caught.value.remedy)
    store.close()


def test_a_key_of_the_environment_beside_another_in_a_file_is_refused(relive, home, given):
    relive("key", "new")
    filed = (home / "keys" / "store.key").read_bytes()
    given(os.urandom(32))
    relive("log")
    store = Store(home / "store")
    with pytest.raises(KeyWrong, match="two different keys"):
        commit(store)
    given(filed)
    relive("log")
    assert is_whole(store, commit(store).id)
    store.close()


@pytest.mark.parametrize("text", ["", "abc", "00" * 31, "00" * 32 + ",", "gg" * 32, "00" * 32 + ",11"])
def test_a_variable_that_holds_no_key_is_refused_and_not_shown(relive, home, given, monkeypatch, text):
    given()
    monkeypatch.setenv(config.STORE_KEY, text)
    said = relive("log")
    assert said.status == (0 if text == "" else 2)
    assert text == "" or text not in said.err
    assert text == "" or "RELIVE_STORE_KEY" in said.err


def test_an_agent_does_not_exchange_its_key_for_one_that_leaves_it_out(given):
    first, second = os.urandom(32), os.urandom(32)
    given(first)
    assert config.given_store_keys() == (first,)
    config.give_store_keys(second.hex())
    assert config.given_store_keys() == (first,)
    config.give_store_keys(f"{second.hex()},{first.hex()}")
    assert config.given_store_keys() == (second, first)
    assert config.store_key_variable() == {"RELIVE_STORE_KEY": f"{second.hex()},{first.hex()}"}
