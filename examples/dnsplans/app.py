"""A small name service: a planner makes plans, two enactors apply them, and whoever asks gets the addresses of an endpoint.

Run it with ``uvicorn app:app --app-dir examples/dnsplans`` and a Redis server at $PLANS_REDIS (port).
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from enactor import Enactor
from fastapi import FastAPI
from plans import ENDPOINTS, Planner, PlanStore

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

store = PlanStore(int(os.environ.get("PLANS_REDIS", "6379")))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Plan and enact while the service runs."""
    Planner(store).start()
    for name in ("east", "west"):
        Enactor(name, store).start()
    yield


app = FastAPI(title="dnsplans", lifespan=lifespan)


@app.get("/endpoints")
def list_endpoints() -> list[str]:
    """List all endpoints."""
    return ENDPOINTS


@app.get("/resolve/{endpoint}")
def resolve(endpoint: str) -> list[str]:
    """Tell where an endpoint is."""
    return store.addresses(endpoint)
