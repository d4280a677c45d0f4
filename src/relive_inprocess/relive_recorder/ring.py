"""The ring: a file of shared memory that holds this process's last events, also after ``kill -9``.

All numbers are little-endian and unsigned. The file is a header page and then ``capacity`` bytes of records; a *position*
counts bytes since the ring was made, and lies at offset ``4096 + position % capacity``.

======  ====  =====================================================================================================
offset  size  header page (4096 bytes)
======  ====  =====================================================================================================
0       8     magic ``RELIVRNG``
8       8     version of the layout, 1
16      8     epoch: a random number the writer chose. Another one here than the writer remembers: this is not the file
              it made but that of a branch in which it was brought back (CRIU maps the branch's file in its place)
24      8     mode: 0 off, 1 record, 2 replay, 3 free (see ``recorder.Mode``); in a branch Relive sets it beforehand
32      8     capacity in bytes
40      8     head: position behind the last whole record; written last, so what lies before it is whole
48      8     seq of the last record
56      8     pid of the writer, as it sees itself
64      8     1 when the recorder switched itself off because of a fault
72      8     position up to which the agent has taken records (the agent writes it)
======  ====  =====================================================================================================

A record may go over the end of the data area and on at its beginning:

======  ======  ====================================================================
offset  size    record
======  ======  ====================================================================
0       4       length of meta and data together
4       4       length of meta
8       4       CRC-32 of meta and data
12      4       the first number with all bits turned
16      meta    UTF-8 JSON ``[seq, mono_ns, wall_ns, kind, thread, lane, request, fields]``
..      data    bytes as they were
======  ======  ====================================================================

The oldest records are overwritten whether they were read or not: the service never waits for a reader.
"""

import mmap
import os
import struct
import zlib
from typing import Any, Callable, Optional

__all__ = ["HEADER_BYTES", "RECORD_HEADER", "Ring"]

MAGIC = b"RELIVRNG"
VERSION = 1
HEADER_BYTES = 4096
HEADER = struct.Struct("<8sQQQQQQQQQ")
RECORD_HEADER = struct.Struct("<IIII")
_pack, _crc32 = RECORD_HEADER.pack, zlib.crc32
# Places in the header as indexes of 64-bit words.
EPOCH, MODE, CAPACITY, HEAD, SEQ, PID, FAULT, TAKEN = range(2, 10)


class Ring:
    """The writer. Not for two threads at once: ``recorder`` sees to that.

    The file has its name only when its header is whole (before, ``.new`` is behind it): a reader may look at any moment, and
    what it finds to be no ring it never looks at again.

    Args:
        quick: makes the writer in C (see ``quick``) of descriptor, capacity and epoch. It then does all the writing.

    Raises:
        OSError: the file cannot be made; ENOSPC when there is no room for all of it.
    """

    def __init__(
        self, path: str, capacity: int, mode: int, quick: Optional[Callable[[int, int, int], Any]] = None
    ) -> None:
        self.path = path
        self.capacity = capacity
        self.epoch = int.from_bytes(os.urandom(8), "little") | 1
        self.head = 0
        self._into = self.epoch  # the file that was last written to
        fresh = f"{path}.new"
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Not stretched: on a full file system the first touch of a hole would kill the service (SIGBUS).
            os.posix_fallocate(fd, 0, HEADER_BYTES + capacity)
            self._map = mmap.mmap(fd, HEADER_BYTES + capacity)
            self.quick = None if quick is None else quick(fd, capacity, self.epoch)
        except BaseException:
            os.unlink(fresh)
            raise
        finally:
            os.close(fd)
        self._map[: HEADER.size] = HEADER.pack(
            MAGIC, VERSION, self.epoch, mode, capacity, 0, 0, os.getpid(), 0, 0
        )
        self.words = memoryview(self._map)[:HEADER_BYTES].cast("Q")
        os.rename(fresh, path)

    def write(self, seq: int, meta: bytes, data: bytes) -> bool:
        """Put one record; False when it is longer than the ring, which then stays as it was.

        A process can be committed at any moment, also in here: what was begun in one file is then written again, into
        the other one.
        """
        if self.quick is not None:
            return bool(self.quick.put(seq, meta, data))
        length = len(meta) + len(data)
        size = length + 16
        if size > self.capacity:
            return False
        both = meta + data if data else meta
        record = _pack(length, len(meta), _crc32(both), length ^ 0xFFFFFFFF) + both
        words = self.words
        while True:
            if words[EPOCH] != self._into:
                self._into = words[EPOCH]
                self.head = words[HEAD] = 0
            self._put(record)
            words[SEQ] = seq
            words[HEAD] = self.head
            if words[EPOCH] == self._into:
                return True

    def _put(self, record: bytes) -> None:
        size = len(record)
        at = self.head % self.capacity
        room = self.capacity - at
        if size <= room:
            begin = HEADER_BYTES + at
            self._map[begin : begin + size] = record
        else:
            self._map[HEADER_BYTES + at :] = record[:room]
            self._map[HEADER_BYTES : HEADER_BYTES + size - room] = record[room:]
        self.head += size

    def adopt(self) -> None:
        """Know the file of a branch as one's own. Its first record goes to its beginning."""
        self.epoch = self.words[EPOCH]
        if self.quick is not None:
            self.quick.adopt()

    def forget(self) -> None:
        """Let go of the memory without touching what is in it (after a fork: it is the parent's)."""
        if self.quick is not None:
            self.quick.forget()
        self.words.release()
        self._map.close()
