"""HTTP/1.1 as it goes over a connection: requests read from what was sent, bodies taken out of their chunks, answers put together.

Only what a client library has itself written, or what was recorded, is read here; the answer of a foreign server is read by the
library, which is the one to judge it.
"""

from typing import Any, Callable, List, Optional, Tuple

__all__ = ["CollectedBody", "Dechunker", "RequestOnWire", "framed", "in_pieces"]

_HEAD_LONGEST = 256 << 10  # [bytes] behind which bytes are no head any more
_PIECES = 256


class CollectedBody:
    """A body that comes in pieces. The first ``most`` bytes are held, the rest is only counted.

    Attributes:
        length: in bytes, of all.
        sizes: of the pieces in bytes, of the first 256 of them.
    """

    __slots__ = ("_digest", "_held", "_most", "_parts", "length", "sizes")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: List[bytes] = []
        self._held = 0
        self._digest: Any = None
        self.length = 0
        self.sizes: List[int] = []

    def add(self, data: bytes) -> None:
        """The next bytes of it."""
        self.length += len(data)
        if len(self.sizes) < _PIECES:
            self.sizes.append(len(data))
        if self._digest is not None:
            self._digest.update(data)
            return
        self._parts.append(data)
        self._held += len(data)
        if self._held > self._most:
            self._overflow()

    def _overflow(self) -> None:
        from _blake2 import blake2b

        whole = b"".join(self._parts)
        self._digest = blake2b(whole, digest_size=16)
        self._parts = [whole[: self._most]]

    def held(self) -> bytes:
        """Its beginning, or all of it."""
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def digest(self) -> Optional[str]:
        """BLAKE2b (hex, 16 bytes) of all of it; None while all of it is held."""
        return None if self._digest is None else str(self._digest.hexdigest())


class Dechunker:
    """Takes the chunk framing off a body (RFC 9112, 7.1).

    Attributes:
        is_complete: the last chunk and the trailers were there.
    """

    __slots__ = ("_left", "_line", "_state", "_take", "is_complete")

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._line = b""
        self._left = 0
        self._state = "size"
        self.is_complete = False

    def feed(self, data: bytes) -> bytes:
        """Hand the payload on; returns what lies behind the end of the body.

        Raises:
            ValueError: these are no chunks.
        """
        while data and not self.is_complete:
            if self._state == "data":
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                self._take(part)
                if not self._left:
                    self._state = "behind"
                continue
            end = data.find(b"\n")
            if end < 0:
                self._line += data
                return b""
            line, data = (self._line + data[:end]).rstrip(b"\r"), data[end + 1 :]
            self._line = b""
            self._read(line)
        return data

    def _read(self, line: bytes) -> None:
        if self._state == "behind":
            self._state = "size"
        elif self._state == "trailer":
            self.is_complete = not line
        else:
            self._left = int(line.partition(b";")[0], 16)
            self._state = "data" if self._left else "trailer"


class RequestOnWire:
    """One request, read from the bytes that a client library sends.

    Attributes:
        method, target: of the request line; empty until the head is there.
        headers: (name, value) in their order.
        body: without chunk framing.
        is_complete: nothing is missing.
    """

    __slots__ = ("_dechunker", "_head", "_left", "body", "headers", "is_complete", "method", "target")

    def __init__(self, most: int) -> None:
        self.method = self.target = ""
        self.headers: List[Tuple[str, str]] = []
        self.body = CollectedBody(most)
        self.is_complete = False
        self._head: Optional[bytes] = b""
        self._left = 0
        self._dechunker: Optional[Dechunker] = None

    def feed(self, data: bytes) -> None:
        """The next bytes.

        Raises:
            ValueError: this is no request.
        """
        if self._head is not None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > _HEAD_LONGEST:
                    raise ValueError("a request's head does not end")
                return
            head, data = self._head[:end], self._head[end + 4 :]
            self._head = None
            self._read_head(head)
        if self._dechunker is not None:
            self._dechunker.feed(data)
            self.is_complete = self._dechunker.is_complete
        elif data:
            self.body.add(data)
            self._left -= len(data)
            self.is_complete = self._left <= 0

    @property
    def has_begun(self) -> bool:
        return self._head != b""

    @property
    def has_head(self) -> bool:
        return self._head is None

    @property
    def waits_to_be_told(self) -> bool:
        """The client sends the body only when the server has said 100."""
        return not self.is_complete and any(
            name.lower() == "expect" and value.lower() == "100-continue" for name, value in self.headers
        )

    def _read_head(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target = lines[0].split(" ", 2)[:2]
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers.append((name, value.strip()))
        known = {name.lower(): value for name, value in self.headers}
        if "chunked" in known.get("transfer-encoding", "").lower():
            self._dechunker = Dechunker(self.body.add)
            return
        self._left = int(known.get("content-length") or 0)
        self.is_complete = self._left <= 0


def in_pieces(body: bytes, sizes: Any) -> List[bytes]:
    """A recorded body in the pieces in which it came; what is behind the last size is one piece."""
    pieces = []
    for size in sizes if isinstance(sizes, list) else ():
        if not body or type(size) is not int or size < 1:
            break
        pieces.append(body[:size])
        body = body[size:]
    return [*pieces, body] if body else pieces


def framed(
    status: int, reason: str, headers: List[Tuple[str, str]], pieces: List[bytes], whole: bool
) -> bytes:
    """An answer as a server would have sent it.

    Args:
        pieces: of the body: its chunks, where the headers say that it is chunked.
        whole: lengths and the last chunk are put right, else left as they were.
    """
    chunked = any(
        name.lower() == "transfer-encoding" and "chunked" in value.lower() for name, value in headers
    )
    lines = [f"HTTP/1.1 {status} {reason}"]
    for name, value in headers:
        is_wrong = name.lower() == "content-length" and whole
        lines.append(f"{name}: {sum(map(len, pieces)) if is_wrong else value}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    if not chunked:
        return head + b"".join(pieces)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return head + chunks + (b"0\r\n\r\n" if whole else b"")
