"""Tokens: who may ask the server for what. Kept in ``credentials.sqlite``; how a request shows one is in ``authentication``.

A token is written ``rlv_ID_SECRET``: 16 and 64 hexadecimal digits, so that scanners of repositories find a lost one. It is shown
once; kept is HMAC-SHA256 of it under ``token.key``. A slow hash (scrypt, Argon2) makes guessing dear where people choose
passwords. This secret is 256 random bits, which nobody guesses at any price, so it would only make each request dear: 50 ms of
a processor, also for whoever sends nonsense. The key lies in another file: who can write to the database alone cannot make a token.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from relive.errors import TokenUnknown, UsageError
from relive.model.token_scope import Scope
from relive.server.database import SqliteFile
from relive.server.key_files import private_directory, read_key

__all__ = ["Scope", "Token", "TokenState", "Tokens", "reach"]

_WRITTEN = re.compile(r"rlv_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_NOTED_EVERY = 60 * 10**9  # [ns] ``last_used_ns`` is this much behind at most, and not each request writes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, digest BLOB NOT NULL, created_ns INTEGER NOT NULL,
    expires_ns INTEGER, revoked_ns INTEGER, last_used_ns INTEGER
) WITHOUT ROWID;
"""


# Memory is in no other scope: it may hold what the service knows about its users. Neither is host, which was not there when older
# tokens were made: they are to open no more than they did.
_IMPLIED = {
    Scope.READ: {Scope.READ},
    Scope.OPERATE: {Scope.READ, Scope.OPERATE},
    Scope.MEMORY: {Scope.READ, Scope.MEMORY},
    Scope.ADMIN: {Scope.READ, Scope.OPERATE, Scope.ADMIN},
    Scope.HOST: {Scope.READ, Scope.HOST},
}


def reach(scopes: Collection[Scope]) -> frozenset[Scope]:
    """The scopes with those they imply: all imply read, admin implies operate, none implies memory or host."""
    return frozenset(implied for scope in scopes for implied in _IMPLIED[scope])


class TokenState(StrEnum):
    """Whether it opens anything."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; the secret is not. Times are Unix nanoseconds.

    Attributes:
        scopes: as they were given, in the order of ``Scope``.
        expires_ns, revoked_ns: None: never, not.
        last_used_ns: up to a minute behind; None: it was not used.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None
    last_used_ns: int | None

    def state(self, now_ns: int) -> TokenState:
        """Whether it opens anything at that time."""
        if self.revoked_ns is not None:
            return TokenState.REVOKED
        return (
            TokenState.EXPIRED
            if self.expires_ns is not None and self.expires_ns <= now_ns
            else TokenState.VALID
        )


class Tokens:
    """All tokens of one ``$RELIVE_HOME``. To be used from any thread; a revocation counts at once in every process."""

    def __init__(self, server: Path, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Open the tokens below ``settings.server``.

        Raises:
            KeyWrong, StoreVersionUnknown, DiskFull, PermissionMissing, StoreBusy, StoreError: they cannot be opened.
        """
        private_directory(server)
        self._clock = clock
        self._key = read_key(server / "token.key")
        self._nothing = secrets.token_bytes(32)  # compared with where no token has the id
        self._database = SqliteFile(server / "credentials.sqlite", _SCHEMA)

    def create(self, name: str, scopes: Collection[Scope], *, lifetime: int | None) -> tuple[Token, str]:
        """Make a token; gives it and its text, which cannot be had again.

        Args:
            lifetime: seconds after which it expires; None: never.

        Raises:
            UsageError: the name cannot be one, or there is no scope.
            DiskFull, StoreBusy, StoreError: it could not be written.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a token's name",
                remedy="use up to 64 letters, digits, dot, dash, underscore, @",
            )
        if not scopes:
            raise UsageError("a token without a scope opens nothing", remedy="add --scope read")
        now = self._clock()
        expires = None if lifetime is None else now + lifetime * 10**9
        given = tuple(scope for scope in Scope if scope in scopes)
        token = Token(secrets.token_hex(8), name, given, now, expires, None, None)
        secret = secrets.token_hex(32)
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)",
                (token.id, name, " ".join(given), self._digest(token.id, secret), now, expires),
            )
        return token, f"rlv_{token.id}_{secret}"

    def all(self) -> list[Token]:
        """All of them, also those that are not valid any more, the oldest first."""
        return [_token(row) for row in self._database.rows("SELECT * FROM tokens ORDER BY created_ns, id")]

    def revoke(self, id_or_name: str) -> Token:
        """End a token at once; revoking it again changes nothing.

        Raises:
            TokenUnknown: there is none of that id, and no valid one of that name.
            UsageError: several valid ones have that name.
        """
        token = self._named(id_or_name)
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE tokens SET revoked_ns = coalesce(revoked_ns, ?) WHERE id = ?",
                (self._clock(), token.id),
            )
            return _token(connection.execute("SELECT * FROM tokens WHERE id = ?", (token.id,)).fetchone())

    def _named(self, id_or_name: str) -> Token:
        tokens, now = self.all(), self._clock()
        found = [one for one in tokens if one.id == id_or_name] or [
            one for one in tokens if one.name == id_or_name and one.state(now) is TokenState.VALID
        ]
        if not found:
            raise TokenUnknown(
                f"there is no token {id_or_name[:64]!r}",
                cause="no token has this id, and no valid one this name",
                remedy="`relive token list` shows them",
            )
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} tokens are called {id_or_name!r}",
                cause=f"their ids: {', '.join(one.id for one in found)}",
                remedy="give the id",
            )
        return found[0]

    def verify(self, text: str) -> Token | None:
        """The valid token of this text, or None: for no token, an unknown id, a wrong secret, an expired and a revoked one.

        The same is done for all of these, and the comparison takes the same time wherever two digests differ.
        """
        match = _WRITTEN.fullmatch(text)
        identity, secret = match.groups() if match else ("", "")
        rows = self._database.rows("SELECT * FROM tokens WHERE id = ?", identity)
        kept = rows[0]["digest"] if rows else self._nothing
        is_right = hmac.compare_digest(self._digest(identity, secret), kept)
        if not is_right or not rows:
            return None
        token = _token(rows[0])
        return token if token.state(self._clock()) is TokenState.VALID else None

    def is_use_unnoted(self, token: Token) -> bool:
        """``note_use`` would write something."""
        return token.last_used_ns is None or self._clock() - token.last_used_ns >= _NOTED_EVERY

    def note_use(self, token: Token) -> None:
        """Note that it was used now. Writes, so it is not for the event loop."""
        with self._database.writing() as connection:
            connection.execute("UPDATE tokens SET last_used_ns = ? WHERE id = ?", (self._clock(), token.id))

    def close(self) -> None:
        """Close the file; may be called multiple times."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _digest(self, identity: str, secret: str) -> bytes:
        return hmac.digest(self._key, f"relive token {identity} {secret}".encode(), "sha256")


def _token(row: sqlite3.Row) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        scopes=tuple(Scope(one) for one in row["scopes"].split()),
        created_ns=row["created_ns"],
        expires_ns=row["expires_ns"],
        revoked_ns=row["revoked_ns"],
        last_used_ns=row["last_used_ns"],
    )
