"""Keys of a store: the Ed25519 key that signs placements, those that are trusted beside it, and the key that seals packs.

They lie in ``$RELIVE_HOME/keys``, beside the store and not in it, so that a copy of the store does not carry them:

- ``signing.key``: 32 bytes, made when it is first needed; readable by its owner alone.
- ``trusted/NAME.pub``: 64 hexadecimal digits, the public key of another host whose commits are accepted.
- ``store.key``: 32 bytes; packs are sealed if it is there.
- ``old/NAME.key``: keys that packs were sealed with before; they are only opened with them. NAME is the key's (``key_name``).
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from relive.errors import KeyMissing, KeyWrong, SignatureInvalid
from relive.store.durable import sync_directory
from relive.store.pages.sealing import key_name

__all__ = ["Keyring", "Signature"]

_KEY_SIZE = 32


@dataclass(frozen=True, slots=True)
class Signature:
    """Raw bytes: the signer's public key (32) and the signature (64)."""

    signer: bytes
    signature: bytes


class Keyring:
    """The keys in one directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store_key(self) -> bytes | None:
        """The key that seals packs, or None; raises KeyWrong where the file holds no key."""
        return self._read("store.key")

    def make_store_key(self) -> bytes:
        """Make a store key unless there is one, and return it; from now on packs are sealed."""
        return self._made("store.key", os.urandom(_KEY_SIZE))

    def take_store_key(self, key: bytes) -> None:
        """Use a key that was made elsewhere.

        Raises:
            KeyWrong: it has not 32 bytes, or there is another store key already.
        """
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
        return [key for key in found if key is not None]

    def rotate_store_key(self, fresh: bytes | None = None) -> bytes:
        """Seal with another key from now on, ``fresh`` or a random one, and return it; the old one still opens.

        A crash leaves the old key or the new one in use, and the old one never lost.

        Raises:
            KeyMissing: there is no store key.
        """
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

    @cached_property
    def _signing_key(self) -> Ed25519PrivateKey:
        fresh = Ed25519PrivateKey.generate().private_bytes_raw()
        return Ed25519PrivateKey.from_private_bytes(self._made("signing.key", fresh))

    @property
    def public_key(self) -> bytes:
        """32 bytes by which other hosts know what this one signed; makes the signing key if there is none."""
        return self._signing_key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> Signature:
        """Sign with this host's key, which is made if there is none."""
        return Signature(self.public_key, self._signing_key.sign(data))

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
        goal = self._directory / name
        with self._draft(data) as draft:
            draft.replace(goal)
        sync_directory(goal.parent)
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
