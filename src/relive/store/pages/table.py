"""Tables: where each page of a page file lies. And the index, the one blob of a commit that holds tables, small images and the
list of its files.

Contents of files are as one page file: each begins with a page of its own, and one table says where their pages lie.

A place is one number, ``pack << 32 | slot``; the pack is a position in the placement's list of packs. The bytes of an index
are specified in docs/format.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import msgpack
import numpy as np

from relive.errors import ObjectCorrupt
from relive.store.pages.packfile import FrameKind
from relive.store.pages.page_diff import Numbers
from relive.store.pages.size import PAGE

__all__ = [
    "NOWHERE",
    "ContentTable",
    "Dictionaries",
    "PackIndex",
    "PageTable",
    "decode_index",
    "encode_index",
    "pack_of",
    "slot_of",
    "slot_places",
]

NOWHERE = -1  # as the place of a full version: the page is all zeros; of an XOR: there is none
# By position of a pack, and of what in it (PAGES: full ones, or WORDS): position of the pack that has the dictionary for these.
Dictionaries: TypeAlias = Mapping[tuple[int, FrameKind], int]
_PLANES = 4  # bytes of a column's numbers
_HASH = 32  # [bytes] of a content's name
_SLOT_MASK = _LOW = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class PageTable:
    """For each page, in the file's order, the place of its last full version and of its XOR with that."""

    full: Numbers
    xor: Numbers

    @classmethod
    def of_zeros(cls, pages: int) -> PageTable:
        """So many pages that are all zeros."""
        return cls(np.full(pages, NOWHERE, np.int64), np.full(pages, NOWHERE, np.int64))

    def copy(self) -> PageTable:
        """One that can be changed."""
        return PageTable(self.full.copy(), self.xor.copy())

    def part(self, begin: int, end: int) -> PageTable:
        """Some of the pages, without a copy."""
        return PageTable(self.full[begin:end], self.xor[begin:end])


@dataclass(frozen=True)
class ContentTable:
    """The contents of a commit's files, each once.

    Attributes:
        names: BLAKE3 of each, 64 hexadecimal digits, in the order of their pages.
        sizes: in bytes, of each; its last page counts as filled up with zeros.
        table: of the pages of all.
    """

    names: Sequence[str]
    sizes: Numbers
    table: PageTable

    @classmethod
    def none(cls) -> ContentTable:
        """Of a commit without files."""
        return cls((), np.empty(0, np.int64), PageTable.of_zeros(0))

    @cached_property
    def begins(self) -> Numbers:
        """The first page of each, and behind them how many pages there are."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(-(-self.sizes // PAGE))])

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Where each stands in ``names``."""
        return {name: position for position, name in enumerate(self.names)}

    def span(self, position: int) -> tuple[int, int]:
        """The first page of a content and the one behind its last."""
        return int(self.begins[position]), int(self.begins[position + 1])


@dataclass(frozen=True, slots=True)
class PackIndex:
    """What a commit has beside pages.

    Attributes:
        bundle: the small images, as ``store`` packs them.
        tables: by the names of the page files.
        contents: of its files.
        listing: what its layers are, as ``store`` writes them down; empty where there are none.
        dictionaries: what is compressed against dictionaries.
    """

    bundle: bytes
    tables: Mapping[str, PageTable]
    contents: ContentTable
    listing: bytes = b""
    dictionaries: Dictionaries = field(default_factory=dict)

    def all_tables(self) -> Iterator[PageTable]:
        """Of the page files and of the contents."""
        yield from self.tables.values()
        yield self.contents.table


def slot_places(pack: int, slots: Numbers) -> Numbers:
    """Places of slots of one pack."""
    return slots | (pack << 32)


def pack_of(places: Numbers) -> Numbers:
    """Positions in the list of packs; -1 for NOWHERE."""
    return places >> 32


def slot_of(places: Numbers) -> Numbers:
    """Slots; of NOWHERE all 32 bits are set."""
    return places & _SLOT_MASK


