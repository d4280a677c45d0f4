"""The packets that ``relive-capture`` (``native/capture.c``) takes from the kernel, block by block, and that process itself."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from relive.errors import CapsuleStartFailed

__all__ = ["Block", "PacketSpool"]

_HEADER = struct.Struct("=IIII")  # magic, bytes, packets, lost
_MAGIC = 0x4B4C4250
_FILE_BYTES = 32 << 20  # a file that is larger is followed by the next
_WRITTEN, _READ, _UNTIL, _ANEW = range(4)  # of struct progress
_PROGRESS_BYTES = 4096
_BLOCK_BYTES = 1 << 20


class Block(NamedTuple):
    """Packets as they follow each other.

    Attributes:
        data: good until the next block is asked for; its first ``size`` bytes.
        lost: how many the kernel has dropped before them, or could not be written for want of room on the disk.
    """

    data: ctypes.Array[ctypes.c_char]
    size: int
    packets: int
    lost: int


class PacketSpool:
    """Belongs to one event loop. Its process lives until ``close``, or as long as this process.

    Args:
        program: ``relive-capture``.
        directory: emptied.
        network: a process in whose network namespace packets are taken; 0: this one's. That process may end, the namespace stays.
    """

    def __init__(self, program: Path, directory: Path, port: int, *, network: int = 0) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.glob("*.packets"):
            old.unlink()
        self._directory = directory
        self._number, self._offset = 1, 0
        self._file = -1
        self._buffer = ctypes.create_string_buffer(_BLOCK_BYTES)
        with (directory / "progress").open("wb+") as progress:
            progress.write(bytes(_PROGRESS_BYTES))  # not a hole, which on a full disk could not be written to
            progress.flush()
            self._map = mmap.mmap(progress.fileno(), _PROGRESS_BYTES)
        self._progress = memoryview(self._map).cast("Q")
        try:
            self._process = subprocess.Popen(
                [program, f"/proc/{network or 'self'}/ns/net", directory, str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise CapsuleStartFailed(
                f"{program} cannot be started", cause=str(error), remedy="run `make setup`"
            ) from error
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._output, self._ask = self._process.stdout.fileno(), self._process.stdin.fileno()
        os.set_blocking(self._output, False)
        os.set_blocking(self._ask, False)

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
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._ask, b".")

    @property
    def until(self) -> int:
        """CLOCK_REALTIME [ns]: every packet that came before that is in a block, or lost."""
        return int(self._progress[_UNTIL])

    @property
    def waiting(self) -> int:
        """Bytes that are there to be read."""
        return int(self._progress[_WRITTEN] - self._progress[_READ])

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def blocks(self) -> Iterator[Block]:
        """Those that are there, each once; what is taken is deleted."""
        while self.waiting:
            if self._progress[_ANEW] == self._progress[_READ]:
                self._offset = 0
            if self._offset >= _FILE_BYTES:
                os.close(self._file)
                (self._directory / f"{self._number}.packets").unlink(missing_ok=True)
                self._file, self._offset, self._number = -1, 0, self._number + 1
            if self._file < 0:
                self._file = os.open(self._directory / f"{self._number}.packets", os.O_RDONLY | os.O_CLOEXEC)
            magic, size, packets, lost = _HEADER.unpack(os.pread(self._file, _HEADER.size, self._offset))
            if magic != _MAGIC:
                raise CapsuleStartFailed(
                    f"{self._directory} is damaged",
                    cause=f"no block begins at {self._offset} of {self._number}.packets",
                )
            size = os.preadv(self._file, [memoryview(self._buffer)[:size]], self._offset + _HEADER.size)
            self._offset += _HEADER.size + size
            yield Block(self._buffer, size, packets, lost)
            # Only now: who looks whether anything waits must not find nothing while a block is still being worked on.
            self._progress[_READ] += _HEADER.size + size

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        for old in self._directory.glob("*.packets"):
            old.unlink(missing_ok=True)
