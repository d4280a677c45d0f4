"""Every tool, called well by the official client on what is really there: of the host over HTTP, all others over stdio.

What comes back is compared with the tool's own output schema. A tool that is not called here fails the last test.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from jsonschema import Draft202012Validator
from mcp.client.streamable_http import streamable_http_client

from mcp import Client, StdioServerParameters
from relive.config import Settings
from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import Incidents
from relive.mcp.server import make_server
from relive.model.incident import FailureKind, Sighting
from relive.operations.operation import Tool
from relive.recording.events import Event, EventKind
from relive.store import Store
from server.api_server import Api, serving
from server.filled import Filled, filled
from store.builders import commit
from support.declared import NO_WORD, choices_of, least, with_grammar
from support.mcp_way import refused
from support.payments import Payments

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
SERVICE = "import time; time.sleep(600)"
# A good call of these needs what not every machine has: systemd as process 1, podman. What they may say instead.
REFUSED = {
    "adopt": {"host-incapable", "host-unfit", "tool-missing", "target-unknown", "unit-unfit"},
    "restore_as_podman": {"ref-unknown"},
}
# These run several replays or branches each, or are called well in ``test_server`` and ``mcp_way``; here they are a soak.
DEAR = {
    "bisect",
    "chaos",
    "kept",
    "leaks",
    "python_objects",
    "reproduce",
    "restore_many",
    "try",
    "why",
    "doctor",
}
DEAR |= {
    "check",
    "debug",
    "diff",
    "divergence",
    "evaluate",
    "exec",
    "inspect",
    "logpoint",
    "replay",
    "restore",
    "rollback",
    "run",
    "runs",
    "stop_branches",
    "who_wrote",
}

Known = dict[str, Any]
Call = tuple[str, Callable[[Known], Known]]


async def walk(client: Client, calls: list[Call], *, dear: bool) -> None:
    """Make the calls one after the other; each is answered well, or refused as it has to be."""
    listed = await client.list_tools()
    schemas = {one.name: one.output_schema for one in listed.tools}
    known: Known = {}
    for tool, arguments in calls:
        if tool in DEAR and not dear:
            continue
        if tool in REFUSED:
            assert (await refused(client, tool, **arguments(known)))["code"] in REFUSED[tool], tool
            continue
        result = await client.call_tool(tool, arguments(known))
        assert not result.is_error, (tool, result.content)
        known[tool] = result.structured_content
        Draft202012Validator(schemas[tool]).validate(result.structured_content)


def for_failures(number: int, queried: int, place: Path) -> list[Call]:
    """On the payments service that has failed."""
    kept = place / "kept"
    return [
        ("targets", lambda _: {}),
        ("incidents", lambda _: {"search": "KeyError"}),
        ("incident", lambda _: {"number": number}),
        ("incident_frames", lambda _: {"number": number}),
        ("incident_timeline", lambda _: {"number": number}),
        ("check", lambda _: {"target": "payments"}),
        ("commit", lambda _: {"target": "payments"}),
        ("commits", lambda _: {"target": "payments"}),
        ("commit_detail", lambda k: {"ref": k["incident"]["before"]}),
        ("tag", lambda k: {"name": "for-tools", "ref": k["commit"]["id"]}),
        ("inspect", lambda k: {"ref": k["incident"]["before"]}),
        ("find_in_memory", lambda k: {"ref": k["incident"]["before"], "pattern": "slowed_payments", "most": 1}),
        ("python_stacks", lambda k: {"ref": k["incident"]["before"]}),
        ("python_objects", lambda k: {"ref": k["incident"]["before"], "most": 1}),
        ("runtime_state", lambda k: {"ref": k["incident"]["before"], "most": 1}),
        ("evaluate", lambda k: {"ref": k["incident"]["before"], "expression": "6 * 7"}),
        ("diff", lambda k: {"before": k["incident"]["before"], "after": k["commit"]["id"]}),
        ("leaks", lambda k: {"refs": [k["incident"]["before"], k["incident"]["at"], k["commit"]["id"]]}),
        ("bisect", lambda k: {"good": k["incident"]["before"], "bad": k["commit"]["id"], "when": _not_before(k["commit"])}),
        ("restore", lambda k: {"ref": k["incident"]["before"]}),
        ("exec", lambda k: {"branch": k["restore"]["id"], "command": ["true"]}),
        ("rollback", lambda k: {"branch": k["restore"]["id"]}),
        ("branches", lambda _: {}),
        ("logs", lambda _: {"name": "payments"}),
        ("stop_branches", lambda k: {"branches": [k["restore"]["id"]]}),
        ("restore_many", lambda k: {"ref": k["incident"]["before"], "count": 2}),
        ("replay", lambda _: {"what": str(number)}),
        ("runs", lambda _: {}),
        ("run", lambda k: {"number": k["runs"]["items"][0]["number"]}),
        ("divergence", lambda k: {"before": f"{_run(k)}.recorded", "after": str(_run(k))}),
        ("chaos", lambda _: {"what": str(number), "most": 4}),
        ("reproduce", lambda _: {"incident": str(number)}),
        ("try", lambda _: {"incident": number, "fix": ["none"]}),
        ("what_if", lambda _: {"incident": number}),
        ("why", lambda _: {"incident": number, "most": 4, "times": 1}),
        ("logpoint", lambda _: {"incident": number, "at": "app.py:70", "expression": ["account_id"]}),
        ("who_wrote", lambda _: {"incident": number, "expression": "__name__", "most": 1}),
        ("keep", lambda _: {"incident": number, "expect": "status < 500", "output": str(kept), "name": "paid"}),
        ("kept", lambda k: {"file": k["keep"]["file"], "as_committed": True}),
        ("debug", lambda _: {"number": number, "command": ["p account_id", "q"]}),
        ("fixture", lambda _: {"incident": queried, "output": str(place / "fixture")}),
        ("export", lambda k: {"ref": k["incident"]["before"], "file": str(place / "one.relive")}),
        ("store_stats", lambda _: {}),
        ("verify", lambda _: {}),
        ("doctor", lambda _: {}),
    ]  # fmt: skip


def _run(known: Known) -> int:
    return int(known["runs"]["items"][0]["number"])


def _not_before(commit: Any) -> str:
    """False in branches of commits long before this one: the service's clock is that of then."""
    return f"__import__('time').time_ns() >= {commit['taken_wall_ns']}"


