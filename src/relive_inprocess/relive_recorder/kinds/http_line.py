"""What is known of a connection of ``http.client``: the request that is being made on it."""

from typing import Any, List, Optional

from relive_recorder.calls import KeptAnswer
from relive_recorder.kinds.http_exchange import HttpExchange
from relive_recorder.recorder import recorder
from relive_recorder.wire import RequestOnWire

__all__ = ["STATE", "Line", "line_of"]

STATE = "_relive_line"  # attribute of a connection


class Line:
    """What is known of a connection: the request that is being made on it.

    Attributes:
        answers: ``getresponse`` runs, and closes the connection as it likes.
        connects: ``connect`` runs, and what is sent belongs to it (a proxy's CONNECT).
        expected: (method, target, headers, body) that urllib3 is going to send.
        sent: in a replay: the request's bytes, should it have to be made really.
        kept: in a replay: its recorded answer, once it was looked for.
        is_real: in a replay: policy lets this request out.
        trouble: an error in sending that the library may think nothing of, when an answer is there all the same.
    """

    __slots__ = ("answers", "connects", "exchange", "expected", "is_real", "kept", "sent", "trouble", "wire")

    def __init__(self) -> None:
        self.answers = self.connects = False
        self.expected: Any = None
        self.forget()

    def forget(self) -> None:
        self.wire: Optional[RequestOnWire] = None
        self.exchange: Optional[HttpExchange] = None
        self.sent: List[bytes] = []
        self.kept: Optional[KeptAnswer] = None
        self.is_real = False
        self.trouble: Optional[BaseException] = None

    def begin(self) -> None:
        if self.wire is None:
            self.wire = RequestOnWire(recorder.options.body_bytes)
            self.exchange = HttpExchange()


def line_of(connection: Any) -> Line:
    """That of a connection, made when it is first asked for."""
    line = connection.__dict__.get(STATE)
    if line is None:
        line = connection.__dict__[STATE] = Line()
    return line  # type: ignore[no-any-return]
