"""What acts on the host, over REST: with a token that has the scope for it, and with none that was there before."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from real.harness import LIMIT
from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Route
from relive.server.credentials import Scope, Tokens
from relive.store import Store
from server.api_server import Api, serving
from server.filled import Filled, filled
from store.builders import commit
from support.waiting import eventually

HOST_ROUTES = [
    one.faces.rest
    for one in OPERATIONS.values()
    if isinstance(one.faces.rest, Route) and Scope.HOST in one.faces.rest.scopes
]
SECRET = "s3cr3t-of-the-server"


@pytest.fixture(scope="module")
def home() -> Iterator[Filled]:
    with filled() as made:
        yield made


@pytest.fixture(scope="module")
def api(home: Filled) -> Iterator[Api]:
    with serving(home.environment | {"AWS_SECRET_ACCESS_KEY": SECRET}, "host") as made:
        yield made


def token(home: Filled, *scopes: Scope) -> dict[str, str]:
    with Tokens(home.settings.server) as tokens:
        _, text = tokens.create("other", scopes, lifetime=600)
    return {"Authorization": f"Bearer {text}"}


def failed(api: Api, task: dict[str, Any]) -> Any:
    """The code of the error with which a task ends."""

    def look() -> Any:
        found = api.get(f"/tasks/{task['id']}")
        assert found["state"] not in ("succeeded", "cancelled"), found
        return found["error"]

    return eventually(look, "the task fails", limit=90)["code"]


def test_no_older_scope_opens_what_acts_on_the_host(home, api):
    """GIVEN a token with every scope that there was before, THEN each such route refuses it, and says which scope it lacks."""
    keys = sorted((home.home / "keys").rglob("*"))
    shown = token(home, Scope.OPERATE, Scope.MEMORY, Scope.ADMIN)
    with httpx.Client(base_url=api.address, headers=shown, timeout=LIMIT) as client:
        for route in HOST_ROUTES:
            answer = client.request(route.method, route.path, json={})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (403, "scope-missing"), route
            assert "host" in error["message"], route
    assert sorted((home.home / "keys").rglob("*")) == keys


def test_commits_and_keys_travel_between_two_servers(home, api, tmp_path):
    """Push at one, trust and pull at the other; the task says to others than the host's what it was, but not about what."""
    remote = f"file://{tmp_path / 'remote'}"
    with closing(Store(home.settings.store)) as store:
        store.tag("best", commit(store, name="shop").id)
    pushed = api.result(api.post("/pushes", {"remote": remote, "ref": "best"}))
    assert pushed["is_new"] and pushed["tag"] == "best"
    again = api.result(api.post("/pushes", {"remote": remote, "ref": "best"}))
    assert not again["is_new"]
    signer = next(one["key"] for one in api.get("/keys")["keys"] if one["kind"] == "signer")
    with filled(commits=1, incidents=0, below=tmp_path) as there, serving(there.environment, "host") as other:
        params = {"remote": remote, "ref": "best", "force": True}
        assert failed(other, other.post("/pulls", params)) == "signature-invalid"
        trusted = other.post("/keys/trusted", {"public_key": signer, "name": "home"})
        assert trusted == {"name": "home", "key": signer}
        pulled = other.result(other.post("/pulls", params))
        assert (pulled["id"], pulled["tag"], pulled["is_new"]) == (pushed["id"], "best", True)
        shown = token(there, Scope.OPERATE, Scope.MEMORY, Scope.ADMIN)
        with httpx.Client(base_url=other.address, headers=shown, timeout=LIMIT) as client:
            told = client.get("/tasks").json()["tasks"]
            assert {(one["kind"], str(one["input"]), one["result"]) for one in told} == {("pull", "{}", None)}


def test_who_may_operate_drops_old_commits_and_tagged_ones_stay(home, api):
    shown = token(home, Scope.OPERATE)
    with httpx.Client(base_url=api.address, headers=shown, timeout=LIMIT) as client:
        nothing = {"service": "pay", "keep": 1, "minutes": 0, "hours": 0, "days": 0, "months": 0}
        foreseen = api.result(client.post("/store/retentions", json=nothing | {"dry_run": True}).json())
        assert (len(foreseen["dropped"]), foreseen["kept"]) == (10, 2)
        assert len(api.get("/commits", target="pay")["items"]) == 12
        assert api.result(client.post("/store/retentions", json=nothing).json())["kept"] == 2
    left = api.get("/commits", target="pay")["items"]
    assert [one["tags"] for one in left] == [[], ["release"]]


def test_a_key_is_made_on_the_host_and_never_travels(home, api):
    """Neither does a request bring one: what params hold may be kept with a task and be written down."""
    assert api.refused("POST", "/keys/store", json={"source": "/etc/hostname"}) == (422, "request-invalid")
    named = api.post("/keys/store", {})["store_key"]
    listed = api.http.get("/keys")
    assert {"kind": "store key", "name": "store.key", "key": named} in listed.json()["keys"]
    secret = (home.home / "keys" / "store.key").read_bytes()
    assert secret.hex() not in listed.text
    assert api.refused("POST", "/keys/store", json={}) == (422, "usage")
    assert api.post("/keys/store/rotations", {})["store_key"] != named
    changed = api.result(api.post("/keys/signer/rotations", {}))
    assert changed["signer"] in api.http.get("/keys").text
    assert api.refused("POST", "/keys/trusted", json={"public_key": "no"}) == (422, "usage")


def test_the_store_is_collected_and_repaired(home, api):
    assert api.result(api.post("/store/collections", {"dry_run": True}))["dry_run"]
    assert api.result(api.post("/store/collections", {}))["doubtful"] == []
    assert api.result(api.post("/store/repairs", {}))["fetched"] == []


def test_an_archive_of_the_host_is_taken_in(home, api, tmp_path):
    assert api.refused("POST", "/imports", json={}) == (422, "request-invalid")
    assert failed(api, api.post("/imports", {"file": str(tmp_path / "nothing")})) == "usage"


def test_a_service_is_started_and_stopped_with_the_environment_that_was_asked_for(home, api):
    """It has nothing of the server's own: no credentials, no home of Relive."""
    body: dict[str, Any] = {
        "command": [sys.executable, "-c", "import time; time.sleep(600)"],
        "name": "sleeper",
        "every": "never",
        "environment": {"PATH": "/usr/bin:/bin", "GREETING": "hello"},
    }
    try:
        started = api.post("/capsules", body)
        assert started["name"] == "sleeper"
        environment = Path(f"/proc/{started['pid']}/environ").read_bytes().decode()
        assert "GREETING=hello" in environment
        assert SECRET not in environment and str(home.home / "tools") not in environment
        assert api.refused("POST", "/capsules", json=body) == (409, "capsule-exists")
        assert api.refused("POST", "/capsules", json=body | {"upstream": "1"}) == (422, "usage")
        (target,) = api.get("/targets")
        assert target["name"] == "sleeper"
        assert api.post("/stops", {"all_branches": True}) == {"stopped": []}
        assert Path(f"/proc/{started['pid']}").exists()
    finally:
        stopped = api.post("/stops", {"capsules": True, "timeout": 5})
    assert stopped == {"stopped": ["sleeper"]}
    assert not Path(f"/proc/{started['pid']}").exists()
    audit = next(iter((home.settings.server / "audit").glob("*"))).read_text()
    assert "/capsules" in audit and "name=sleeper" in audit