def for_the_host(place: Path, pid: int) -> list[Call]:
    """On a home of its own, and on a process that somebody else started."""
    remote = f"file://{place / 'remote'}"
    return [
        ("start_service", lambda _: {"command": [sys.executable, "-c", SERVICE], "name": "tools", "every": "never"}),
        ("watch", lambda _: {"target": f"pid:{pid}", "name": "watched", "every": "never"}),
        ("stop", lambda _: {"names": ["watched", "tools"], "timeout": 1}),
        ("push", lambda _: {"remote": remote, "ref": "whole"}),
        ("pull", lambda _: {"remote": remote, "ref": "whole"}),
        ("key_new", lambda _: {}),
        ("key_rotate", lambda _: {}),
        ("key_rotate_signing", lambda _: {}),
        ("key_list", lambda _: {}),
        ("key_trust", lambda k: {"public_key": _signer(k["key_list"]), "name": "itself"}),
        ("export", lambda _: {"ref": "whole", "file": str(place / "whole.relive")}),
        ("import", lambda _: {"file": str(place / "whole.relive")}),
        ("retain", lambda _: {"dry_run": True}),
        ("gc", lambda _: {"dry_run": True}),
        ("repair", lambda _: {}),
        ("adopt", lambda _: {"unit": "no-such-unit"}),
        ("release", lambda _: {"unit": "no-such-unit"}),
        ("restore_as_podman", lambda _: {"ref": "nothing"}),
    ]  # fmt: skip


def _signer(keys: Any) -> str:
    return str(next(one["key"] for one in keys["keys"] if one["kind"] == "signer"))