def encode_index(index: PackIndex) -> bytes:
    """Msgpack; each table as four columns."""
    value: dict[str, object] = {
        "bundle": index.bundle,
        "tables": {name: _encode_table(table) for name, table in sorted(index.tables.items())},
    }
    if index.listing:
        value["contents"] = {
            "names": bytes.fromhex("".join(index.contents.names)),
            "sizes": [
                _encode_column(index.contents.sizes & _LOW),
                _encode_column(index.contents.sizes >> 32),
            ],
            "table": _encode_table(index.contents.table),
        }
        value["listing"] = index.listing
    if index.dictionaries:
        value["dictionaries"] = sorted(
            [user, int(what == FrameKind.WORDS), pack] for (user, what), pack in index.dictionaries.items()
        )
    packed: bytes = msgpack.packb(value)
    return packed


def decode_index(data: bytes) -> PackIndex:
    """The opposite; raises ObjectCorrupt where the bytes are none."""
    try:
        value = msgpack.unpackb(data)
        bundle, tables, listing = value["bundle"], value["tables"], value.get("listing", b"")
        if not isinstance(bundle, bytes) or not isinstance(listing, bytes):
            raise TypeError("the small images or the list of files are no bytes")
        return PackIndex(
            bundle,
            {str(name): _decode_table(columns) for name, columns in tables.items()},
            _decode_contents(value["contents"]) if "contents" in value else ContentTable.none(),
            listing,
            _decode_dictionaries(value.get("dictionaries", ())),
        )
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.exceptions.UnpackException) as error:
        raise ObjectCorrupt(
            "the commit's index cannot be read",
            cause=f"{type(error).__name__}: {error}",
            remedy="do not trust it",
        ) from error


def _encode_table(table: PageTable) -> list[bytes]:
    return [
        _encode_column(pack_of(table.full)),
        _encode_column(slot_of(table.full)),
        _encode_column(pack_of(table.xor)),
        _encode_column(slot_of(table.xor)),
    ]


def _decode_contents(value: Mapping[str, Any]) -> ContentTable:
    packed = value["names"].hex()
    names = [packed[begin : begin + 2 * _HASH] for begin in range(0, len(packed), 2 * _HASH)]
    low, high = (_decode_column(column) for column in value["sizes"])
    found = ContentTable(names, low | (high << 32), _decode_table(value["table"]))
    if not len(names) == len(low) == len(high) or len(packed) % (2 * _HASH) or np.any(high >> 31):
        raise ValueError("its contents have names and sizes that do not fit")
    if found.begins[-1] != len(found.table.full):
        raise ValueError("its contents have another number of pages than their sizes say")
    return found


def _decode_dictionaries(value: Sequence[Sequence[int]]) -> Dictionaries:
    found = {
        (int(user), FrameKind.WORDS if is_words else FrameKind.PAGES): int(pack)
        for user, is_words, pack in value
    }
    if any(user < 0 or pack < 0 for (user, _), pack in found.items()):
        raise ValueError("it names a dictionary of no pack")
    return found


def _encode_column(numbers: Numbers) -> bytes:
    """Differences, modulo 2**32, byte planes from the lowest: runs of pages become runs of equal bytes."""
    differences = numbers.astype("<u4")
    differences[1:] -= numbers[:-1].astype("<u4")
    return differences.view(np.uint8).reshape(-1, _PLANES).T.tobytes()


def _decode_table(columns: Sequence[bytes]) -> PageTable:
    full_packs, full_slots, xor_packs, xor_slots = (_decode_column(column) for column in columns)
    if not len(full_packs) == len(full_slots) == len(xor_packs) == len(xor_slots):
        raise ValueError("the columns of a table have different lengths")
    return PageTable(_joined(full_packs, full_slots), _joined(xor_packs, xor_slots))


def _decode_column(data: bytes) -> Numbers:
    planes = np.frombuffer(data, np.uint8).reshape(_PLANES, -1)
    differences = np.ascontiguousarray(planes.T).view("<u4").reshape(-1)
    return np.cumsum(differences, dtype=np.uint32).astype(np.int64)


def _joined(packs: Numbers, slots: Numbers) -> Numbers:
    # A pack's number is signed: all bits set mean NOWHERE.
    return (packs.astype(np.uint32).astype(np.int32).astype(np.int64) << 32) | slots
