"""Streamlit and its server in this process, set up for an administrator's page: own host, nothing sent, nothing watched."""

from __future__ import annotations

import gc
import importlib
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st
import uvicorn
from starlette.middleware import Middleware
from streamlit.web.bootstrap import load_config_options

from relive.dashboard.guard import Guard
from relive.errors import HostIncapable, UsageError

__all__ = ["new_token", "serve"]

_APP = Path(__file__).with_name("app.py")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_MOST_MESSAGE = 16 << 20  # [bytes] of a web socket's message from a browser; nothing is uploaded
_OPTIONS: dict[str, Any] = {
    "server.headless": True,
    "server.fileWatcherType": "none",
    "server.runOnSave": False,
    "server.enableCORS": True,
    "server.enableXsrfProtection": True,
    "server.enableStaticServing": False,
    "server.maxUploadSize": 1,
    "server.showEmailPrompt": False,
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "viewer",
    "client.showErrorLinks": False,
    "runner.magicEnabled": False,
    "logger.level": "error",  # it warns of every fragment that was about to be drawn on a page that was left
    "theme.showWidgetBorder": True,
    "theme.baseRadius": "small",
    "theme.headingFontSizes": ["1.6rem", "1.25rem", "1.05rem"],
    "theme.headingFontWeights": [650, 650, 600],
    "theme.codeFontSize": "0.82rem",
    "theme.light.primaryColor": "#3266a8",
    "theme.light.backgroundColor": "#ffffff",
    "theme.light.secondaryBackgroundColor": "#f3f5f8",
    "theme.light.textColor": "#1c2330",
    "theme.light.borderColor": "#d5dae1",
    "theme.dark.primaryColor": "#6ea8e8",
    "theme.dark.backgroundColor": "#14181f",
    "theme.dark.secondaryBackgroundColor": "#1d232d",
    "theme.dark.textColor": "#e6e9ee",
    "theme.dark.borderColor": "#394150",
}


def new_token() -> str:
    """A secret part of an address."""
    return secrets.token_urlsafe(24)


def serve(host: str, port: int, token: str | None, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        port: 0: any free one.
        token: see ``Guard``; None only for loopback.
        ready: is told the address, when it can be opened.

    Raises:
        UsageError: a host that is not loopback needs a token.
        HostIncapable: the address cannot be listened at.
    """
    hosts = _hosts(host, token)
    with _listener(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        number = listener.getsockname()[1]
        load_config_options(
            {
                **_OPTIONS,
                "server.address": host,
                "server.port": number,
                "server.baseUrlPath": token or "",
                "server.allowedHosts": sorted(hosts or ()),
            }
        )
        app = st.App(_APP, middleware=[Middleware(Guard, token=token, hosts=hosts)])
        _import_pages()
        _collect_little()
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # its lines would hold the token
            server_header=False,
            ws_max_size=_MOST_MESSAGE,
            timeout_graceful_shutdown=2,
        )
        _Server(config, lambda: ready(f"http://{shown}:{number}/{token + '/' if token else ''}")).run(
            sockets=[listener]
        )


class _Server(uvicorn.Server):
    """Tells when it has begun."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def _hosts(host: str, token: str | None) -> frozenset[str] | None:
    """The names by which it may be called; None: every name."""
    if _is_loopback(host):
        return frozenset({*_LOOPBACK_NAMES, host.lower()})
    if token is None:
        raise UsageError(
            f"the dashboard cannot be open to all who reach {host}",
            cause="whoever reaches it acts as root on this host",
            remedy="leave --no-token out; or stay on 127.0.0.1 and come through `ssh -L 8501:127.0.0.1:8501 HOST`",
        )
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    return None if is_any else frozenset({host.lower()})


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listener(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise HostIncapable(
            f"the dashboard cannot listen at {host}, port {port}",
            cause=os.strerror(error.errno)
            if error.errno and error.errno > 0
            else str(error),  # resolvers count below 0
            remedy="choose another one: --port 0 takes any that is free",
        ) from error


def _import_pages() -> None:
    """What pages need, before anybody waits for it."""
    for path in (_APP.parent / "views").glob("[!_]*.py"):
        importlib.import_module(f"relive.dashboard.views.{path.stem}")


def _collect_little() -> None:
    """Have garbage looked for only in what comes from here on: streamlit collects all after each run of a page."""
    gc.collect()
    gc.freeze()
