"""The directory of packs: writing one, frame by frame, and reading frames of those there are, every byte checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import zstandard
from blake3 import blake3

from relive.errors import KeyMissing, ObjectMissing
from relive.store.durable import FreshFile
from relive.store.pages.differ import Numbers, Pages
from relive.store.pages.packfile import (
    COUNT,
    FRAME_PAGES,
    HEAD_SIZE,
    Frame,
    damaged,
    decode_head,
    decode_table,
    encode_head,
    encode_table,
    table_size,
)
from relive.store.pages.runs import PAGE
from relive.store.pages.sealing import FrameSeal

__all__ = ["PackReader", "PackWriter", "Packs"]

_LEVEL = 3  # of zstd
_THREADS = 2  # of zstd; it ends them before it returns, since the caller may fork
_BATCH = 32  # [frames] compressed or decompressed at once
_ID_SIZE = 16
_MOST_RAW = 1 << 30  # [bytes] no frame is larger; asked before memory is taken for it
_WINDOW_LEAST, _WINDOW_MOST = (
    18,
    27,
)  # [log2 bytes] how far back a blob's frame may refer, its dictionary included
_SEARCH_LEAST, _SEARCH_MOST = 17, 24  # [log2 entries] of the tables by which it is searched


class Packs:
    """Packs by name. Safe for several processes: a pack appears whole, and is never changed.

    ``store_key`` is asked for when it is needed, and returns None where packs are plain.
    """

    def __init__(self, directory: Path, incoming: Path, store_key: Callable[[], bytes | None]) -> None:
        self._directory = directory
        self._incoming = incoming
        self._store_key = store_key
        directory.mkdir(exist_ok=True)

    def new(self) -> PackWriter:
        """Begin one."""
        return PackWriter(self._directory, self._incoming, self._store_key())

    def open(self, name: str) -> PackReader:
        """Read one.

        Raises:
            ObjectMissing: there is none of that name.
            ObjectCorrupt: its header does not match the name.
            KeyMissing: it is sealed, and there is no store key.
        """
        return PackReader(self._directory / name, name, self._store_key)

    def names(self) -> set[str]:
        """All there are."""
        return set(os.listdir(self._directory))

    def has(self, name: str) -> bool:
        """It is there (its content is not checked)."""
        return (self._directory / name).exists()

    def delete(self, name: str) -> int:
        """Remove one; returns the bytes freed, 0 if it was not there."""
        path = self._directory / name
        with contextlib.suppress(FileNotFoundError):
            size = path.stat().st_size
            path.unlink()
            return size
        return 0


class PackWriter:
    """A pack in the making. ``finish`` or ``discard`` must be called."""

    def __init__(self, directory: Path, incoming: Path, store_key: bytes | None) -> None:
        pack_id = os.urandom(_ID_SIZE)
        self._directory = directory
        self._head = encode_head(pack_id, is_sealed=store_key is not None)
        self._seal = None if store_key is None else FrameSeal(store_key, pack_id, self._head)
        self._frames: list[Frame] = []
        self._waiting: list[Pages] = []
        self._waiting_pages = 0
        self._file = FreshFile(incoming, "pack")
        self._file.write(self._head)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._file.size

    def add_pages(self, pages: Pages) -> Numbers:
        """Append pages; returns their slots."""
        first = len(self._frames) * FRAME_PAGES + self._waiting_pages
        self._waiting.append(pages)
        self._waiting_pages += len(pages)
        if self._waiting_pages >= _BATCH * FRAME_PAGES:
            self._compress(self._waiting_pages // FRAME_PAGES * FRAME_PAGES)
        return np.arange(first, first + len(pages), dtype=np.int64)

    def end_frame(self) -> None:
        """What is added next begins a frame; pages that are alike compress better together."""
        if self._waiting_pages:
            self._compress(self._waiting_pages)

    def add_blob(self, data: bytes, dictionary: bytes | None) -> int:
        """Append bytes as one frame, compressed with ``dictionary`` as what came before; returns the frame's number."""
        self.end_frame()
        # By itself zstd searches only the last part of a large dictionary.
        whole = (len(data) + len(dictionary or b"")).bit_length()
        search = min(_SEARCH_MOST, max(_SEARCH_LEAST, whole - 2))
        options = zstandard.ZstdCompressionParameters.from_level(
            _LEVEL,
            source_size=len(data),
            dict_size=len(dictionary or b""),
            window_log=min(_WINDOW_MOST, max(_WINDOW_LEAST, whole)),
            hash_log=search,
            chain_log=search,
        )
        compressor = zstandard.ZstdCompressor(compression_params=options, dict_data=_dictionary(dictionary))
        self._write_frame(compressor.compress(data), len(data))
        return len(self._frames) - 1

    def finish(self) -> str:
        """Make it durable; returns its name."""
        self.end_frame()
        table = encode_table(self._frames)
        name = blake3(self._head + table).hexdigest()
        self._file.write(table)
        self._file.publish(self._directory / name, mode=0o400)
        return name

    def discard(self) -> None:
        """Throw it away, unless it is finished."""
        self._file.discard()

    def _compress(self, pages: int) -> None:
        """Write the first ``pages`` of those that wait."""
        together = self._waiting[0] if len(self._waiting) == 1 else np.concatenate(self._waiting)
        data = np.ascontiguousarray(together[:pages]).view(np.uint8).reshape(-1).data
        step = FRAME_PAGES * PAGE
        pieces: list[bytes | bytearray | memoryview] = [
            data[begin : begin + step] for begin in range(0, len(data), step)
        ]
        compressed = zstandard.ZstdCompressor(level=_LEVEL).multi_compress_to_buffer(pieces, threads=_THREADS)
        for number, piece in enumerate(pieces):
            self._write_frame(compressed[number].tobytes(), len(piece))
        rest = together[pages:]
        self._waiting = [rest] if len(rest) else []
        self._waiting_pages = len(rest)

    def _write_frame(self, compressed: bytes, raw: int) -> None:
        number = len(self._frames)
        stored = compressed if self._seal is None else self._seal.seal(number, compressed)
        self._frames.append(Frame(self._file.size, len(stored), raw, blake3(stored).digest()))
        self._file.write(stored)


