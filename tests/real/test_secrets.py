"""57 secrets are planted in a service, in its requests, answers, logs and stores; none is in clear on the disk or in any answer.

Not looked at: what the service writes by itself (its output and files), and the recording of requests as they were on the wire,
which a replay sends again. Without a store key, also the commits' memory and files.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient

from mcp import Client
from relive.mcp.server import make_server
from relive.server.application import make_application
from support.servers import HAS_REDIS
from support.waiting import LIMIT, eventually

from .harness import RELIVE, Relive
from .leaks import found_in, leaks_below
from .secretive import CONTROLS, SECRETS, Secretive, secretive

pytestmark = pytest.mark.skipif(not HAS_REDIS, reason="needs redis-server")

AS_THEY_WERE = (
    r"keys/",
    r"capsules/[^/]*/[^/]*/recording/",  # of the proxy
    r"capsules/[^/]*/[^/]*/io/",  # the service's own output
    r"capsules/[^/]*/[^/]*/files/base/",  # and files
    r"incidents/[0-9]+\.request$",
)
MEMORY = (
    r"store/(packs|laid|objects)/",
    r"packs/",
)  # and what it says to others, which a sealed store goes without
MEMORY += (r"capsules/[^/]*/[^/]*/egress/",)
FAILURES = {"Refused", "RefusedJson", "RefusedForm", "RefusedMultipart", "RefusedGzip"}

Leaks = dict[str, set[str]]


def incidents_of(relive: Relive) -> list[int]:
    """Numbers of the incidents, once there is one of each failure, and both of the first kind."""

    def whole() -> list[int] | None:
        found = relive.incidents()
        kinds = {one["sighting"]["summary"].partition(":")[0].rpartition(".")[2] for one in found}
        is_told = any("no way to" in one["sighting"]["summary"] for one in found)
        return [one["number"] for one in found] if kinds >= FAILURES and is_told else None

    return eventually(whole, "an incident of each failure", limit=90)


def said(relive: Relive, *words: str) -> bytes:
    """What a command says, on both streams."""
    done = subprocess.run(
        [RELIVE, *words], env=relive.environment, capture_output=True, timeout=2 * LIMIT, check=False
    )
    return done.stdout + done.stderr


def texts_of_commands(relive: Relive, numbers: list[int], place: Path) -> Iterator[tuple[str, bytes]]:
    for words in (["ps"], ["log"], ["incidents"], ["show", "secretive"], ["logs", "secretive"]):
        yield " ".join(words), said(relive, *words)
        yield f"{words[0]} --json", said(relive, words[0], "--json", *words[1:])
    for number in map(str, numbers):
        files = {form: place / f"{number}.{form}" for form in ("html", "otlp", "har")}
        options = [word for form, path in files.items() for word in (f"--{form}", str(path))]
        yield f"show {number}", said(relive, "show", "--all", *options, number)
        yield f"show --json {number}", said(relive, "show", "--json", number)
        for form, path in files.items():
            yield f"{form} of {number}", path.read_bytes()


def texts_of_judging(relive: Relive, numbers: list[int]) -> Iterator[tuple[str, bytes]]:
    for number in map(str, numbers):
        for words in (("replay", number), ("reproduce", "--json", number)):
            yield " ".join(words), said(relive, *words)


def texts_of_server(relive: Relive, numbers: list[int], life: str) -> Iterator[tuple[str, bytes]]:
    app = make_application(relive.settings, host="127.0.0.1", without_credentials=True)
    with TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 50_000)) as client:
        paths = ["/incidents", "/targets", "/commits", "/runs", "/recordings", "/tasks", "/docs"]
        paths += [f"/incidents/{one}{form}" for one in numbers for form in ("", "/html", "/otlp", "/har")]
        paths += [f"/recordings/secretive/{life}/requests", "/runs/1", "/runs/1/verdicts"]
        paths += [f"/recordings/secretive/{life}/requests/{one}" for one in range(2, 8)]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            yield f"GET {path}", answer.content


def texts_of_mcp(relive: Relive, numbers: list[int]) -> list[tuple[str, bytes]]:
    told: list[tuple[str, bytes]] = []

    async def talk() -> None:
        async with Client(make_server(relive.settings)) as client:
            asked: list[tuple[str, dict[str, Any]]] = [
                ("incidents", {}),
                ("runs", {}),
                ("run", {"number": 1}),
            ]
            for number in numbers:
                names = ("incident", "incident_frames", "incident_timeline")
                asked += [(name, {"number": number}) for name in names]
            for name, arguments in asked:
                result = await client.call_tool(name, arguments)
                told.append((f"MCP {name} {arguments}", result.model_dump_json().encode()))

    anyio.run(talk)
    return told


def leaks_in(texts: Iterator[tuple[str, bytes]], secrets: Mapping[str, str], seen: set[str]) -> Leaks:
    """Secrets in texts, by the texts' names; names of controls that are seen are added to ``seen``."""
    found: Leaks = {}
    for name, text in texts:
        seen |= found_in(text, CONTROLS)
        leaked = found_in(text, secrets)
        if leaked:
            found[name] = leaked
    return found


