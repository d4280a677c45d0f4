"""What stands in the place of a connection's socket in a replay: recorded bytes can be read from it, what is sent goes nowhere."""

import io
import socket
from typing import Any, Optional, Tuple

from relive_recorder.kinds.http_exchange import answer_of, error_of
from relive_recorder.kinds.http_line import Line
from relive_recorder.wire import framed, in_pieces

__all__ = ["PlayedFile", "PlayedSocket"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class PlayedSocket:
    """A connection that leads nowhere: what was recorded can be read from it."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._timeout: Any = None
        self._pair: Optional[Tuple[socket.socket, socket.socket]] = None

    def sendall(self, _data: Any, _flags: int = 0) -> None:
        """All was noted before it came here."""

    def send(self, data: Any, _flags: int = 0) -> int:
        return len(data)

    def makefile(self, _mode: str = "r", _buffering: Any = None, **_named: Any) -> Any:
        kept, wire = self._line.kept, self._line.wire
        if kept is None:
            waits = wire is not None and wire.waits_to_be_told
            return io.BufferedReader(PlayedFile(_CONTINUE if waits else b"", None))
        error = error_of(kept) if "error" in kept.fields else None
        if "answer" not in kept.fields:
            return io.BufferedReader(PlayedFile(b"", error))
        whole = error is None and bool(kept.fields.get("whole", True))
        status, reason, headers = answer_of(kept)
        no_body = wire is not None and wire.method == "HEAD"
        raw = framed(
            status, reason, headers, in_pieces(kept.data, kept.fields.get("pieces")), whole and not no_body
        )
        return io.BufferedReader(PlayedFile(raw, error))

    def fileno(self) -> int:
        """Of a socket that can be read only while a client waits for leave to send its body."""
        if self._pair is None:
            self._pair = socket.socketpair()
        wire = self._line.wire
        if wire is not None and wire.has_head and wire.waits_to_be_told:
            self._pair[1].send(b"1")
        else:
            self._pair[0].setblocking(False)
            try:
                self._pair[0].recv(4096)
            except BlockingIOError:
                pass
        return self._pair[0].fileno()

    def settimeout(self, value: Any) -> None:
        self._timeout = value

    def gettimeout(self) -> Any:
        return self._timeout

    def setsockopt(self, *_given: Any) -> None:
        """There are none."""

    def getpeername(self) -> Tuple[str, int]:
        return "127.0.0.1", 0

    getsockname = getpeername

    def getpeercert(self, binary_form: bool = False) -> Any:
        return b"" if binary_form else {}

    def version(self) -> str:
        return "TLSv1.3"

    def cipher(self) -> Any:
        return None

    def selected_alpn_protocol(self) -> Any:
        return None

    def shutdown(self, _how: int) -> None:
        """Nobody is there to notice."""

    def close(self) -> None:
        for end in self._pair or ():
            end.close()
        self._pair = None

    detach = unwrap = close


class PlayedFile(io.RawIOBase):
    """Bytes, and then an error or the end."""

    def __init__(self, data: bytes, error: Optional[BaseException]) -> None:
        self._data = memoryview(data)
        self._error = error

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._data and self._error is not None:
            raise self._error
        size = min(len(into), len(self._data))
        into[:size] = self._data[:size]
        self._data = self._data[size:]
        return size
