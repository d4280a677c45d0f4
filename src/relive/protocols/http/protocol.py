"""HTTP as a protocol among others."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from relive.protocols.call import Call
from relive.protocols.http.reading import read_calls, scheme_of
from relive.protocols.http.session import HttpSession
from relive.protocols.pool import Pool
from relive.protocols.session import NOWHERE, Act, Protocol, Resume, Session
from relive.recording.dialogues import Dialogue, Tls, Way

__all__ = ["Http", "OnMiss"]

OnMiss = Literal["answer", "reset"]
_REQUEST = re.compile(rb"(?:\r?\n)*[A-Z][A-Z-]{1,15} [^\x00-\x20\x7f]+ HTTP/1\.[01]\r?\n")
_BEGINNING = 1 << 16  # [bytes] in which the first line ends, or it is none of HTTP


class Http(Protocol):
    """HTTP/1.0 and 1.1.

    Args:
        on_miss: what a request gets of which no call was recorded: "answer" (502, or 400 in XML for S3, which tell what came
            nearest) or "reset" (the connection breaks).
    """

    name: ClassVar[str] = "http"

    def __init__(self, on_miss: OnMiss = "answer") -> None:
        self._on_miss = on_miss

    def recognises(self, dialogue: Dialogue) -> bool:
        if dialogue.tls is Tls.CLOSED:
            return False
        answer = dialogue.text(Way.DOWN, 0, 5)
        is_answer = not answer or answer == b"HTTP/"[: len(answer)]
        return is_answer and _REQUEST.match(dialogue.text(Way.UP, 0, _BEGINNING)) is not None

    def calls(self, dialogue: Dialogue) -> list[Call]:
        return read_calls(dialogue)

    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:
        """TLS is taken off by whoever owns the socket; port 443 is taken for it."""
        return self._session(pool, number, to, "https" if to[1] == 443 else "http")

    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        session = self._session(pool, number, where.dialogue.to, scheme_of(where.dialogue))
        return session, session.carry_on(self.calls(where.dialogue), where)

    def _session(self, pool: Pool, number: int, to: tuple[str, int], scheme: str) -> HttpSession:
        return HttpSession(pool, number, to=to, scheme=scheme, resets=self._on_miss == "reset")
