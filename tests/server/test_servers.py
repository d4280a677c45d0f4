"""Servers as they are in real life: two on one home, killed amid their work, on a full disk, asked by a crowd."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from relive.sandbox.branch import list_branches
from relive.server.credentials import Scope, Tokens
from relive.store import Store
from server.api_server import Api, serving
from server.filled import Filled, filled
from support.drawn import drawn
from support.payments import Payments
from support.waiting import LIMIT, eventually

SCOPES = ("admin", "memory")


@pytest.fixture(scope="module")
def home() -> Iterator[Filled]:
    with filled(commits=60) as made:
        yield made


@pytest.fixture(scope="module")
def api(home: Filled) -> Iterator[Api]:
    with serving(home.environment, *SCOPES) as made:
        yield made


def events(api: Api, task: str, **headers: str) -> list[tuple[int, str, Any]]:
    """(id, event, data) of all that is told until the stream ends."""
    found: list[tuple[int, str, Any]] = []
    with api.http.stream("GET", f"/tasks/{task}/events", headers=headers, timeout=90) as stream:
        told: dict[str, str] = {}
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name:
                told[name] = value
            elif told.get("event"):
                found.append((int(told["id"]), told["event"], json.loads(told["data"])))
                told = {}
    return found


def test_a_stream_goes_on_after_the_event_that_came_last(api):
    task = api.post("/store/verifications", {})["id"]
    followed = events(api, task)
    every = events(api, task)  # of progress only the newest is kept: who followed may have seen more
    assert {one[0] for one in every} <= {one[0] for one in followed}
    assert [every[0][1], every[-1][1]] == ["begun", "ended"]
    for number, (last, _, _) in enumerate(every):
        assert events(api, task, **{"Last-Event-ID": str(last)}) == every[number + 1 :]


def test_two_servers_on_one_home_share_tasks_keys_and_commits(home, api):
    with serving(home.environment, *SCOPES) as other:
        key = {"Idempotency-Key": "shared"}
        task = api.post("/store/verifications", {}, **key)
        # A key is its caller's own: with another token it is another one.
        assert other.post("/store/verifications", {}, **key)["id"] != task["id"]
        # A token of one is known to the other.
        same = {**key, "Authorization": f"Bearer {api.token}"}
        assert other.post("/store/verifications", {}, **same)["id"] == task["id"]
        assert other.result(task)["problems"] == []
        assert api.get(f"/tasks/{task['id']}")["attempts"] == 1
        made = home.commits(1)[0]
        assert [one.get("/commits", limit=1)["items"][0]["id"] for one in (api, other)] == [made] * 2
        other.http.put("/tags/two", json={"ref": made}).raise_for_status()
        assert api.refused("DELETE", f"/commits/{made}") == (422, "usage")
        api.http.delete("/tags/two").raise_for_status()
        assert api.http.delete(f"/commits/{made}").json() == {"id": made}
        assert other.refused("GET", f"/commits/{made}") == (404, "ref-unknown")


# -- killed ---------------------------------------------------------------------------------------------------------


class Asked:
    """One task of each kind that changes something, asked of a server that is going to die."""

    def __init__(self, api: Api, payments: Payments, settings: Any) -> None:
        self._settings = settings
        before = api.get(f"/incidents/{payments.incident}")["incident"]["before"]
        self.commit = api.post("/commits", {"target": payments.name})["id"]
        self.restore = api.post("/branches", {"ref": before})["id"]
        self.replay = api.post("/runs", {"what": str(payments.incident), "times": 2, "speed": "max"})["id"]
        self.export = api.post("/exports", {"ref": before, "lifetime": 600})["export"]

    @property
    def all(self) -> list[str]:
        return [self.commit, self.restore, self.replay, self.export]

    def branches(self) -> list[str]:
        """Ids of branches that carry the mark of one of the tasks."""
        return [one.facts.id for one in list_branches(self._settings) if one.facts.mark in self.all]

    def check(self, api: Api) -> list[int]:
        """THEN each was done once, and nothing is left over; gives how often each was begun."""
        results = {task: api.result({"id": task}) for task in self.all}
        listed = api.get("/commits", limit=500)["items"]
        assert [one["id"] for one in listed if one["capture"] == self.commit] == [results[self.commit]["id"]]
        assert self.branches() == [results[self.restore]["id"]]
        api.http.delete(f"/branches/{results[self.restore]['id']}").raise_for_status()
        assert self.branches() == []
        assert [run["verdict"]["kind"] for run in results[self.replay]["runs"]] == ["reproduced"] * 2
        (kept,) = [one for one in api.get("/exports") if one["id"] == self.export]
        link = api.post(f"/exports/{self.export}/links", {"lifetime": 60})
        assert len(httpx.get(api.address + link["url"]).content) == kept["bytes"]
        api.http.delete(f"/exports/{self.export}").raise_for_status()
        return [api.get(f"/tasks/{task}")["attempts"] for task in self.all]


def runs(api: Api) -> list[int]:
    return [one["number"] for one in api.get("/runs", limit=500)["items"]]


def kill(api: Api) -> None:
    api.process.end()


def all_begun(api: Api, asked: Asked) -> bool:
    return all(api.get(f"/tasks/{task}")["begun_wall_ns"] for task in asked.all)


def has_branch(_api: Api, asked: Asked) -> bool:
    return bool(asked.branches())


def replay_got_on(api: Api, asked: Asked) -> bool:
    return bool((api.get(f"/tasks/{asked.replay}")["progress"] or {}).get("done"))


def one_ended(api: Api, asked: Asked) -> bool:
    return any(api.get(f"/tasks/{task}")["ended_wall_ns"] for task in asked.all)


def killed_when(payments: Payments, moment: Callable[[Api, Asked], bool]) -> list[int]:
    """GIVEN a commit, a restore, a replay and an export under way, WHEN the server is killed, THEN the next one finishes them."""
    settings = payments.relive.settings
    with serving(payments.relive.environment, *SCOPES) as first:
        before = runs(first)
        asked = Asked(first, payments, settings)
        eventually(lambda: moment(first, asked), moment.__name__)
        kill(first)
    with serving(payments.relive.environment, *SCOPES) as second:
        attempts = asked.check(second)
        assert len(runs(second)) == len(before) + 1
    return attempts


def test_a_server_killed_amid_everything_is_followed_by_one_that_finishes_it_once(payments):
    assert max(killed_when(payments, all_begun)) == 2


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moment", [all_begun, has_branch, replay_got_on, one_ended])
@pytest.mark.parametrize("_round", range(4))
def test_a_server_killed_at_other_moments_too(payments, moment, _round):
    killed_when(payments, moment)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_servers_killed_over_and_over_while_another_lives(payments):
    """Each task may be begun by either; whoever is killed, all end once."""
    environment, moments = payments.relive.environment, drawn(None)
    with serving(environment, *SCOPES) as steady:
        for _ in range(6):
            with serving(environment, *SCOPES) as first:
                before = len(runs(steady))
                asked = Asked(first, payments, payments.relive.settings)
                moment = moments.choice([all_begun, has_branch, replay_got_on])
                eventually(lambda: moment(first, asked), moment.__name__, limit=90)  # noqa: B023 - called in this round
                kill(first)
            asked.check(steady)
            assert len(runs(steady)) == before + 1


# -- a full disk ------------------------------------------------------------------------------------------------------


def fill(disk: Path) -> None:
    """Nothing fits onto it any more, but what fits into pages that files have already."""
    with (disk / "ballast").open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def is_refused(api: Api, disk: Path, method: str, path: str, body: Any) -> bool:
    """WHEN the disk is full, THEN an act succeeds (what it writes had room in a page), or says why it cannot."""
    fill(disk)
    answer = api.http.request(method, path, json=body)
    assert answer.is_success or (answer.status_code, answer.json()["error"]["code"]) == (507, "disk-full"), (
        answer.text
    )
    return not answer.is_success


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_on_a_full_disk_acts_are_refused_and_the_server_lives_on(small_disk):
    with filled(below=small_disk) as home, serving(home.environment, *SCOPES) as api:
        api.get("/commits")
        for act in (
            ("POST", "/store/verifications", {}),
            ("PUT", "/tags/full", {"ref": "release", "force": True}),
        ):
            eventually(lambda: is_refused(api, small_disk, *act), f"{act} is refused")  # noqa: B023 - called in this round
        assert len(api.get("/commits")["items"]) == 12
        assert len(api.get("/incidents")["items"]) == 5
        assert api.get("/health")["version"]
        (small_disk / "ballast").unlink()
        assert api.result(api.post("/store/verifications", {}))["problems"] == []
        assert "release" in [one["tag"] for one in api.get("/tags")]


# -- a crowd ----------------------------------------------------------------------------------------------------------


async def pages(client: httpx.AsyncClient, path: str, limit: int) -> list[Any]:
    """All items, page by page."""
    found: list[Any] = []
    after: dict[str, Any] = {}
    while True:
        answer = await client.get(path, params={"limit": limit, **after})
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        if answer.json()["next"] is None:
            return found
        after = {"after": answer.json()["next"]}


async def read_all(api: Api, token: str, there: set[str]) -> None:
    """THEN what was there at the begin comes once, newest first, whatever arrives meanwhile."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=api.address, headers=headers, timeout=LIMIT * 2) as client:
        commits = await pages(client, "/commits", 25)
        incidents = [one["number"] for one in await pages(client, "/incidents", 3)]
    ids = [one["id"] for one in commits]
    assert len(set(ids)) == len(ids) and there <= set(ids)
    times = [one["taken_wall_ns"] for one in commits]
    assert times == sorted(times, reverse=True)
    assert incidents == sorted(set(incidents), reverse=True)