class PackReader:
    """One pack, open for reading; a context manager. Only bytes that match the pack's name are given."""

    def __init__(self, path: Path, name: str, store_key: Callable[[], bytes | None]) -> None:
        self._name = name
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ObjectMissing(
                f"pack {name[:12]} is not in the store",
                cause="it was deleted or never arrived",
                remedy="use another commit (`relive log`) that does not need it",
            ) from None
        try:
            head, self._frames = self._read_header()
            pack_id, is_sealed = decode_head(name, head)
            self._seal = FrameSeal(_needed(store_key(), name), pack_id, head) if is_sealed else None
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._file)

    @property
    def slots(self) -> int:
        """How many there are, those included that the last frame of a kind leaves empty."""
        return len(self._frames) * FRAME_PAGES

    def _read_header(self) -> tuple[bytes, list[Frame]]:
        size = os.fstat(self._file).st_size
        if size < HEAD_SIZE + COUNT.size:
            raise damaged(self._name, "it is cut off")
        head = os.pread(self._file, HEAD_SIZE, 0)
        (count,) = COUNT.unpack(os.pread(self._file, COUNT.size, size - COUNT.size))
        frames_end = size - table_size(count)
        if frames_end < HEAD_SIZE:
            raise damaged(self._name, "it is cut off")
        table = os.pread(self._file, size - frames_end, frames_end)
        return head, decode_table(self._name, head, table, frames_end)

    def blob(self, number: int, dictionary: bytes | None) -> bytes:
        """The bytes of one frame that ``add_blob`` wrote.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        frame = self._frame(number)
        (stored,) = self._stored([number])
        try:
            if zstandard.frame_content_size(stored) != frame.raw or frame.raw > _MOST_RAW:
                raise damaged(self._name, f"frame {number} has another size than its header says")
            # The window may reach as far as the dictionary, beyond what zstd admits by itself.
            reader = zstandard.ZstdDecompressor(
                dict_data=_dictionary(dictionary), max_window_size=1 << _WINDOW_MOST
            )
            return reader.decompress(stored)
        except zstandard.ZstdError as error:
            raise damaged(self._name, f"frame {number}: {error}") from error

    def page_frames(self, numbers: Sequence[int]) -> Iterator[tuple[int, Pages]]:
        """(number, its pages) of frames, whose numbers must rise; slot ``i`` of the frame is row ``i``.

        Raises:
            ObjectCorrupt, KeyWrong: they are not what was written.
        """
        for begin in range(0, len(numbers), _BATCH):
            batch = numbers[begin : begin + _BATCH]
            sizes = [self._frame(number).raw for number in batch]
            if any(size > FRAME_PAGES * PAGE or size % PAGE for size in sizes):
                raise damaged(self._name, "a frame holds no pages")
            stored: list[bytes | bytearray | memoryview] = list(self._stored(batch))
            try:
                if [zstandard.frame_content_size(frame) for frame in stored] != sizes:
                    raise damaged(self._name, "a frame has another size than its header says")
                raws = zstandard.ZstdDecompressor().multi_decompress_to_buffer(stored, threads=_THREADS)
            except zstandard.ZstdError as error:
                raise damaged(self._name, str(error)) from error
            for position, number in enumerate(batch):
                yield (
                    number,
                    np.frombuffer(cast(memoryview, raws[position]), np.uint64).reshape(-1, PAGE // 8),
                )

    def _frame(self, number: int) -> Frame:
        if not 0 <= number < len(self._frames):
            raise damaged(self._name, f"it has no frame {number}")
        return self._frames[number]

    def _stored(self, numbers: Sequence[int]) -> Iterator[bytes | memoryview]:
        """Frames as compressed, checked and opened; neighbours are read together."""
        for first, last in _stretches(numbers):
            begin, end = self._frames[first].offset, self._frames[last].offset + self._frames[last].stored
            data = memoryview(os.pread(self._file, end - begin, begin))
            for number in range(first, last + 1):
                frame = self._frames[number]
                stored = data[frame.offset - begin : frame.offset - begin + frame.stored]
                frame.check(self._name, number, stored)
                yield stored if self._seal is None else self._seal.open(number, bytes(stored))


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of numbers that follow each other."""
    first = last = None
    for number in numbers:
        if first is not None and last is not None and number != last + 1:
            yield first, last
            first = None
        first, last = number if first is None else first, number
    if first is not None and last is not None:
        yield first, last


def _dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    if not data:
        return None
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _needed(store_key: bytes | None, name: str) -> bytes:
    if store_key is None:
        raise KeyMissing(
            f"pack {name[:12]} is sealed and there is no store key",
            cause="no `store.key` lies in the keys directory of RELIVE_HOME",
            remedy="put the key there that the store was written with",
        )
    return store_key
