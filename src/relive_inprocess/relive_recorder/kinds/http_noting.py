"""Bodies of answers, noted as ``http.client`` reads them."""

import io
from typing import Any, Optional

from relive_recorder.guard import attempt
from relive_recorder.kinds.http_exchange import HttpExchange, forget
from relive_recorder.kinds.http_played import PlayedFile
from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.wire import Dechunker

__all__ = ["NotingFile"]


class NotingFile:
    """Stands for the file that an ``HTTPResponse`` reads from, and notes what is read."""

    def __init__(self, file: Any, exchange: HttpExchange, chunked: bool, length: Optional[int]) -> None:
        self._file = file
        self._exchange = exchange
        self._left = length
        self._dechunker = Dechunker(exchange.got) if chunked else None
        self._saw_end = False

    def _note(self, data: bytes, wanted: Any = -1) -> bytes:
        attempt(self._feed, data, wanted)
        return data

    def _feed(self, data: bytes, wanted: Any) -> None:
        if self._exchange.is_done:
            return
        if self._dechunker is not None:
            try:
                self._dechunker.feed(data)
            except ValueError:  # the library will say what it thinks of these chunks
                self._dechunker = Dechunker(lambda _: None)
                self._dechunker._state = "lost"
        elif data:
            self._exchange.got(data)
        if not data and wanted != 0:
            self._saw_end = True

    def _is_whole(self) -> bool:
        if self._dechunker is not None:
            return self._dechunker.is_complete
        if self._left is not None:
            return self._exchange.length >= self._left
        return self._saw_end

    def _broke(self, error: BaseException) -> None:
        rest = None
        if recorder.mode() == REPLAY and not self._exchange.is_played:
            rest = self._rest()
        if rest is None:
            attempt(self._exchange.failed, error, "body")
            raise error
        self._file = rest

    def _rest(self) -> Optional[io.BufferedReader]:
        """The rest of a body that was being read when the commit was taken. Not of chunks: where they ended is not recorded."""
        kept = self._exchange.find()
        if kept is None or self._dechunker is not None:
            return None
        return io.BufferedReader(PlayedFile(kept.data[self._exchange.length :], None))

    def _reading(self, method: str, *given: Any) -> bytes:
        try:
            data = getattr(self._file, method)(*given)
        except BaseException as error:
            self._broke(error)
            data = getattr(self._file, method)(*given)
        return self._note(data, *given)

    def read(self, *given: Any) -> bytes:
        return self._reading("read", *given)

    def read1(self, *given: Any) -> bytes:
        return self._reading("read1", *given)

    def readline(self, *given: Any) -> bytes:
        return self._reading("readline", *given)

    def readinto(self, into: Any) -> int:
        try:
            size = self._file.readinto(into)
        except BaseException as error:
            self._broke(error)
            size = self._file.readinto(into)
        self._note(bytes(memoryview(into)[:size]), len(into))
        return int(size)

    def close(self) -> None:
        if not self._exchange.is_done:
            forget(self._exchange, attempt(self._is_whole) or False)
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __del__(self) -> None:
        exchange = self.__dict__.get("_exchange")
        if exchange is not None and not exchange.is_done:
            forget(exchange, attempt(self._is_whole) or False)
