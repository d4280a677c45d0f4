"""The packets that ``relive-capture`` (``native/capture.c``) takes from the kernel, block by block, and that process itself."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relive.errors import CapsuleStartFailed
from relive.proxies.ingress._sights import InRing

__all__ = ["Block", "PacketSpool"]

_HEADER = struct.Struct("=IIIIQ")  # magic, bytes, packets, lost, number
_MAGIC = 0x4B4C4250
_FILE_BYTES = 32 << 20  # a file that is larger is followed by the next
# Of struct progress:
_READY, _READY_BYTES, _RELEASED, _UNTIL, _ANEW, _LOST_SINCE, _READ, _READ_BYTES, _LOST = range(9)
_PROGRESS_BYTES = 4096
_BLOCK_BYTES, _BLOCKS = 1 << 20, 16
# Of struct tpacket_block_desc: packets, offset of the first, bytes with what is before it.
_IN_BLOCK = struct.Struct("=8x4xIII")


class Block(NamedTuple):
    """Packets as they follow each other.

    Attributes:
        data: its first ``size`` bytes, good until the next block is asked for, unless it is in the ring.
        lost: how many packets were dropped before them.
        in_ring: the kernel may write over it: see ``Sights.take`` and ``PacketSpool.copy_of``. None: it is a copy.
    """

    data: ctypes.Array[ctypes.c_char]
    size: int
    packets: int
    lost: int
    in_ring: InRing | None


class PacketSpool:
    """Belongs to one event loop. Its process lives until ``close``, or as long as this process.

    Args:
        program: ``relive-capture``.
        directory: emptied.
        network: a process in whose network namespace packets are taken; 0: this one's. That process may end, the namespace stays.
        takes: descriptor of a program that says what is taken (``kernel.portprogram``); None: all that the port says and hears.
            Where the kernel refuses it, all is taken, too, and the process says so on standard error.
    """

    def __init__(
        self, program: Path, directory: Path, port: int, *, network: int = 0, takes: int | None = None
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.glob("*.packets"):
            old.unlink()
        self._directory = directory
        self._number, self._offset, self._anew = 1, 0, 0
        self._file = -1
        self._buffer = ctypes.create_string_buffer(_BLOCK_BYTES)
        self._ring: mmap.mmap | None = None
        with (directory / "progress").open("wb+") as progress:
            progress.write(bytes(_PROGRESS_BYTES))  # not a hole, which on a full disk could not be written to
            progress.flush()
            self._map = mmap.mmap(progress.fileno(), _PROGRESS_BYTES)
        self._progress = memoryview(self._map).cast("Q")
        self._released_at = _address(self._map) + 8 * _RELEASED
        self._lost_since = 0
        self._ask, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [
                    *(program, f"/proc/{network or 'self'}/ns/net", directory, str(port)),
                    *(() if takes is None else (str(takes),)),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                pass_fds=() if takes is None else (takes,),
            )
        except OSError as error:
            self._ask.close()
            raise CapsuleStartFailed(
                f"{program} cannot be started", cause=str(error), remedy="run `make setup`"
            ) from error
        finally:
            theirs.close()
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._ask.setblocking(False)

    def fileno(self) -> int:
        """Readable when there may be more blocks, and when the process has ended."""
        return self._output

    def hear(self) -> bool:
        """Take in what made ``fileno`` readable; False: the process has ended."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._output, 4096))
        return True

    def look_now(self) -> None:
        """Have the process look at the ring; when it has, ``fileno`` is readable."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            self._ask.send(b".")

    @property
    def until(self) -> int:
        """CLOCK_REALTIME [ns]: every packet that came before that is in a block, or lost. 0: none is taken yet."""
        return int(self._progress[_UNTIL])

    @property
    def has_more(self) -> bool:
        """A block is there that was not read to its end."""
        return bool(self._progress[_READY] != self._progress[_READ])

    @property
    def waiting(self) -> int:
        """Bytes of packets that are there to be read."""
        return int(self._progress[_READY_BYTES] - self._progress[_READ_BYTES])

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def blocks(self) -> Iterator[Block]:
        """Those that are there, each once. One without packets says only what was lost."""
        while True:
            if lost := int(self._progress[_LOST_SINCE]) - self._lost_since:
                self._lost_since += lost
                yield Block(self._buffer, 0, 0, lost, None)
            if not self.has_more:
                return
            number = int(self._progress[_READ])
            block = self._in_ring(number) or self._in_file(number)
            yield block
            # Only now: who looks whether anything waits must not find nothing while a block is still being worked on.
            self._progress[_READ_BYTES] += block.size
            self._progress[_READ] = number + 1

    def copy_of(self, block: Block) -> Block:
        """A block of the ring that the kernel may have written over, as it was."""
        assert block.in_ring is not None
        return self._in_file(block.in_ring.number)

    def _in_ring(self, number: int) -> Block | None:
        if self._progress[_RELEASED] > number:
            return None
        place = number % _BLOCKS
        lost = int(self._progress[_LOST + place])
        packets, offset, size = _IN_BLOCK.unpack_from(self._mapped(), place * _BLOCK_BYTES)
        if self._progress[_RELEASED] > number:  # what was read is of it only if it was there until now
            return None
        at = _address(self._mapped()) + place * _BLOCK_BYTES + offset
        data = (ctypes.c_char * (size - offset)).from_address(at)  # does not keep the ring mapped
        return Block(data, size - offset, packets, lost, InRing(self._released_at, number))

    def _mapped(self) -> mmap.mmap:
        if self._ring is None:
            _, (ring,), *_ = socket.recv_fds(self._ask, 1, 1)  # sent before the first block was ready
            try:
                self._ring = mmap.mmap(ring, _BLOCKS * _BLOCK_BYTES)
            finally:
                os.close(ring)
        return self._ring

    def _in_file(self, number: int) -> Block:
        if self._progress[_ANEW] != self._anew:
            self._offset, self._anew = 0, int(self._progress[_ANEW])
        while True:
            if self._offset >= _FILE_BYTES:
                os.close(self._file)
                (self._directory / f"{self._number}.packets").unlink(missing_ok=True)
                self._file, self._offset, self._number = -1, 0, self._number + 1
            if self._file < 0:
                self._file = os.open(self._directory / f"{self._number}.packets", os.O_RDONLY | os.O_CLOEXEC)
            found = os.pread(self._file, _HEADER.size, self._offset)
            magic, size, packets, lost, found_number = _HEADER.unpack(found) if found else (0, 0, 0, 0, 0)
            if magic != _MAGIC or found_number > number:
                raise CapsuleStartFailed(
                    f"{self._directory} is damaged",
                    cause=f"block {number} is not at {self._offset} of {self._number}.packets",
                )
            self._offset += _HEADER.size + size
            if found_number == number:  # those before it were read while they were in the ring
                os.preadv(self._file, [memoryview(self._buffer)[:size]], self._offset - size)
                return Block(self._buffer, size, packets, lost, None)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._ask.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._process.stdout is not None:
            self._process.stdout.close()
        for old in self._directory.glob("*.packets"):
            old.unlink(missing_ok=True)


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
