"""MCP over streamable HTTP, as a part of ``relive serve``: at ``/mcp``, behind the same credentials and limits as the API.

Its tools do more than the API: they name files of this host. So a token needs the scopes admin and memory; those that act on the
host itself are there only for tokens that have the scope host, too.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from relive.config import Settings
from relive.errors import ReliveError, ScopeMissing, UsageError
from relive.mcp.log import log_to_stderr
from relive.mcp.server import make_both_servers
from relive.server.application import Lifespan, make_application
from relive.server.authentication import Authenticator
from relive.server.credentials import Scope as Right
from relive.server.errors import answer_to

__all__ = ["add_mcp", "serve_application"]

_NEEDED = frozenset({Right.ADMIN, Right.MEMORY})


class _Guarded:
    """The protocol's application, for those who may do all that its tools do.

    Args:
        for_host: the one for callers with the scope host; it has more tools.
    """

    def __init__(self, app: ASGIApp, *, for_host: ASGIApp) -> None:
        self._app, self._for_host = app, for_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate: Authenticator = scope["app"].state.gate
        caller = await gate.ask(scope)
        if not isinstance(caller, ReliveError) and not caller.scopes >= _NEEDED:
            caller = ScopeMissing(
                f"the token {caller.name} is not enough for MCP",
                cause=f"it has {', '.join(sorted(caller.scopes))}; the tools can do more",
                remedy="use a token made with `relive token create --scope admin --scope memory`",
            )
        if isinstance(caller, ReliveError):
            await answer_to(caller)(scope, receive, send)
            return
        app = self._for_host if Right.HOST in caller.scopes else self._app
        await app(scope, receive, send)


def add_mcp(settings: Settings) -> tuple[Route, Lifespan]:
    """The route, and what must live as long as the application; see ``server.application``."""
    # Hosts and origins are looked at by the gate.
    open_to_gate = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    plain, for_host = (
        server.streamable_http_app(transport_security=open_to_gate) for server in make_both_servers(settings)
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with plain.router.lifespan_context(plain), for_host.router.lifespan_context(for_host):
            yield

    return Route("/mcp", endpoint=_Guarded(_inner(plain), for_host=_inner(for_host))), lifespan


def _inner(app: Starlette) -> ASGIApp:
    (route,) = (one for one in app.routes if isinstance(one, Route) and one.path == "/mcp")
    return route.app


def serve_application(
    settings: Settings, host: str, port: int, *, without_credentials: bool, ready: Callable[[str], None]
) -> None:
    """Serve API and MCP until SIGINT or SIGTERM; requests under way get five seconds.

    Args:
        ready: called with ``http://HOST:PORT`` when connections are taken.

    Raises:
        UsageError: the address is not possible, or without credentials would be open to others.
        ReliveError: what the server keeps cannot be opened.
    """
    log_to_stderr()
    route, lifespan = add_mcp(settings)
    app = make_application(settings, host=host, without_credentials=without_credentials, beside=[lifespan])
    app.router.routes.append(route)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,  # it would hold signed addresses
        proxy_headers=False,  # from loopback anybody's X-Forwarded-For would be believed
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=5,
    )
    with _listening(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}"
        _Server(config, lambda: ready(address)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Tells when it has started."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        await super().startup(sockets)
        if self.started:
            self._on_started()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UsageError(
            f"--listen: {host}:{port} is not possible",
            cause=error.strerror,
            remedy="choose another address; port 0 takes any that is free",
        ) from error
