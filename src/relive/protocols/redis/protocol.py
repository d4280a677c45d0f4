"""Redis as a protocol among others."""

from __future__ import annotations

from typing import ClassVar, Literal

from relive.protocols.call import Call
from relive.protocols.pool import Pool
from relive.protocols.redis.reading import read_calls
from relive.protocols.redis.resp import Commands, Values
from relive.protocols.redis.session import RedisSession
from relive.protocols.redis.simulation import Simulation
from relive.protocols.session import NOWHERE, Act, Protocol, Resume, Session
from relive.recording.dialogues import Dialogue, Tls, Way

__all__ = ["OnMiss", "Redis"]

OnMiss = Literal["answer", "reset", "simulate"]
_PORTS = frozenset((6379, 6380, 26379))
_BEGINNING = 1 << 16  # [bytes]


class Redis(Protocol):
    """Redis, Valkey and what speaks like them.

    Args:
        on_miss: what a command gets of which no call was recorded: "answer" (an error that tells what came nearest), "reset" (the
            connection breaks), "simulate" (it runs on fakeredis, in which stands what is known from recorded reads and writes; what
            that cannot do is answered with an error).

    Raises:
        PackageMissing: "simulate" without fakeredis.
    """

    name: ClassVar[str] = "redis"

    def __init__(self, on_miss: OnMiss = "answer") -> None:
        self._resets = on_miss == "reset"
        self._stand = Simulation() if on_miss == "simulate" else None

    def recognises(self, dialogue: Dialogue) -> bool:
        """Arrays of words are told by themselves; inline commands only at Redis's ports."""
        if dialogue.tls is Tls.CLOSED:
            return False
        up, down = dialogue.text(Way.UP, 0, _BEGINNING), dialogue.text(Way.DOWN, 0, _BEGINNING)
        commands, values = Commands(), Values()
        asked = commands.feed(up)
        values.feed(down)
        if commands.is_broken or values.is_broken or (down and down[:1] not in b"+-:$*_#,(!=%~>|"):
            return False
        if not up:
            return dialogue.to[1] in _PORTS
        return up[:1] == b"*" if dialogue.to[1] not in _PORTS else bool(asked) or up[:1] == b"*"

    def calls(self, dialogue: Dialogue) -> list[Call]:
        return read_calls(dialogue)

    def open(self, pool: Pool, number: int, *, to: tuple[str, int] = NOWHERE) -> Session:
        return self._session(pool, number, to)

    def resume(self, pool: Pool, number: int, where: Resume) -> tuple[Session, list[Act]]:
        session = self._session(pool, number, where.dialogue.to)
        return session, session.carry_on(self.calls(where.dialogue), where)

    def _session(self, pool: Pool, number: int, to: tuple[str, int]) -> RedisSession:
        return RedisSession(pool, number, to, resets=self._resets, stand=self._stand)
