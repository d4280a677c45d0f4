"""Who asks, and whether they may: from the headers of a request to a ``Caller``; ``needs`` is the dependency of a route.

Without a token only a server answers that was started with ``--no-credentials`` and listens at loopback addresses alone, and only
to requests that no web page can have caused: their Host is a loopback name (a page that rebinds its own name to 127.0.0.1 sends
that name), and neither Origin nor Sec-Fetch-Site name another site. Who sends a token sends it on purpose, since no browser adds it
by itself; so these rules are not for them. docs/api-security.md says who is left that could do harm.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import anyio.to_thread
import structlog
from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.types import Scope as AsgiScope

from relive.errors import CredentialsMissing, OriginRefused, ReliveError, ScopeMissing, UsageError
from relive.server.audit import note_for_audit
from relive.server.credentials import Scope, Token, Tokens, reach

__all__ = ["Authenticator", "Caller", "is_loopback", "needs", "refuse_open_server", "refuse_without"]

_ASKED = "relive.caller"  # in the ASGI scope: what ``Authenticator.ask`` found out, a Caller or a ReliveError
# Whoever reaches loopback is no reason to start programs as root.
_WITHOUT_A_TOKEN = frozenset(Scope) - {Scope.HOST}
_BEARER = HTTPBearer(auto_error=False, description="A token of `relive token create`")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        token: the id of the token; None without one (``--no-credentials``).
        name: the token's name, or ``anonymous``.
        scopes: with those that are implied.
        address: where the request came from.
    """

    token: str | None
    name: str
    scopes: frozenset[Scope]
    address: str

    @property
    def who(self) -> str:
        """As it stands in the audit log and in ``asked_by`` of tasks; the id is what cannot be given twice."""
        return self.name if self.token is None else f"{self.name} ({self.token})"


def is_loopback(host: str) -> bool:
    """The text is ``localhost`` or a loopback address, an IPv6 one with or without brackets."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def refuse_open_server(host: str, *, without_credentials: bool) -> None:
    """To be asked before a server is started.

    Raises:
        UsageError: it would answer everybody in the network.
    """
    if without_credentials and not is_loopback(host):
        raise UsageError(
            f"--no-credentials is not possible at {host}",
            cause="whoever reaches this address could commit, restore and read the memory of services, as root",
            remedy="listen at 127.0.0.1, or leave --no-credentials out and make a token: `relive token create`",
        )


class Authenticator:
    """Decides on each request; one for each application, in ``app.state.gate``."""

    def __init__(self, tokens: Tokens, *, host: str, without_credentials: bool = False) -> None:
        """
        Args:
            host: the address at which the server listens.

        Raises:
            UsageError: see ``refuse_open_server``.
        """
        refuse_open_server(host, without_credentials=without_credentials)
        self._tokens = tokens
        self._is_open = without_credentials

    async def ask(self, scope: AsgiScope) -> Caller | ReliveError:
        """Who sent the request of this ASGI scope, or why they may not; found out once for a request.

        Returns:
            CredentialsMissing: no valid token, and one is needed.
            OriginRefused: none is needed, but a web page may be behind it.
            StoreError, StoreBusy, DiskFull: the tokens cannot be read.
        """
        if _ASKED not in scope:
            try:
                scope[_ASKED] = await self._ask(Headers(scope=scope), scope)
            except ReliveError as error:
                scope[_ASKED] = error
        found: Caller | ReliveError = scope[_ASKED]
        return found

    async def _ask(self, headers: Headers, scope: AsgiScope) -> Caller:
        address = (scope.get("client") or ("unknown", 0))[0]
        given = headers.getlist("authorization")
        if self._is_open and not given:
            _refuse_pages(headers, address, scope.get("scheme", "http"))
            return Caller(None, "anonymous", _WITHOUT_A_TOKEN, address)
        # A token that is wrong is refused also where none is needed: what it was meant to limit would not be.
        kind, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        token = self._tokens.verify(text.strip() if kind.lower() == "bearer" else "")
        if token is None:
            raise CredentialsMissing(
                "the request shows no valid token",
                cause="there is none, or it is unknown, expired or revoked"
                if given
                else "it has no Authorization header",
                remedy="send `Authorization: Bearer rlv_...`; `relive token create` on the server makes one",
            )
        if self._tokens.is_use_unnoted(token):
            await anyio.to_thread.run_sync(self._note_use, token)
        return Caller(token.id, token.name, reach(token.scopes), address)

    def _note_use(self, token: Token) -> None:
        try:
            self._tokens.note_use(token)
        except ReliveError as error:
            # Who comes to free a full disk must not be refused because of it.
            structlog.get_logger().warning(
                "the use of a token was not noted", token=token.id, error=str(error)
            )


def _refuse_pages(headers: Headers, address: str, scheme: str) -> None:
    """Raise OriginRefused where a web page may have caused the request, or it does not come from this host."""
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    host = hosts[0] if len(hosts) == 1 else ""
    match = _HOST.fullmatch(host)
    if match is None or not is_loopback(match["name"]):
        raise _page(f"its Host is {host[:100]!r}, which is no loopback address")
    if not is_loopback(address):
        raise _page(f"it comes from {address}, which is no loopback address")
    if origins not in ([], [f"{scheme}://{host}"]):
        raise _page(f"its Origin is {origins[0][:100]!r}, another one than this server")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise _page("a browser says that a page of another site asks")


def _page(cause: str) -> OriginRefused:
    return OriginRefused(
        "the request may come from a web page",
        cause=cause,
        remedy="without a token ask at http://127.0.0.1 or http://localhost; else make one: `relive token create`",
    )


def needs(scope: Scope) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency that gives the Caller: ``caller: Annotated[Caller, Depends(needs(Scope.OPERATE))]``.

    It raises what ``Authenticator.ask`` returns, and ScopeMissing if the caller's scopes do not hold ``scope``.
    """

    async def caller(
        request: Request,
        _shown: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],  # for OpenAPI
    ) -> Caller:
        gate: Authenticator = request.app.state.gate
        found = await gate.ask(request.scope)
        if scope in (Scope.MEMORY, Scope.ADMIN, Scope.HOST):
            note_for_audit(request.scope)  # such reading is in the audit log as well
        if isinstance(found, ReliveError):
            raise found
        refuse_without(found, scope)
        return found

    return caller


def refuse_without(caller: Caller, scope: Scope) -> None:
    """For routes of which some parameters need more than others; raises ScopeMissing."""
    if scope not in caller.scopes:
        raise ScopeMissing(
            f"the token {caller.name} does not have the scope {scope.value}",
            cause=f"it has {', '.join(sorted(caller.scopes))}",
            remedy=f"use a token made with `relive token create --scope {scope.value}`",
        )
