"""The REST API as one application: its routers, its state, what stands before them, and how it starts and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio.to_thread
import structlog
from fastapi import Depends, FastAPI

from relive import __version__
from relive.config import Settings
from relive.errors import ReliveError
from relive.server import downloads
from relive.server.audit import Audit
from relive.server.audit_middleware import AuditMiddleware
from relive.server.authentication import Authenticator
from relive.server.credentials import Tokens
from relive.server.errors import ERROR_RESPONSES, install, refuse_unwritable
from relive.server.export_shelf import ExportStore
from relive.server.rate_limits import Allowance, RateLimitMiddleware
from relive.server.routers import (
    audit,
    branches,
    commits,
    derived,
    exports,
    fixtures,
    health,
    incidents,
    inspections,
    pages,
    recordings,
    runs,
    storage,
    targets,
    tasks,
)
from relive.server.signed_urls import SignedUrls
from relive.server.task_kinds import server_kinds, sweep_fixtures, sweep_unfinished
from relive.server.tasks import Tasks
from relive.server.unknown_words import refuse_unknown_words
from relive.store import Store

__all__ = ["Lifespan", "make_application"]

_ABOUT = """Commit the live state of services, find out what failed, bring states back in sealed sandboxes, replay, and judge.

What takes long is a *task*: the answer is 202 and the task; `/tasks/ID/events` tells how far it is, `/tasks/ID` how it ended. It
survives the death of the server. Give `Idempotency-Key` to ask safely twice.

Every error is `{"error": {code, message, cause, remedy}}`."""
_ROUTERS = (
    targets.router,
    commits.router,
    inspections.router,
    incidents.router,
    recordings.router,
    branches.router,
    runs.router,
    fixtures.router,
    exports.router,
    downloads.router,
    storage.router,
    derived.router,
    tasks.router,
    health.router,
    audit.router,
    pages.router,
)

_SWEEP = 600.0  # [s]

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_application(
    settings: Settings,
    *,
    host: str,
    without_credentials: bool = False,
    allowance: Allowance | None = None,
    beside: Sequence[Lifespan] = (),
) -> FastAPI:
    """The application; its tasks begin when it is started.

    Args:
        host: the address at which it will listen.
        beside: what lives as long as it does.

    Raises:
        UsageError: without credentials it would answer everybody in the network.
        ReliveError: what it keeps cannot be opened.
    """
    tokens = Tokens(settings.server)
    gate = Authenticator(tokens, host=host, without_credentials=without_credentials)
    log = Audit(settings.server)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(tokens.close)
            # While one has it open, SQLite keeps its helper files, which a full disk would not let readers make.
            with suppress(ReliveError):  # who asks for something of it is told what is wrong
                stack.callback(Store(settings.store).close)
            app.state.links = SignedUrls(settings.server)
            stack.callback(app.state.links.close)
            app.state.export_store = ExportStore(settings.server)
            stack.callback(app.state.export_store.close)
            app.state.tasks = Tasks(settings, server_kinds(settings, app.state.export_store))
            await anyio.to_thread.run_sync(app.state.tasks.start)
            stack.push_async_callback(anyio.to_thread.run_sync, app.state.tasks.stop)
            for one in beside:
                await stack.enter_async_context(one(app))
            sweeping = asyncio.create_task(_sweep(app))
            stack.callback(sweeping.cancel)
            yield

    app = FastAPI(
        title="Relive",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        responses=ERROR_RESPONSES,
        docs_url=None,  # FastAPI's would load scripts from elsewhere, into a page in which tokens are typed
        redoc_url=None,
        redirect_slashes=False,  # a redirect has no body in the one shape of errors, and says that there is such a path
        dependencies=[Depends(refuse_unwritable), Depends(refuse_unknown_words)],
    )
    app.state.settings, app.state.gate, app.state.audit = settings, gate, log
    install(app)
    for router in _ROUTERS:
        app.include_router(router)
    app.add_middleware(AuditMiddleware, gate=gate, audit=log)
    app.add_middleware(RateLimitMiddleware, gate=gate, allowance=allowance)
    return app


async def _sweep(app: FastAPI) -> None:
    """Now and then remove what has expired."""
    while True:
        for sweep in (
            app.state.export_store.sweep,
            app.state.links.sweep,
            partial(sweep_fixtures, app.state.settings, app.state.tasks),
            partial(sweep_unfinished, app.state.settings, app.state.tasks),
        ):
            try:
                await anyio.to_thread.run_sync(sweep)
            except Exception as error:  # the disk is full, say; there is a next time
                structlog.get_logger().error("not swept", error=str(error))
        await asyncio.sleep(_SWEEP)
