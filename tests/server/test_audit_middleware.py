"""Which requests to a real server come into the audit log, and what happens when it cannot be written."""

from __future__ import annotations

import httpx
import pytest

from relive.errors import DiskFull
from relive.server import audit_middleware
from relive.server.credentials import Scope
from server.serving import bearer, served


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server") as made:
        yield made


@pytest.fixture
def server(running):
    """The server, of which this test sees only what it did itself."""
    running.acts.clear()
    running.seen = running.audit.verify().last
    return running


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url) as made:
        yield made


def entries(server):
    """The oldest first."""
    page = server.audit.page()
    server.audit.verify()
    return [one for one in page.entries[::-1] if one.number > server.seen]


def test_an_act_is_there_before_and_after(server, client):
    made, text = server.tokens.create("ci", [Scope.OPERATE], lifetime=None)
    assert client.post("/commits", json={"ref": "abc"}, headers=bearer(text)).status_code == 200
    asked, done = entries(server)
    assert (asked.outcome, asked.status, asked.target, asked.task) == ("asked", None, None, None)
    assert (done.outcome, done.status, done.target, done.task) == ("done", 200, "abc", "task-7")
    for one in (asked, done):
        assert (one.who, one.address, one.what) == (f"ci ({made.id})", "127.0.0.1", "POST /commits")


def test_plain_reading_is_not_there_reading_memory_is(server, client):
    headers = bearer(server.token(Scope.MEMORY))
    client.get("/commits", headers=headers)
    assert entries(server) == []
    client.get("/memory", headers=headers)
    assert [(one.what, one.outcome) for one in entries(server)] == [("GET /memory", "done")]


def test_an_admin_who_reads_the_log_is_in_it(server, client):
    headers = bearer(server.token(Scope.ADMIN))
    assert client.get("/audit?limit=1", headers=headers).status_code == 200
    (entry,) = client.get("/audit?limit=1", headers=headers).json()["entries"]
    assert (entry["what"], entry["number"]) == ("GET /audit", server.seen + 1)


def test_refusals_are_there_with_the_name_if_there_is_one(server, client):
    client.get("/commits")
    client.post("/commits", json={"ref": "abc"}, headers=bearer(server.token(Scope.READ, name="reader")))
    found = [(one.who.partition(" ")[0], one.outcome, one.status) for one in entries(server)]
    assert found == [("unknown", "refused", 401), ("reader", "asked", None), ("reader", "refused", 403)]
    assert server.acts == []


def test_failures_are_there(server, client):
    headers = bearer(server.token(Scope.ADMIN))
    client.post("/commits", json={"ref": ""}, headers=headers)
    assert [(one.outcome, one.status) for one in entries(server)] == [("asked", None), ("failed", 422)]


def test_nobody_pushes_the_log_out_by_asking(tmp_path, monkeypatch):
    """Of many refusals few have an entry, and the number of the others is told."""
    monkeypatch.setattr(audit_middleware, "_ANYBODYS", (1e-9, 20))
    with served(tmp_path / "server") as server, httpx.Client(base_url=server.url) as client:
        for _ in range(40):
            client.get("/commits")
        headers = bearer(server.token(Scope.OPERATE))
        client.post("/commits", json={"ref": "abc"}, headers=headers)
        found = server.audit.page().entries
    refused = [one for one in found if one.outcome == "refused"]
    assert len(refused) == 20
    assert sum(one.unwritten for one in found) == 20


def test_where_the_log_cannot_be_written_nothing_is_done(server, client, monkeypatch):
    def full(**_facts):
        raise DiskFull("no space left while writing to the audit log")

    monkeypatch.setattr(server.audit, "record", full)
    headers = bearer(server.token(Scope.OPERATE))
    answer = client.post("/commits", json={"ref": "abc"}, headers=headers)
    assert answer.status_code == 507
    assert answer.json()["error"]["code"] == "disk-full"
    assert server.acts == []
    assert client.get("/commits", headers=headers).status_code == 200


def test_a_disk_that_fills_while_something_is_done_is_told(server, client, monkeypatch):
    written, record = [], server.audit.record

    def fills(**facts):
        if written:
            raise DiskFull("no space left while writing to the audit log")
        written.append(record(**facts))

    monkeypatch.setattr(server.audit, "record", fills)
    answer = client.post("/commits", json={"ref": "abc"}, headers=bearer(server.token(Scope.OPERATE)))
    assert answer.status_code == 507
    assert server.acts == ["abc"]
    assert [one.outcome for one in entries(server)] == ["asked"]