def crowd(home: Filled, api: Api, clients: int) -> int:
    """So many read all lists, while commits and incidents arrive; gives how many arrived."""
    with closing(Tokens(home.settings.server)) as kept:
        # A token may ask 200 times in a second, 64 times at one time.
        tokens = [kept.create(f"c{n}", [Scope.READ], lifetime=600)[1] for n in range(max(4, clients // 8))]
    with closing(Store(home.settings.store)) as store:
        there = {str(one.id) for one in store.log()}
    done, arrived = threading.Event(), 0

    def arrive() -> None:
        nonlocal arrived
        while True:
            home.commits(1)
            home.incidents(1)
            arrived += 1
            if done.wait(0.05):
                return

    async def read() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(read_all(api, tokens[number % len(tokens)], there))

    writer = threading.Thread(target=arrive)
    writer.start()
    try:
        asyncio.run(read())
    finally:
        done.set()
        writer.join()
    return arrived


def test_many_read_lists_while_commits_arrive(home, api):
    assert crowd(home, api, clients=12) > 0
    assert api.get("/health")["version"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_hundred_read_lists_while_commits_arrive_and_nothing_stays_open(home, api):
    def opened() -> int:
        return len(os.listdir(f"/proc/{api.process.pid}/fd"))

    for _ in range(3):
        crowd(home, api, clients=100)
    crowded = opened()
    for _ in range(3):
        crowd(home, api, clients=100)
    # Keep-alive connections of clients that went are closed soon.
    eventually(lambda: opened() <= crowded + 5, "files of the server are closed")
