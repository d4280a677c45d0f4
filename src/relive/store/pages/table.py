"""Tables: where each page of a page file lies. And the index, the one blob of a commit that holds tables and small images.

A place is one number, ``pack << 32 | slot``; the pack is a position in the placement's list of packs. The bytes of an index
are specified in docs/format.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgpack
import numpy as np

from relive.errors import ObjectCorrupt
from relive.store.pages.differ import Numbers

__all__ = ["NOWHERE", "Index", "Table", "decode_index", "encode_index", "pack_of", "place", "slot_of"]

NOWHERE = -1  # as the place of a full version: the page is all zeros; of an XOR: there is none
_PLANES = 4  # bytes of a column's numbers
_SLOT_MASK = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Table:
    """For each page, in the file's order, the place of its last full version and of its XOR with that."""

    full: Numbers
    xor: Numbers

    @classmethod
    def of_zeros(cls, pages: int) -> Table:
        """So many pages that are all zeros."""
        return cls(np.full(pages, NOWHERE, np.int64), np.full(pages, NOWHERE, np.int64))


@dataclass(frozen=True, slots=True)
class Index:
    """What a commit has beside pages.

    Attributes:
        bundle: the small images, as ``store`` packs them.
        tables: by the names of the page files.
    """

    bundle: bytes
    tables: Mapping[str, Table]


def place(pack: int, slots: Numbers) -> Numbers:
    """Places of slots of one pack."""
    return slots | (pack << 32)


def pack_of(places: Numbers) -> Numbers:
    """Positions in the list of packs; -1 for NOWHERE."""
    return places >> 32


def slot_of(places: Numbers) -> Numbers:
    """Slots; of NOWHERE all 32 bits are set."""
    return places & _SLOT_MASK


def encode_index(index: Index) -> bytes:
    """Msgpack; each table as four columns."""
    tables = {
        name: [
            _encode_column(pack_of(table.full)),
            _encode_column(slot_of(table.full)),
            _encode_column(pack_of(table.xor)),
            _encode_column(slot_of(table.xor)),
        ]
        for name, table in sorted(index.tables.items())
    }
    packed: bytes = msgpack.packb({"bundle": index.bundle, "tables": tables})
    return packed


def decode_index(data: bytes) -> Index:
    """The opposite; raises ObjectCorrupt where the bytes are none."""
    try:
        value = msgpack.unpackb(data)
        bundle, tables = value["bundle"], value["tables"]
        if not isinstance(bundle, bytes):
            raise TypeError("the small images are no bytes")
        return Index(bundle, {str(name): _decode_table(columns) for name, columns in tables.items()})
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.exceptions.UnpackException) as error:
        raise ObjectCorrupt(
            "the commit's index cannot be read",
            cause=f"{type(error).__name__}: {error}",
            remedy="do not trust it",
        ) from error


def _encode_column(numbers: Numbers) -> bytes:
    """Differences, modulo 2**32, byte planes from the lowest: runs of pages become runs of equal bytes."""
    differences = np.diff(numbers.astype(np.uint32), prepend=np.uint32(0))
    return np.ascontiguousarray(differences.astype("<u4").view(np.uint8).reshape(-1, _PLANES).T).tobytes()


def _decode_table(columns: Sequence[bytes]) -> Table:
    full_packs, full_slots, xor_packs, xor_slots = (_decode_column(column) for column in columns)
    if not len(full_packs) == len(full_slots) == len(xor_packs) == len(xor_slots):
        raise ValueError("the columns of a table have different lengths")
    return Table(_joined(full_packs, full_slots), _joined(xor_packs, xor_slots))


def _decode_column(data: bytes) -> Numbers:
    planes = np.frombuffer(data, np.uint8).reshape(_PLANES, -1)
    differences = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return np.cumsum(differences, dtype=np.uint32).astype(np.int64)


def _joined(packs: Numbers, slots: Numbers) -> Numbers:
    # A pack's number is signed: all bits set mean NOWHERE.
    return (packs.astype(np.uint32).astype(np.int32).astype(np.int64) << 32) | slots
