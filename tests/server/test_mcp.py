"""MCP over HTTP, as a part of the server: the same way from the incident to the verdict, for those who may."""

from __future__ import annotations

import json
import subprocess

import anyio
import httpx
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from server.api_server import RELIVE, executed
from support.mcp_way import from_list_to_verdict


def test_from_list_to_verdict_over_http(payments):
    async def talk(address: str, token: str) -> None:
        shown = {"Authorization": f"Bearer {token}"}
        async with (
            httpx.AsyncClient(headers=shown, timeout=90) as http,
            Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
        ):
            await from_list_to_verdict(client, payments)

    with executed(payments.relive.environment, "admin", "memory") as api:
        anyio.run(talk, api.address, api.token)
        acts = [one for one in api.get("/audit")["entries"] if one["what"] == "MCP replay"]
        assert [(one["outcome"], one["target"]) for one in acts] == [
            (outcome, f"what={payments.incident}") for outcome in ("done", "asked")
        ]
        _refuses_others(api.address, payments.relive.environment)


def _refuses_others(address: str, environment: dict[str, str]) -> None:
    assert httpx.post(f"{address}/mcp", json={}).status_code == 401
    made = subprocess.run(
        [RELIVE, "token", "create", "--name", "reader", "--scope", "read", "--json"],
        env=environment,
        capture_output=True,
        check=True,
    )
    token = json.loads(made.stdout)["token"]
    refused = httpx.post(f"{address}/mcp", json={}, headers={"Authorization": f"Bearer {token}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope-missing")
