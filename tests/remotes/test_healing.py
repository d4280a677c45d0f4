"""A store that is healed from a remote, of both kinds, to which its commits had been pushed."""

from __future__ import annotations

import pytest

from maintenance.test_verify import DAMAGES
from relive.errors import RemoteUnknown, UsageError
from relive.maintenance.problems import Kind
from relive.maintenance.repair import repair
from relive.remotes.healing import RemoteSource, open_source
from relive.remotes.remote import Remote
from relive.remotes.remote_layout import PIECE_SIZE, part_directory
from relive.store.transfer_parts import PartKind, TransferPart
from store.builders import OLD, commit, contents
from store.test_damage import flip

from .conftest import Host
from .test_push import noise, send


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_healed_from_a_remote(sender: Host, remote: Remote, damage: str) -> None:
    store = sender.store
    # More than one piece, and not a whole number of them.
    one = commit(store, pages=noise(PIECE_SIZE // 4096 + 3), files={"f": b"one"}, version=OLD).id
    send(sender, remote, one)
    before = contents(store, one)
    kind, find, harm, _ = DAMAGES[damage]
    harm(find(store, one))
    done = repair(store, RemoteSource(remote))
    assert ([one.kind for one in done.fetched], done.left) == ([kind], [])
    assert contents(store, one) == before


def test_what_is_damaged_or_cut_there_is_not_taken(sender: Host, directory_remote: Remote) -> None:
    one = commit(sender.store, files={"f": b"one"})
    send(sender, directory_remote, one.id)
    (pack,) = sender.store.internals.packs.names()
    there = open_path(directory_remote, PartKind.PACK, pack)
    flip(there, 40)
    sender.store.internals.packs.path(pack).unlink()
    assert repair(sender.store, RemoteSource(directory_remote)).fetched == []
    there.unlink()
    assert repair(sender.store, RemoteSource(directory_remote)).fetched == []


def open_path(remote: Remote, kind: PartKind, name: str):
    assert remote._directory is not None
    return remote._directory / part_directory(TransferPart(kind, name)) / "000000"


def test_a_source_is_a_store_or_a_remote(sender: Host, directory_remote: Remote, tmp_path) -> None:
    one = commit(sender.store).id
    send(sender, directory_remote, one)
    for text in (directory_remote.url, directory_remote.url.removeprefix("file://"), str(sender.home)):
        assert open_source(text).fetch(Kind.MANIFEST, one, tmp_path / "m")
        assert not open_source(text).fetch(Kind.OBJECT, "0" * 64, tmp_path / "o")
    assert not (tmp_path / "o").exists()
    with pytest.raises(RemoteUnknown):
        open_source((tmp_path / "nothing").as_uri())
    for text in ("", "ftp://host/store", str(tmp_path / "nothing")):
        with pytest.raises(UsageError):
            open_source(text)
