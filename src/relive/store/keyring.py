"""Keys of a store: the Ed25519 key that signs placements, those that are trusted beside it, and the key that seals packs.

They lie in ``$RELIVE_HOME/keys``, beside the store and not in it, so that a copy of the store does not carry them:

- ``signing.key``: 32 bytes, made when it is first needed; readable by its owner alone.
- ``trusted/NAME.pub``: 64 hexadecimal digits, the public key of another host whose commits are accepted.
- ``store.key``: 32 bytes; packs are sealed if it is there.
- ``old/NAME.key``: keys that packs were sealed with before; they are only opened with them. NAME is the key's (``key_name``).

Store keys may be given by the environment instead (``relive.config``): then they lie in no file.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from relive.config import STORE_KEY
from relive.errors import KeyMissing, KeyWrong, SignatureInvalid
from relive.kernel.atomic_write import sync_directory
from relive.store.pages.sealing import key_name

__all__ = ["OWN_BEFORE", "Keyring", "Signature"]

_KEY_SIZE = 32
OWN_BEFORE = "own-"  # how keys are called in ``trusted`` by which this host has signed before


@dataclass(frozen=True, slots=True)
class Signature:
    """Raw bytes: the signer's public key (32) and the signature (64)."""

    signer: bytes
    signature: bytes


