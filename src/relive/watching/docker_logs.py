"""``python -m relive.watching.docker_logs CONTAINER SINCE``: a container's output as Docker's API tells it, followed.

Each line comes behind its time, on the stream on which it was written. Without a terminal the API sends frames: u8 stream (1:
stdout, 2: stderr), three zeros, u32 length (big-endian), content; of a container with a terminal it is plain, and all stdout.
"""

from __future__ import annotations

import contextlib
import http.client
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO

from relive.containers.docker.api import get, open_stream
from relive.errors import ReliveError

__all__ = ["frames", "main"]

_HEAD = struct.Struct(">BxxxI")
_FRAME_MOST = 1 << 24  # [bytes]
_STDERR = 2


def frames(stream: BinaryIO | http.client.HTTPResponse) -> Iterator[tuple[bool, bytes]]:
    """(it is stderr, content) of each frame, until the stream ends; what is cut off at its end is left out."""
    while len(head := stream.read(_HEAD.size)) == _HEAD.size:
        number, size = _HEAD.unpack(head)
        content = stream.read(size) if size <= _FRAME_MOST else b""
        if len(content) < size:
            return
        yield number == _STDERR, content


def main() -> int:
    """Write until the container ends, or nobody reads."""
    container, since = sys.argv[1:]
    try:
        facts = get("containers", container, "json") or {}
        connection, answer = open_stream(
            "containers", container, "logs", follow="1", stdout="1", stderr="1", timestamps="1", since=since
        )
    except ReliveError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    with contextlib.closing(connection), contextlib.suppress(BrokenPipeError):
        if (facts.get("Config") or {}).get("Tty"):
            while chunk := answer.read1(1 << 16):
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
        else:
            for is_stderr, content in frames(answer):
                target = sys.stderr.buffer if is_stderr else sys.stdout.buffer
                target.write(content)
                target.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
