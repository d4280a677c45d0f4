"""Signed addresses: who holds one may fetch one export until it expires, without a token.

The path is ``/exports/EXPORT/file`` and the query ``expires=SECONDS&link=LINK&signature=HEX``, in this order and nothing else: the
signature is HMAC-SHA256 under ``links.key`` over ``relive link 1``, EXPORT, SECONDS and LINK, with newlines between. No two texts
are the same address, so whatever is changed in one is noticed. LINK is a row of ``links.sqlite``, by which one address is revoked;
another key revokes all.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relive.errors import NotFound, UrlRefused, UsageError
from relive.server.database import SqliteFile
from relive.server.key_files import private_directory, read_key, replace_key

__all__ = ["LONGEST", "SignedLink", "SignedUrls"]

LONGEST = 30 * 86_400  # [s] that an address is valid at most
_QUERY = re.compile(
    rb"expires=(?P<expires>[1-9][0-9]{0,11})&link=(?P<link>[0-9a-f]{32})&signature=(?P<signature>[0-9a-f]{64})"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS links (
    link TEXT PRIMARY KEY, export TEXT NOT NULL, asked_by TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,
    revoked INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_by_export ON links (export, created);
"""


@dataclass(frozen=True, slots=True)
class SignedLink:
    """What is known of a signed address. Times are Unix seconds; ``revoked`` is None if it was not.

    The address itself is not kept, but can be made from it by who has the key.
    """

    link: str
    export: str
    asked_by: str
    created: int
    expires: int
    revoked: int | None


class SignedUrls:
    """Makes and checks them; from any thread. What is revoked is so at once in every process."""

    def __init__(self, server: Path, *, clock: Callable[[], float] = time.time) -> None:
        """
        Args:
            server: ``settings.server``.

        Raises:
            KeyWrong, StoreVersionUnknown, DiskFull, PermissionMissing, StoreBusy, StoreError: they cannot be opened.
        """
        private_directory(server)
        self._key_path = server / "links.key"
        read_key(self._key_path)  # so that a key that is none is noticed at the start
        self._clock = clock
        self._database = SqliteFile(server / "links.sqlite", _SCHEMA)

    def issue(self, export: str, *, lifetime: int, asked_by: str) -> tuple[SignedLink, str]:
        """Make an address; gives what is known of it, and path with query, which begins with a slash.

        Args:
            lifetime: seconds, 1 to LONGEST.

        Raises:
            UsageError: the lifetime is not possible.
            DiskFull, StoreBusy, StoreError: it could not be written.
        """
        if not 0 < lifetime <= LONGEST:
            raise UsageError(
                f"a signed address cannot be valid for {lifetime} seconds",
                cause=f"1 to {LONGEST} are possible",
                remedy="ask for a shorter time, and again when it is over",
            )
        now = int(self._clock())
        link = SignedLink(secrets.token_hex(16), export, asked_by, now, now + lifetime, None)
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?, NULL)",
                (link.link, export, asked_by, now, link.expires),
            )
        signature = self._signature(export, link.expires, link.link).hex()
        query = f"expires={link.expires}&link={link.link}&signature={signature}"
        return link, f"/exports/{export}/file?{query}"

    def check(self, export: str, query: bytes) -> SignedLink:
        """What is known of the address with this export and raw query, if it is valid.

        Raises:
            UrlRefused: it is not. Only to who holds one that was signed is it told whether it has expired or was revoked.
        """
        match = _QUERY.fullmatch(query)
        expires, link, signature = (
            (int(match["expires"]), match["link"].decode(), bytes.fromhex(match["signature"].decode()))
            if match
            else (0, "", b"")
        )
        if not hmac.compare_digest(self._signature(export, expires, link), signature):
            raise _refused(
                "its signature does not fit", "copy it whole, with all that follows the question mark"
            )
        if expires <= self._clock():
            raise _refused("it has expired", "ask for another one: POST /exports")
        rows = self._database.rows("SELECT * FROM links WHERE link = ?", link)
        if not rows or rows[0]["revoked"] is not None:
            raise _refused("it was revoked", "ask for another one: POST /exports")
        return _link(rows[0])

    def links(self, export: str) -> list[SignedLink]:
        """The addresses of an export that have not been swept out, the oldest first."""
        question = "SELECT * FROM links WHERE export = ? ORDER BY created, link"
        return [_link(row) for row in self._database.rows(question, export)]

    def revoke(self, link: str) -> SignedLink:
        """End one address; doing it again changes nothing.

        Raises:
            NotFound: there is none with this ``link``.
        """
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE links SET revoked = coalesce(revoked, ?) WHERE link = ?", (int(self._clock()), link)
            )
            row = connection.execute("SELECT * FROM links WHERE link = ?", (link,)).fetchone()
        if row is None:
            raise NotFound(
                f"there is no signed address {link[:32]!r}", cause="it was forgotten, or never was"
            )
        return _link(row)

    def revoke_all(self) -> None:
        """End all addresses that were made until now, also such as nobody knows of, with another key."""
        replace_key(self._key_path)
        with self._database.writing() as connection:
            connection.execute("UPDATE links SET revoked = coalesce(revoked, ?)", (int(self._clock()),))

    def sweep(self) -> None:
        """Forget addresses a day after they expired."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM links WHERE expires < ?", (int(self._clock()) - 86_400,))

    def close(self) -> None:
        """Close the file; may be called multiple times."""
        self._database.close()

    def _signature(self, export: str, expires: int, link: str) -> bytes:
        # The key is read each time: another process may have replaced it.
        text = f"relive link 1\n{export}\n{expires}\n{link}"
        return hmac.digest(read_key(self._key_path), text.encode(errors="backslashreplace"), "sha256")


def _refused(cause: str, remedy: str) -> UrlRefused:
    return UrlRefused("the address of the download is not valid", cause=cause, remedy=remedy)


def _link(row: sqlite3.Row) -> SignedLink:
    return SignedLink(
        row["link"], row["export"], row["asked_by"], row["created"], row["expires"], row["revoked"]
    )