class Keyring:
    """The keys in one directory, which need not exist."""

    def __init__(self, directory: Path, given: Callable[[], Sequence[bytes]] = lambda: ()) -> None:
        """``given`` tells store keys that lie in no file, the one that seals first; asked whenever one is needed."""
        self._directory = directory
        self._given = given
        self._unpacked: tuple[bytes, Ed25519PrivateKey] | None = (
            None  # the signing key as its file had it last
        )

    @property
    def is_given(self) -> bool:
        """The store key does not lie in a file."""
        return bool(self._given())

    def store_key(self) -> bytes | None:
        """The key that seals packs, or None.

        Raises:
            KeyWrong: the file holds no key, or another one than those that were given.
        """
        given, filed = self._given(), self._read("store.key")
        if not given:
            return filed
        if filed not in (None, *given):
            # Else a variable that was left over would have the store sealed with another key, unnoticed.
            raise KeyWrong(
                f"{STORE_KEY} and {self._directory / 'store.key'} hold two different keys",
                cause="it cannot be told which of them is to seal",
                remedy=f"unset {STORE_KEY}, or name the file's key behind it and a comma",
            )
        return given[0]

    def make_store_key(self) -> bytes:
        """Make a store key unless there is one, and return it; from now on packs are sealed.

        Raises:
            KeyWrong: keys were given, beside which none is made.
        """
        self._refuse_given()
        return self._made("store.key", os.urandom(_KEY_SIZE))

    def _refuse_given(self) -> None:
        if self.is_given:
            raise KeyWrong(
                f"the store key comes from {STORE_KEY}",
                cause="a key in a file beside it would not be used",
                remedy=f"to change it, put a new one and a comma in front of it in {STORE_KEY}; or unset that",
            )

    def adopt_store_key(self, key: bytes) -> None:
        """Use a key that was made elsewhere.

        Raises:
            KeyWrong: it has not 32 bytes, or there is another store key already, or one was given.
        """
        self._refuse_given()
        if len(key) != _KEY_SIZE:
            raise KeyWrong("this is no store key", cause=f"a key has {_KEY_SIZE} bytes, this {len(key)}")
        if self._made("store.key", key) != key:
            raise KeyWrong(
                "there is another store key already",
                cause=f"it lies in {self._directory}",
                remedy="`relive key rotate` changes it and keeps what was sealed readable",
            )

    def old_store_keys(self) -> list[bytes]:
        """Keys that packs were sealed with before, in no order; raises KeyWrong where a file holds no key."""
        names = sorted(path.name for path in (self._directory / "old").glob("*.key"))
        found = [self._read(f"old/{name}") for name in names]
        return [*self._given()[1:], *(key for key in found if key is not None)]

    def rotate_store_key(self, fresh: bytes | None = None) -> bytes:
        """Seal with another key from now on, ``fresh`` or a random one, and return it; the old one still opens.

        A crash leaves the old key or the new one in use, and the old one never lost.

        Raises:
            KeyMissing: there is no store key.
            KeyWrong: ``fresh`` is none, or the key was given.
        """
        self._refuse_given()
        old = self.store_key()
        if old is None:
            raise KeyMissing("there is no store key to change", remedy="`relive key new` makes one")
        fresh = fresh if fresh is not None else os.urandom(_KEY_SIZE)
        if len(fresh) != _KEY_SIZE:
            raise KeyWrong("this is no store key", cause=f"a key has {_KEY_SIZE} bytes, this {len(fresh)}")
        (self._directory / "old").mkdir(mode=0o700, exist_ok=True)
        self._write(f"old/{key_name(old)}.key", old)
        self._write("store.key", fresh)
        return fresh

    def trusted(self) -> dict[str, bytes]:
        """Public keys of other hosts by the names they were given; files that hold none are passed over."""
        found = {}
        for path in sorted((self._directory / "trusted").glob("*.pub")):
            with contextlib.suppress(ValueError):
                found[path.stem] = bytes.fromhex(path.read_text().strip())
        return found

    def trust(self, name: str, public_key: bytes) -> None:
        """Accept from now on what the host with this public key has signed; durable on return.

        Raises:
            KeyWrong: it is no Ed25519 key.
        """
        try:
            Ed25519PublicKey.from_public_bytes(public_key)
        except ValueError as error:
            raise KeyWrong("this is no public key", cause=str(error)) from error
        (self._directory / "trusted").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(f"trusted/{name}.pub", f"{public_key.hex()}\n".encode())

    def _signing_key(self) -> Ed25519PrivateKey:
        # Read each time: another process may have changed it.
        found = self._read("signing.key")
        if found is None:
            found = self._made("signing.key", Ed25519PrivateKey.generate().private_bytes_raw())
        if self._unpacked is None or self._unpacked[0] != found:
            self._unpacked = found, Ed25519PrivateKey.from_private_bytes(found)
        return self._unpacked[1]

    @property
    def public_key(self) -> bytes:
        """32 bytes by which other hosts know what this one signed; makes the signing key if there is none."""
        return self._signing_key().public_key().public_bytes_raw()

    def sign(self, data: bytes) -> Signature:
        """Sign with this host's key, which is made if there is none."""
        key = self._signing_key()
        return Signature(key.public_key().public_bytes_raw(), key.sign(data))

    def rotate_signing_key(self) -> bytes:
        """Sign with another key from now on, and return its public key.

        The old one becomes one of those that are trusted (``own_before``), so what it has signed is accepted as before. Nobody
        can sign with it any more, unless it was copied. A crash leaves the old key or the new one in use.
        """
        old, fresh = self.public_key, Ed25519PrivateKey.generate()
        self.trust(f"{OWN_BEFORE}{old.hex()[:10]}", old)
        self._write("signing.key", fresh.private_bytes_raw())
        return fresh.public_key().public_bytes_raw()

    def own_before(self) -> set[bytes]:
        """Public keys by which this host has signed before."""
        return {key for name, key in self.trusted().items() if name.startswith(OWN_BEFORE)}

    def disown(self) -> None:
        """Accept nothing any more that only a key of before has signed."""
        for name in self.trusted():
            if name.startswith(OWN_BEFORE):
                (self._directory / "trusted" / f"{name}.pub").unlink(missing_ok=True)
        sync_directory(self._directory / "trusted")
        self.__dict__.pop("_trusted", None)

    def verify(self, what: str, signature: Signature, data: bytes) -> None:
        """Accept what this host or a trusted one has signed.

        Raises:
            SignatureInvalid: another did, or it was changed since; ``what`` names it.
        """
        if signature.signer not in self._trusted:
            self.__dict__.pop("_trusted", None)  # another process may have made the key meanwhile
        if signature.signer not in self._trusted:
            raise SignatureInvalid(
                f"{what} is signed by a key that is not trusted",
                cause=f"the signer's public key is {_shown(signature.signer)}",
                remedy="if you trust it: `relive key trust` and that line",
            )
        try:
            Ed25519PublicKey.from_public_bytes(signature.signer).verify(signature.signature, data)
        except (InvalidSignature, ValueError, TypeError):
            raise SignatureInvalid(
                f"the signature of {what} is not valid",
                cause="it was changed after it was signed",
                remedy="use another commit (`relive log`); do not trust this one",
            ) from None

    @cached_property
    def _trusted(self) -> set[bytes]:
        trusted = set()
        own = self._read("signing.key")
        if own is not None:
            trusted.add(Ed25519PrivateKey.from_private_bytes(own).public_key().public_bytes_raw())
        trusted.update(self.trusted().values())
        return trusted

    def _read(self, name: str) -> bytes | None:
        try:
            key = (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        if len(key) != _KEY_SIZE:
            raise KeyWrong(
                f"{self._directory / name} holds no key",
                cause=f"a key has {_KEY_SIZE} bytes, the file {len(key)}",
                remedy="put the right file there",
            )
        return key

    def _made(self, name: str, fresh: bytes) -> bytes:
        """The key of that name; ``fresh`` becomes it where there is none. Several processes may do so at once."""
        found = self._read(name)
        if found is not None:
            return found
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._draft(fresh) as draft, contextlib.suppress(FileExistsError):
            os.link(draft, self._directory / name)  # else another process was first: its key counts
        sync_directory(self._directory)
        made = self._read(name)
        assert made is not None
        return made

    def _write(self, name: str, data: bytes) -> None:
        """Put a file there, replacing what is there; durable on return."""
        target = self._directory / name
        with self._draft(data) as draft:
            draft.replace(target)
        sync_directory(target.parent)
        sync_directory(self._directory)

    @contextlib.contextmanager
    def _draft(self, data: bytes) -> Iterator[Path]:
        """A file with these bytes, synced, for its owner alone; to be given a name of its own within."""
        draft = self._directory / f".draft.{uuid.uuid4().hex}"
        try:
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def _shown(key: object) -> str:
    return key.hex() if isinstance(key, bytes) else "none"
