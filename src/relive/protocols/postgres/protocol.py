"""PostgreSQL as one of the protocols that Relive understands."""

from __future__ import annotations

from typing import ClassVar
from weakref import WeakKeyDictionary

from relive.protocols.call import Call
from relive.protocols.pool import Pool
from relive.protocols.postgres.calls import decode_dialogue
from relive.protocols.postgres.framing import FrontendFramer
from relive.protocols.postgres.resuming import resume_session
from relive.protocols.postgres.server_info import ServerInfo
from relive.protocols.postgres.session import OnMiss, PostgresSession
from relive.protocols.session import NOWHERE, Act, Protocol, Resume, Session
from relive.recording.dialogues import Dialogue, Tls, Way

__all__ = ["OnMiss", "PostgreSQL"]


class PostgreSQL(Protocol):
    """See the package.

    The pool of a session holds all recorded calls; those that were answered before the commit are used up (``Pool.use_up``),
    not left out: they tell how connections are opened and what statements return.

    Args:
        on_miss: what becomes of a question that was not recorded: "answer" (an error message, the connection goes on) or "reset".
    """

    name: ClassVar[str] = "postgresql"

    def __init__(self, on_miss: OnMiss = "answer") -> None:
        self._on_miss: OnMiss = on_miss
        self._server_info: WeakKeyDictionary[Pool, ServerInfo] = WeakKeyDictionary()

    def recognises(self, dialogue: Dialogue) -> bool:
        """By the first packet, which names the protocol's version or asks for encryption."""
        if dialogue.tls is Tls.CLOSED:
            return False
        framer = FrontendFramer()
        return bool(framer.feed(dialogue.text(Way.UP, 0, 1 << 14)))

    def calls(self, dialogue: Dialogue) -> list[Call]:
        """As ``Protocol.calls``; ``extra["parts"]`` is a ``Parts``."""
        return decode_dialogue(dialogue)[1].calls

    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:
        """As ``Protocol.open``."""
        return PostgresSession(pool, number, self._server_info_of(pool), to, self._on_miss)

    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        """As ``Protocol.resume``; calls that were answered before are used up here."""
        session = PostgresSession(pool, number, self._server_info_of(pool), where.dialogue.to, self._on_miss)
        return session, resume_session(session, where)

    def _server_info_of(self, pool: Pool) -> ServerInfo:
        found = self._server_info.get(pool)
        if found is None:
            found = self._server_info[pool] = ServerInfo(pool)
        return found
