"""Records of what was seen, in an unnamed file that the host reads by its descriptor.

Its header says what is being done at this moment: so the host can tell a process that died of an expression from one that hangs.
"""

import json
import mmap
import os

# [bytes] of 8 each: whether an expression is being evaluated, own lines that ran; of the request that is debugged: its lines, and
# the one that raised what was raised last.
_HEADER = 32
os_write = os.write


class Records:
    """Records, one JSON object a line, behind a header that says what is being done. Bounded."""

    def __init__(self, most, room):
        self.fd = os.memfd_create("relive-steps", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, _HEADER)
        os.lseek(self.fd, 0, os.SEEK_END)
        self._header = mmap.mmap(self.fd, _HEADER)
        self.left, self.room, self.is_full = most, room, False

    def busy(self, number):
        """An expression is being evaluated, counted from 1; 0: none is."""
        self._header[:8] = number.to_bytes(8, "little")

    def passed(self, lines):
        self._header[8:16] = lines.to_bytes(8, "little")

    def came_to(self, position):
        self._header[16:24] = position.to_bytes(8, "little")

    def raised_at(self, position):
        self._header[24:32] = position.to_bytes(8, "little")

    def put(self, record):
        """Where there is no room any more, that is told instead, once."""
        data = json.dumps(record).encode() + b"\n"
        if self.is_full:
            return
        if self.left <= 0 or len(data) > self.room:
            self.is_full, data = True, b'{"kind": "full"}\n'
        self.left -= 1
        self.room -= len(data)
        os_write(self.fd, data)