def queried(payments: Payments) -> int:
    """The number of an incident of which a query is known."""
    asked = {
        "system": "sqlite",
        "database": "shop.db",
        "statement": "select name from users",
        "parameters": [],
    }
    answer = {"rowcount": -1, "columns": ["name"], "rows": [["bob"]]}
    fields = {"pid": 5, "own_seq": 1, "lane": 1, "asked": asked, "answer": answer}
    sighting = Sighting(kind=FailureKind.EXCEPTION, fingerprint="f", summary="it failed", seen_wall_ns=5)
    directory = payments.relive.settings.incidents
    made = Incidents(directory).add("goods", "L1", sighting, before=None, at=None, log_end=0, log_tail=[])
    event = Event(1, 10, 10, EventKind.QUERY, 0, 1, b"", fields)
    store_evidence(directory, made.number, Evidence(None, [event]))
    return made.number


def over_stdio(payments: Payments, place: Path, *, dear: bool) -> None:
    server = StdioServerParameters(
        command=str(RELIVE), args=["mcp", "--host"], env=payments.relive.environment
    )
    calls = for_failures(payments.incident, queried(payments), place)

    async def talk() -> None:
        async with Client(server) as client:
            await walk(client, calls, dear=dear)

    anyio.run(talk)
    payments.relive("stop", "--all")


def over_http(home: Filled, calls: list[Call]) -> None:
    async def talk(api: Api) -> None:
        shown = {"Authorization": f"Bearer {api.token}"}
        async with (
            httpx.AsyncClient(headers=shown, timeout=90) as http,
            Client(streamable_http_client(f"{api.address}/mcp", http_client=http)) as client,
        ):
            await walk(client, calls, dear=True)

    with serving(home.environment, "admin", "memory", "host") as api:
        anyio.run(talk, api)


def test_every_tool_that_looks_and_replays_over_stdio(payments, tmp_path):
    over_stdio(payments, tmp_path, dear=False)


def test_every_tool_of_the_host_over_http(tmp_path):
    with filled() as home, subprocess.Popen(["sleep", "600"]) as other:
        with closing(Store(home.settings.store)) as store:
            store.tag("whole", commit(store, name="shop").id)
        try:
            over_http(home, for_the_host(tmp_path, other.pid))
        finally:
            other.kill()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_dear_tool(payments, tmp_path):
    over_stdio(payments, tmp_path, dear=True)


def test_no_tool_is_left_out(tmp_path):
    called = {tool for tool, _ in [*for_failures(1, 2, tmp_path), *for_the_host(tmp_path, 1)]}

    async def ask() -> set[str]:
        async with Client(make_server(Settings(home=tmp_path), for_host=True)) as client:
            return {one.name for one in (await client.list_tools()).tools}

    assert called == anyio.run(ask)


def test_words_that_a_tool_does_not_know_are_refused_as_any_error(tmp_path):
    """Arguments that there are not, words that are none of the few, texts of no grammar, tools that there are not, defects."""

    async def ask() -> None:
        async with Client(make_server(Settings(home=tmp_path), for_host=True)) as client:
            tools = {one.name: one.input_schema for one in (await client.list_tools()).tools}
            for name, schema in tools.items():
                named = schema.get("$defs", {})
                said = least(schema, named)
                error = await refused(client, name, **said, nosuch=3)
                assert (error["code"], "nosuch" in error["message"]) == ("usage", True), name
                for word in choices_of(schema, named):
                    assert (await refused(client, name, **said | {word: NO_WORD}))["code"] == "usage", (
                        name,
                        word,
                    )
            for operation, field, value in with_grammar():
                if isinstance(operation.faces.mcp, Tool):
                    said = least(tools[operation.tool_name], tools[operation.tool_name].get("$defs", {}))
                    error = await refused(client, operation.tool_name, **said | {field: value})
                    assert error["code"] in ("usage", "change-unfit", "kept-invalid"), (operation.name, field)
            assert (await refused(client, "no_such_tool"))["code"] == "not-found"

    anyio.run(ask)


def test_a_defect_has_a_code_and_does_not_say_what_it_held(tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise ValueError("hunter2")

    monkeypatch.setattr("relive.mcp.looking.list_targets", broken)

    async def ask() -> None:
        async with Client(make_server(Settings(home=tmp_path))) as client:
            error = await refused(client, "targets")
            assert (error["code"], error["message"]) == ("error", "ValueError")
            assert "a defect of Relive, at test_every_tool.py:" in error["cause"]

    anyio.run(ask)
