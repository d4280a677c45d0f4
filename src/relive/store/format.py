"""The file ``format``: which version a store has, and by which name it knows its key.

A store of an older version is read as it is and becomes this one before the first commit is taken in, since an older Relive could
not read that one. Version 3 has commits of containers, version 4 overlays in packs, version 5 committed
files in packs, version 6 dictionaries, version 7 dictionaries that continue others.
"""

from __future__ import annotations

import json
from pathlib import Path

from relive.config import STORE_KEY
from relive.errors import KeyMissing, KeyWrong, StoreVersionUnknown
from relive.store.atomic_io import write_whole
from relive.store.keyring import Keyring
from relive.store.pages.sealing import key_name

__all__ = ["StoreFormat"]

_VERSION = 7
_READABLE = (1, 2, 3, 4, 5, 6, _VERSION)


class StoreFormat:
    """Read each time it is asked, since another process may change it."""

    def __init__(self, directory: Path, incoming: Path, keyring: Keyring) -> None:
        self._directory = directory
        self._path = directory / "format"
        self._incoming = incoming
        self._keyring = keyring

    @property
    def noted_key(self) -> str | None:
        """The name of the key that the store is sealed with, None while it is plain."""
        noted = self._read().get("key")
        return None if noted is None else str(noted)

    def check(self) -> None:
        """Write it where there is none; raises StoreVersionUnknown where a newer Relive did."""
        if not self._path.exists():
            self._incoming.mkdir(exist_ok=True)
            self._write({"version": _VERSION})
        self._read()

    def make_writable(self) -> None:
        """Bring it to this version, and note the store key if there is one now.

        Raises:
            StoreVersionUnknown: a newer Relive wrote it.
            KeyMissing: the store is sealed and there is no key; nothing may be written plain to it.
            KeyWrong: the key is another.
        """
        found = self._read()
        store_key = self._keyring.store_key()
        own = None if store_key is None else key_name(store_key)
        noted = found.get("key")
        if noted is not None and own is None:
            raise KeyMissing(
                f"the store {self._directory} is sealed and there is no store key",
                cause="what is committed would be written plain",
                remedy=f"put its `store.key` into the keys directory of RELIVE_HOME, or set {STORE_KEY}",
            )
        if noted not in (None, own, *map(key_name, self._keyring.old_store_keys())):
            raise KeyWrong(
                f"the store {self._directory} is sealed with another store key",
                cause=f"the store knows the key {noted}, the one that is there is {own}",
                remedy=f"put its own `store.key` into the keys directory of RELIVE_HOME, or set {STORE_KEY}",
            )
        wanted: dict[str, object] = {"version": _VERSION} | ({"key": own} if own is not None else {})
        if found != wanted:
            self._write(wanted)

    def _read(self) -> dict[str, object]:
        try:
            found = json.loads(self._path.read_bytes())
            version = found["version"]
        except (ValueError, KeyError, TypeError):
            found, version = {}, None
        if version not in _READABLE or type(version) is not int:
            raise StoreVersionUnknown(
                f"the store {self._directory} has format {version}",
                cause=f"this Relive reads formats {', '.join(map(str, _READABLE))}",
                remedy="use the Relive that wrote it, or another RELIVE_HOME",
            )
        return dict(found)

    def _write(self, value: dict[str, object]) -> None:
        write_whole(self._incoming, self._path, json.dumps(value).encode())
