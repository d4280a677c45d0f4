"""Reads the images of a commit from a store by docs/format.md alone; nothing of Relive is imported.

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


def read_pack(path: Path, store_key: bytes | None) -> list[tuple[bytes, int, bool]]:
    """(compressed frame, bytes when decompressed, it holds overlays) of each frame."""
    data = path.read_bytes()
    (count,) = struct.unpack("<I", data[-4:])
    table = data[len(data) - 4 - 40 * count :]
    head = data[:32]
    assert blake3(head + table).hexdigest() == path.name
    magic, flags, zero, pack_id = struct.unpack("<8sII16s", head)
    assert (magic, zero) == (b"RELPACK2", 0)
    frames, offset = [], 32
    for number in range(count):
        stored, raw, checksum = struct.unpack_from("<II32s", table, 40 * number)
        frame = data[offset : offset + stored]
        assert blake3(frame).digest() == checksum
        if flags & 1:
            assert store_key is not None
            key = HKDF(algorithm=SHA256(), length=32, salt=pack_id, info=b"relive pack 2").derive(store_key)
            frame = AESGCM(key).decrypt(number.to_bytes(12, "little"), frame, head)
        frames.append((frame, raw & 0x3FFF_FFFF, bool(raw >> 30 & 1)))
        offset += stored
    assert offset == len(data) - len(table)
    return frames


def decompress(frame: tuple[bytes, int, bool], dictionary: bytes | None = None) -> bytes:
    stored, raw, _ = frame
    given = zstandard.ZstdCompressionDict(dictionary, zstandard.DICT_TYPE_RAWCONTENT) if dictionary else None
    data = zstandard.ZstdDecompressor(given, max_window_size=1 << 27).decompress(stored)
    assert len(data) == raw
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
    assert found["version"] == 2
    assert found["commit"].hex() == path.name
    return found


def read_images(store: Path, commit: str, signer: bytes, store_key: bytes | None = None) -> dict[str, bytes]:
    """All CRIU image files of a commit."""
    text = (store / "manifests" / f"{commit}.json").read_bytes()
    assert blake3(text).hexdigest() == commit
    manifest = json.loads(text)
    placement = read_placement(store / "placements" / commit, signer)
    packs = [
        None if name is None else read_pack(store / "packs" / name.hex(), store_key)
        for name in placement["packs"]
    ]

    def frame(place: list[int]) -> tuple[bytes, int, bool]:
        pack = packs[place[0]]
        assert pack is not None
        return pack[place[1]]

    pages: dict[tuple[int, int], bytes] = {}

    def page(pack: int, slot: int) -> bytes:
        key = (pack, slot // 128)
        if key not in pages:
            pages[key] = decompress(frame(list(key)))
        return pages[key][slot % 128 * PAGE :][:PAGE]

    base = None if placement["base"] is None else decompress(frame(placement["base"]))
    index = msgpack.unpackb(decompress(frame(placement["index"]), base))
    images = {"bundle": index["bundle"]}
    for name, columns in index["tables"].items():
        parts = []
        numbers = (read_column(column, kind) for column, kind in zip(columns, ("<i", "<I") * 2, strict=True))
        for full_pack, full_slot, xor_pack, xor_slot in zip(*numbers, strict=True):
            content = bytes(PAGE) if full_pack == -1 else page(full_pack, full_slot)
            if xor_pack != -1:
                change = page(xor_pack, xor_slot)
                words = [(content[at : at + 8], change[at : at + 8]) for at in range(0, PAGE, 8)]
                if frame([xor_pack, xor_slot // 128])[2]:
                    content = b"".join(old if new == bytes(8) else new for old, new in words)
                else:
                    content = b"".join(
                        bytes(a ^ b for a, b in zip(old, new, strict=True)) for old, new in words
                    )
            parts.append(content)
        images[name] = b"".join(parts)
    for image in manifest["images"]:
        images[image["name"]] = images[image["name"]][: image["size"]]
        assert blake3(images[image["name"]]).hexdigest() == image["object"]
    small: dict[str, bytes] = msgpack.unpackb(images.pop("bundle"))
    return images | small
