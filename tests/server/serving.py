"""A tiny application with all that guards the real one, and a real uvicorn on a free port of loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from relive.errors import RefUnknown
from relive.server import downloads
from relive.server.audit import Audit, AuditPage, note_for_audit
from relive.server.audit_middleware import AuditMiddleware
from relive.server.authentication import Authenticator, Caller, needs
from relive.server.credentials import Scope, Tokens
from relive.server.errors import ERROR_RESPONSES, install
from relive.server.export_shelf import ExportStore
from relive.server.rate_limits import Allowance, RateLimitMiddleware
from relive.server.signed_urls import SignedUrls
from support.waiting import eventually

__all__ = ["Served", "bearer", "served"]

Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Operator = Annotated[Caller, Depends(needs(Scope.OPERATE))]
Rememberer = Annotated[Caller, Depends(needs(Scope.MEMORY))]
Admin = Annotated[Caller, Depends(needs(Scope.ADMIN))]


class Params(BaseModel):
    ref: str = Field(min_length=2)
    times: int = 1


class Served:
    """What a test needs of a running server; ``acts`` are the refs that were acted on."""

    def __init__(
        self, server: Path, *, without_credentials: bool = False, allowance: Allowance | None = None
    ):
        self.server = server
        self.tokens = Tokens(server)
        self.audit = Audit(server)
        self.export_store = ExportStore(server)
        self.links = SignedUrls(server)
        self.gate = Authenticator(self.tokens, host="127.0.0.1", without_credentials=without_credentials)
        self.acts: list[str] = []
        self.go_on = threading.Event()  # ends /held and /events
        self.held = threading.Semaphore(0)  # released by each that has begun
        self.app = self._app(allowance)
        self.url = ""
        self.port = 0
        self.seen = 0  # the last entry of the audit log that is of no interest

    def token(self, *scopes: Scope, name: str = "ci", lifetime: int | None = None) -> str:
        return self.tokens.create(name, scopes, lifetime=lifetime)[1]

    def close(self) -> None:
        for one in (self.tokens, self.export_store, self.links):
            one.close()

    def _app(self, allowance: Allowance | None) -> FastAPI:
        app = FastAPI(responses=ERROR_RESPONSES)
        app.state.gate, app.state.links, app.state.export_store = self.gate, self.links, self.export_store
        install(app)
        app.add_middleware(AuditMiddleware, gate=self.gate, audit=self.audit)
        app.add_middleware(RateLimitMiddleware, gate=self.gate, allowance=allowance)
        app.include_router(downloads.router)
        self._routes(app)
        return app

    def _routes(self, app: FastAPI) -> None:
        @app.get("/commits")
        def commits(caller: Reader) -> dict[str, Any]:
            return {"who": caller.who, "scopes": sorted(caller.scopes)}

        @app.post("/commits")
        def commit(params: Params, caller: Operator, request: Request) -> dict[str, str]:
            note_for_audit(request.scope, target=params.ref, task="task-7")
            self.acts.append(params.ref)
            return {"ref": params.ref}

        @app.get("/memory")
        def memory(_caller: Rememberer) -> dict[str, str]:
            return {"page": "00"}

        @app.get("/audit")
        def audit(_caller: Admin, after: int | None = None, limit: int = 100) -> AuditPage:
            return self.audit.page(after=after, limit=limit)

        @app.get("/unknown")
        def unknown(_caller: Reader) -> None:
            raise RefUnknown("no commit is called 'x'", cause="so it is", remedy="`relive log`")

        @app.get("/bug")
        def bug(_caller: Reader) -> None:
            raise RuntimeError("the password is hunter2")

        @app.post("/size")
        async def size(request: Request) -> int:
            return len(await request.body())

        @app.get("/held")
        async def held() -> str:
            self.held.release()
            await asyncio.to_thread(self.go_on.wait)
            return "done"

        @app.get("/events")
        async def events() -> StreamingResponse:
            async def told() -> AsyncIterator[str]:
                yield "data: first\n\n"
                await asyncio.to_thread(self.go_on.wait)
                yield "data: last\n\n"

            return StreamingResponse(told(), media_type="text/event-stream")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def served(
    server: Path, *, without_credentials: bool = False, allowance: Allowance | None = None
) -> Iterator[Served]:
    """A server that answers, as often as it is asked if no other allowance is given."""
    often = Allowance(token_rate=1e6, token_burst=10**6, address_rate=1e6, address_burst=10**6)
    made = Served(server, without_credentials=without_credentials, allowance=allowance or often)
    listener = socket.create_server(("127.0.0.1", 0))
    made.port = listener.getsockname()[1]
    made.url = f"http://127.0.0.1:{made.port}"
    config = uvicorn.Config(
        made.app, log_config=None, access_log=False, proxy_headers=False, lifespan="off", ws="none"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        eventually(lambda: running.started, "uvicorn listens")
        yield made
    finally:
        made.go_on.set()
        running.should_exit = True
        thread.join()
        listener.close()
        made.close()
