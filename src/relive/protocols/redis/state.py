"""What a connection to Redis remembers from one command to the next."""

from __future__ import annotations

from relive.protocols.redis.commands import SUBSCRIBING, name_of

__all__ = ["RedisState"]


class RedisState:
    """Follows a connection by the commands that were sent on it, taking each for granted.

    Attributes:
        database: the number that was selected.
        version: of RESP.
        monitors: MONITOR was sent: all that is done on the server is told.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Everything is as on a new connection."""
        self.database = 0
        self.version = 2
        self.monitors = False
        self._tracks = False
        self._replies = "ON"
        self._subscribed: dict[str, set[bytes]] = {"": set(), "P": set(), "S": set()}

    @property
    def listens(self) -> bool:
        """Something may be said unasked."""
        return self.monitors or self._tracks or any(self._subscribed.values())

    def subscriptions(self, kind: str) -> set[bytes]:
        """Channels ("" or "S") or patterns ("P")."""
        return self._subscribed[kind]

    def apply_command(self, words: list[bytes]) -> int:
        """A command was sent; how many values answer it."""
        name = name_of(words)
        said = 1
        if name in SUBSCRIBING:
            said = self._subscribe(name, words[1:])
        elif name == "SELECT" and len(words) == 2 and words[1].isdigit() and len(words[1]) < 10:
            self.database = int(words[1])
        elif name == "HELLO" and len(words) > 1 and words[1] in (b"2", b"3"):
            self.version = int(words[1])
        elif name == "MONITOR":
            self.monitors = True
        elif name == "RESET":
            self._forget()
        elif name == "CLIENT" and len(words) > 2:
            return self._client(words[1].upper(), words[2].upper())
        if self._replies == "ON":
            return said
        self._replies = "ON" if self._replies == "SKIP" else "OFF"
        return 0

    def _client(self, about: bytes, value: bytes) -> int:
        if about == b"TRACKING":
            self._tracks = value == b"ON"
        if about == b"REPLY":
            self._replies = value.decode("latin-1")
            return int(value == b"ON")
        return 0 if self._replies == "OFF" else 1

    def _subscribe(self, name: str, given: list[bytes]) -> int:
        """Each channel is confirmed by itself."""
        kind = name.removesuffix("SUBSCRIBE").removesuffix("UN")
        known = self._subscribed[kind]
        if "UNSUB" not in name:
            known.update(given)
            return len(given)
        said = len(given) or max(1, len(known))
        known.difference_update(given or set(known))
        return said
