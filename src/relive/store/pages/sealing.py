"""Sealing frames: AES-256-GCM under a key that each pack has for itself, derived from the store key and the pack's id.

A frame's nonce is its number. That is safe because the key belongs to one pack alone (its id is 16 random bytes) and a
frame of a pack is sealed once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from relive.errors import KeyWrong

__all__ = ["FrameSeal", "key_name", "open_with_any"]

_NONCE_SIZE = 12


class FrameSeal:
    """Seals and opens the frames of one pack; ``head`` are the pack's first bytes, which are authenticated along."""

    def __init__(self, store_key: bytes, pack_id: bytes, head: bytes) -> None:
        self._cipher = AESGCM(_derive(store_key, pack_id, b"relive pack 2"))
        self._head = head

    def seal(self, number: int, frame: bytes) -> bytes:
        """Frame ``number``, which must not be sealed twice with different content."""
        return self._cipher.encrypt(_nonce(number), frame, self._head)

    def open(self, number: int, sealed: bytes) -> bytes:
        """Raises KeyWrong where it was sealed under another key."""
        try:
            return self._cipher.decrypt(_nonce(number), sealed, self._head)
        except InvalidTag:
            raise KeyWrong(
                "a pack cannot be opened with this store key",
                cause="it was sealed under another",
                remedy="put the store key it was written with into the keys directory of RELIVE_HOME",
            ) from None


def open_with_any(seals: Sequence[FrameSeal], number: int, sealed: bytes) -> tuple[FrameSeal, bytes]:
    """The one of some seals (at least one) that opens a frame, and the frame; raises KeyWrong where none does."""
    *others, last = seals
    for seal in others:
        with contextlib.suppress(KeyWrong):
            return seal, seal.open(number, sealed)
    return last, last.open(number, sealed)


def key_name(store_key: bytes) -> str:
    """32 hexadecimal digits by which a store knows its key again, and which tell nothing about it."""
    return _derive(store_key, b"", b"relive key name")[:16].hex()


def _derive(store_key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=purpose).derive(store_key)


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_SIZE, "little")
