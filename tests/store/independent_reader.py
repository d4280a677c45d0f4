"""Reads the images and files of a commit from a store by docs/format.md alone; nothing of Relive is imported.

Slow and simple on purpose: what it does, another program in another language could do as well.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgpack
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PAGE = 4096


INDEX, OVERLAY, WORDS, DELTA, DICTIONARY = (1 << bit for bit in (31, 30, 29, 28, 27))


def read_pack(path: Path, store_key: bytes | None) -> list[tuple[bytes, int]]:
    """(compressed frame, second field of its entry) of each frame."""
    data = path.read_bytes()
    (count,) = struct.unpack("<I", data[-4:])
    table = data[len(data) - 4 - 40 * count :]
    head = data[:32]
    assert blake3(head + table).hexdigest() == path.name
    magic, flags, zero, pack_id = struct.unpack("<8sII16s", head)
    assert magic in (b"RELPACK2", b"RELPACK3", b"RELPACK4")
    assert zero == 0
    frames, offset = [], 32
    for number in range(count):
        stored, field, checksum = struct.unpack_from("<II32s", table, 40 * number)
        frame = data[offset : offset + stored]
        assert blake3(frame).digest() == checksum
        if flags & 1:
            assert store_key is not None
            key = HKDF(algorithm=SHA256(), length=32, salt=pack_id, info=b"relive pack 2").derive(store_key)
            frame = AESGCM(key).decrypt(number.to_bytes(12, "little"), frame, head)
        frames.append((frame, field))
        offset += stored
    assert offset == len(data) - len(table)
    return frames


def bases_of(placement: dict[str, Any]) -> list[list[int]]:
    if placement["version"] == 3:
        return list(placement["bases"])
    return [] if placement["base"] is None else [placement["base"]]


def decompress(frame: tuple[bytes, int], dictionary: bytes | None = None) -> bytes:
    stored, field = frame
    given = zstandard.ZstdCompressionDict(dictionary, zstandard.DICT_TYPE_RAWCONTENT) if dictionary else None
    data = zstandard.ZstdDecompressor(given, max_window_size=1 << 27).decompress(stored)
    assert len(data) == field & (0x3FFF_FFFF if field & INDEX else 0xF_FFFF)
    return data


def read_column(data: bytes, kind: str) -> list[int]:
    count = len(data) // 4
    numbers, total = [], 0
    for position in range(count):
        difference = sum(data[plane * count + position] << 8 * plane for plane in range(4))
        total = (total + difference) % 2**32
        numbers.append(struct.unpack(kind, struct.pack("<I", total))[0])
    return numbers


def read_placement(path: Path, signer: bytes) -> dict[str, Any]:
    body, checksum, public_key, signature = msgpack.unpackb(path.read_bytes())
    assert blake3(body).digest() == checksum
    assert public_key == signer
    Ed25519PublicKey.from_public_bytes(public_key).verify(signature, b"relive placement 2\0" + body)
    found: dict[str, Any] = msgpack.unpackb(body)
    assert found["version"] in (2, 3)
    assert found["commit"].hex() == path.name
    return found


class Commit:
    """One commit, opened: its manifest, its index, and pages by where they lie."""

    def __init__(self, store: Path, commit: str, signer: bytes, store_key: bytes | None = None) -> None:
        text = (store / "manifests" / f"{commit}.json").read_bytes()
        assert blake3(text).hexdigest() == commit
        self.manifest = json.loads(text)
        placement = read_placement(store / "placements" / commit, signer)
        self._packs = [
            None if name is None else read_pack(store / "packs" / name.hex(), store_key)
            for name in placement["packs"]
        ]
        self._pages: dict[tuple[int, int], bytes] = {}
        self._dictionaries: dict[tuple[int, int], bytes] = {}
        blob = None
        for place in [*bases_of(placement), placement["index"]]:
            blob = decompress(self._frame(place), blob)
        self.index = msgpack.unpackb(blob)
        named = {(user, is_words * WORDS): own for user, is_words, own in self.index.get("dictionaries", [])}
        for (user, kind), own in named.items():
            self._dictionaries[user, kind] = self._dictionary(own, kind, named)

    def _dictionary(self, pack: int, kind: int, named: dict[tuple[int, int], int]) -> bytes:
        """That of a pack, behind the one that it continues."""
        frames = [
            frame for frame in self._packs[pack] or [] if frame[1] & DICTIONARY and frame[1] & WORDS == kind
        ]
        begin = b""
        if frames[0][1] & DELTA:
            assert named[pack, kind] < pack
            begin = self._dictionary(named[pack, kind], kind, named)
        return begin + b"".join(decompress(frame, begin) for frame in frames)

    def _frame(self, place: list[int]) -> tuple[bytes, int]:
        pack = self._packs[place[0]]
        assert pack is not None
        return pack[place[1]]

    def _opened(self, pack: int, number: int) -> bytes:
        key = (pack, number)
        if key not in self._pages:
            frame = self._frame(list(key))
            needs = (pack, frame[1] & WORDS)
            self._pages[key] = decompress(frame, self._dictionaries[needs] if frame[1] & DELTA else None)
        return self._pages[key]

    def _page(self, pack: int, slot: int) -> bytes:
        return self._opened(pack, slot // 128)[slot % 128 * PAGE :][:PAGE]

    def _words(self, pack: int, slot: int) -> dict[int, bytes]:
        """Changed words by their numbers."""
        data, count = self._opened(pack, slot // 128), (self._frame([pack, slot // 128])[1] >> 20 & 127) + 1
        maps = [int.from_bytes(data[64 * page : 64 * (page + 1)], "little") for page in range(count)]
        at = 64 * count + 8 * sum(found.bit_count() for found in maps[: slot % 128])
        numbers = [word for word in range(512) if maps[slot % 128] >> word & 1]
        return {word: data[at + 8 * place :][:8] for place, word in enumerate(numbers)}

    def read_table(self, columns: list[bytes]) -> list[bytes]:
        """The pages of a table."""
        found = []
        numbers = (read_column(column, kind) for column, kind in zip(columns, ("<i", "<I") * 2, strict=True))
        for full_pack, full_slot, xor_pack, xor_slot in zip(*numbers, strict=True):
            content = bytes(PAGE) if full_pack == -1 else self._page(full_pack, full_slot)
            kind = 0 if xor_pack == -1 else self._frame([xor_pack, xor_slot // 128])[1]
            if kind & WORDS:
                new_words = self._words(xor_pack, xor_slot)
                old_words = (content[at : at + 8] for at in range(0, PAGE, 8))
                content = b"".join(new_words.get(word, old) for word, old in enumerate(old_words))
            elif xor_pack != -1:
                change = self._page(xor_pack, xor_slot)
                words = [(content[at : at + 8], change[at : at + 8]) for at in range(0, PAGE, 8)]
                if kind & OVERLAY:
                    content = b"".join(old if new == bytes(8) else new for old, new in words)
                else:
                    content = b"".join(
                        bytes(a ^ b for a, b in zip(old, new, strict=True)) for old, new in words
                    )
            found.append(content)
        return found


def read_images(store: Path, commit: str, signer: bytes, store_key: bytes | None = None) -> dict[str, bytes]:
    """All CRIU image files of a commit."""
    found = Commit(store, commit, signer, store_key)
    images = {name: b"".join(found.read_table(columns)) for name, columns in found.index["tables"].items()}
    images["bundle"] = found.index["bundle"]
    for image in found.manifest["images"]:
        images[image["name"]] = images[image["name"]][: image["size"]]
        assert blake3(images[image["name"]]).hexdigest() == image["object"]
    small: dict[str, bytes] = msgpack.unpackb(images.pop("bundle"))
    return images | small


def read_files(store: Path, commit: str, signer: bytes, store_key: bytes | None = None) -> dict[str, bytes]:
    """All files of a commit by their paths."""
    found = Commit(store, commit, signer, store_key)
    listing = found.index["listing"]
    facts = found.manifest["listing"]
    assert (blake3(listing).hexdigest(), len(listing)) == (facts["object"], facts["size"])
    kept = found.index["contents"]
    names = [kept["names"][at : at + 32].hex() for at in range(0, len(kept["names"]), 32)]
    low, high = (read_column(column, "<I") for column in kept["sizes"])
    pages, contents, begin = found.read_table(kept["table"]), {}, 0
    for name, size in zip(names, (a + (b << 32) for a, b in zip(low, high, strict=True)), strict=True):
        count = (size + PAGE - 1) // PAGE
        contents[name] = b"".join(pages[begin : begin + count])[:size]
        assert blake3(contents[name]).hexdigest() == name
        begin += count
    assert begin == len(pages)
    entries = [
        entry for layer in json.loads(listing) for entry in layer["entries"] if entry["kind"] == "file"
    ]
    assert sum(entry.get("size", 0) for entry in entries) == facts["files"]
    return {entry["path"]: contents[entry["object"]] for entry in entries}