def fail_in_all_ways(service: Secretive) -> list[int]:
    """Incidents of all that is planted."""
    service.relive("commit", "secretive")
    assert [service.heads(), *service.bodies(), service.within()] == [500] * 6
    numbers = incidents_of(service.relive)
    service.relive("commit", "secretive")
    return numbers


def end(service: Secretive) -> None:
    """Stop the service, and wait until its incidents are closed."""
    service.relive("stop", "secretive")
    life = service.relive.home / "capsules" / "secretive" / service.capsule.life
    eventually((life / "closed").exists, "the life is closed")


@pytest.mark.timeout(300)
def test_no_planted_secret_is_on_the_disk_or_shown(relive: Relive, place: Path) -> None:
    """With a store key. A short form of what is below."""
    said(relive, "key", "new")
    with secretive(relive, place) as service:
        numbers = fail_in_all_ways(service)
        shown = {f"show {one}": json.dumps(relive("show", str(one)), ensure_ascii=False) for one in numbers}
        lists = (
            (words, json.dumps(relive(*words.split()))) for words in ("ps", "incidents", "show secretive")
        )
        texts = ((name, text.encode()) for name, text in [*shown.items(), *lists])
        seen: set[str] = set()
        assert leaks_in(texts, SECRETS, seen) == {}
        assert seen == set(CONTROLS)
        (running,) = relive("ps")
        assert running["egress"] is None and "the store is sealed" in running["notes"][0]
        end(service)
        assert leaks_below(relive.home, SECRETS, AS_THEY_WERE) == {}


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no-key"])
def test_no_planted_secret_is_in_clear_in_any_way(relive: Relive, place: Path, has_key: bool) -> None:
    """Every face, a push and an export; replays and reproductions come to the same as without masks."""
    if has_key:
        said(relive, "key", "new")
    skipped = AS_THEY_WERE if has_key else (*AS_THEY_WERE, *MEMORY)
    remote, archive = place / "remote", place / "commit.relive"
    with secretive(relive, place) as service:
        numbers = fail_in_all_ways(service)
        seen: set[str] = set()
        leaks = leaks_in(texts_of_commands(relive, numbers, place), SECRETS, seen)
        judged = dict(texts_of_judging(relive, numbers))
        leaks |= leaks_in(iter(judged.items()), SECRETS, seen)
        leaks |= leaks_in(texts_of_server(relive, numbers, service.capsule.life), SECRETS, seen)
        leaks |= leaks_in(iter(texts_of_mcp(relive, numbers)), SECRETS, seen)
        relive("push", f"file://{remote}", "secretive")
        relive("export", "secretive", str(archive))
        end(service)
        leaks |= leaks_below(relive.home, SECRETS, skipped)
        leaks |= leaks_below(remote, SECRETS, skipped)
        if has_key:
            leaks |= leaks_in(iter([("export", archive.read_bytes())]), SECRETS, seen)
    assert leaks == {}
    assert seen == set(CONTROLS)
    assert all(b"reproduced 1 of 1" in text for name, text in judged.items() if name.startswith("replay"))
