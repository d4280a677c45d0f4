"""Every noun of the API once, on a real server over the home of the failed payments example: from the incident to the verdict."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.recording.events import Event, EventKind
from relive.server.credentials import Scope, Tokens
from server.api_server import Api, serving
from support.payments import Payments
from support.waiting import eventually


@pytest.fixture(scope="module")
def api(payments: Payments) -> Iterator[Api]:
    with serving(payments.relive.environment, "admin", "memory") as made:
        yield made


@pytest.fixture(scope="module")
def incident(api: Api, payments: Payments):
    return api.get(f"/incidents/{payments.incident}")


def test_targets_are_listed(api, payments):
    (target,) = api.get("/targets")
    assert target["name"] == payments.name
    assert payments.url.endswith(target["listen"])


def test_a_target_is_checked_before_it_is_committed(api, payments):
    report = api.get("/targets/check", target=payments.name)
    assert report["verdict"] == "whole" and report["estimate"]["memory"] > 1 << 20
    assert api.http.get("/targets/check?target=pid:x").json()["error"]["code"] == "usage"
    assert api.http.get("/targets/check?target=nobody").status_code == 404


def test_incidents_are_listed_searched_and_told_in_each_form(api, payments, incident):
    found = api.get("/incidents", search="KeyError", service=payments.name)["items"]
    assert payments.incident in [one["number"] for one in found]
    assert api.get("/incidents", search="nothing-like-this")["items"] == []
    assert incident["package"]["type"] == "builtins.KeyError"
    assert incident["timeline"]["rows"]
    page = api.http.get(f"/incidents/{payments.incident}/html")
    assert page.headers["content-type"].startswith("text/html") and "KeyError" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert api.get(f"/incidents/{payments.incident}/har")["log"]["version"] == "1.2"
    assert api.get(f"/incidents/{payments.incident}/otlp")["resourceSpans"]
    assert api.refused("GET", "/incidents/999") == (404, "incident-unknown")


def test_pages_of_commits_follow_each_other(api, payments):
    every, after = [], None
    while True:
        page = api.get("/commits", limit=1, target=payments.name, **({"after": after} if after else {}))
        every += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None or len(every) == 3:
            break
    assert len(set(every)) == len(every) >= 2
    assert api.refused("GET", "/commits", params={"after": "elsewhere"})[0] == 422
    assert api.get(f"/commits/{every[0]}")["target"]["name"] == payments.name


def test_a_failure_is_debugged_in_its_branch(api, payments):
    """pdb in the failing frame, by whoever may run commands in branches; what it said, others do not read in the task."""
    params = {"number": payments.incident, "command": ["p account_id", "q"]}
    task = api.post("/debugging", params)
    told = api.result(task)
    assert [one["command"] for one in told["answers"]] == params["command"]
    assert told["answers"][0]["answer"].strip() == "7"
    assert "KeyError" in told["opening"]
    assert told["branch"] not in [one["facts"]["id"] for one in api.get("/branches")]
    with Tokens(payments.relive.settings.server) as tokens:
        _, text = tokens.create("operator", [Scope.OPERATE], lifetime=600)
    shown = {"Authorization": f"Bearer {text}"}
    with httpx.Client(base_url=api.address, headers=shown) as operator:
        assert operator.get(f"/tasks/{task['id']}").json()["result"] is None
        assert operator.post("/debugging", json=params).status_code == 403


def test_what_would_need_a_debugger_on_the_host_is_refused(api, payments):
    """An incident without a thread that waits: gdb and py-spy would run outside of the seal, with commands of the caller's."""
    sighting = Sighting(
        kind=FailureKind.SIGNAL, fingerprint="native", summary="signal 11", seen_wall_ns=1, pid=2
    )
    kept = Incidents(payments.relive.settings.incidents)
    number = kept.add("native", "life", sighting, before=None, at=None, log_end=0, log_tail=[]).number
    task = api.post("/debugging", {"number": number, "command": ["shell id"]})
    ended = eventually(
        lambda: found if (found := api.get(f"/tasks/{task['id']}"))["state"] == "failed" else None,
        "it is refused",
        limit=90,
    )
    assert ended["error"]["code"] == "usage" and "host" in ended["error"]["cause"]


def test_a_replay_is_a_task_with_events_and_is_kept_with_its_verdicts(api, payments):
    task = api.post("/runs", {"what": str(payments.incident), "times": 2}, **{"Idempotency-Key": "once"})
    again = api.post("/runs", {"what": str(payments.incident), "times": 2}, **{"Idempotency-Key": "once"})
    assert again["id"] == task["id"]
    assert api.refused("POST", "/runs", json={"what": "9"}, headers={"Idempotency-Key": "once"}) == (
        422,
        "key-reused",
    )
    events = []
    with api.http.stream("GET", f"/tasks/{task['id']}/events", timeout=90) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                events.append(value)
            if name == "data" and events[-1] == "ended":
                ended = json.loads(value)
    assert events[0] == "begun" and events[-1] == "ended" and "progress" in events
    assert ended["state"] == "succeeded"
    verdicts = [run["verdict"]["kind"] for run in ended["result"]["runs"]]
    # A very slow machine's settlement may come in between once.
    assert len(verdicts) == 2 and "reproduced" in verdicts
    run = api.get("/runs", incident=payments.incident)["items"][0]
    assert (run["kind"], run["reproduced"]) == ("replay", verdicts.count("reproduced"))
    assert api.get(f"/runs/{run['number']}")["replay"]["runs"]
    told = api.get(f"/runs/{run['number']}/verdicts")
    assert [(one["verdict"], one["packets_left"]) for one in told] == [(verdict, 0) for verdict in verdicts]


def test_a_branch_is_restored_entered_and_stopped(api, incident):
    task = api.post("/branches", {"ref": incident["incident"]["before"]})
    branch = api.result(task)["id"]
    assert api.get(f"/branches/{branch}")["state"] == "running"
    assert branch in [one["facts"]["id"] for one in api.get("/branches")]
    told = api.post(f"/branches/{branch}/exec", {"command": ["sh", "-c", "echo here; exit 4"]})
    assert (told["status"], told["stdout"], told["stderr"]) == (4, "here\n", "")
    assert api.get(f"/branches/{branch}/logs", stream="stdout", after=0)["text"] is not None
    assert api.http.delete(f"/branches/{branch}").json() == {"stopped": [branch]}
    assert api.refused("GET", f"/branches/{branch}") == (404, "branch-unknown")


def test_a_commit_is_looked_into_and_compared(api, incident, payments):
    ref = incident["incident"]["before"]
    state = api.get(f"/commits/{ref}/state")
    assert any("uvicorn" in word for word in state["processes"][0]["command"])
    assert api.get(f"/commits/{ref}/memory", pattern="slowed_payments", most=1)["hits"]
    assert api.refused("GET", f"/commits/{ref}/memory", params={"pattern": "re:("}) == (422, "usage")
    assert api.get(f"/commits/{ref}/differences", before=ref)["memory"]["changed"] == 0


def test_the_python_of_a_commit_is_asked_in_branches_that_are_gone_then(api, incident, payments):
    ref = incident["incident"]["before"]
    threads = api.post(f"/commits/{ref}/stacks", {})["threads"]
    assert any(thread["frames"] for thread in threads)  # one that had just begun has none
    told = api.post(f"/commits/{ref}/evaluations", {"expression": "slowed_payments.__name__"})
    assert (told["outcome"], told["text"]) == ("value", "'slowed_payments'")
    assert api.post(f"/commits/{ref}/differences", {"before": ref})["python"]["compared"] > 0
    assert api.get("/branches") == []


def test_a_service_is_no_branch(api, payments):
    assert api.refused("DELETE", f"/branches/{payments.name}") == (404, "branch-unknown")


def test_a_commit_is_taken_tagged_kept_exported_and_deleted(api, payments):
    taken = api.result(api.post("/commits", {"target": payments.name, "tag": "by-api"}))
    assert taken["tags"] == ["by-api"]
    assert api.refused("DELETE", f"/commits/{taken['id']}") == (422, "usage")
    asked = api.post("/exports", {"ref": "by-api", "lifetime": 600})
    assert api.result(asked["task"])["bytes"] > 0
    with httpx.Client(base_url=api.address) as stranger:
        whole = stranger.get(asked["url"])
        part = stranger.get(asked["url"], headers={"Range": "bytes=10-19"})
        assert (whole.status_code, part.status_code, part.content) == (200, 206, whole.content[10:20])
        assert stranger.get(asked["url"].replace(asked["link"], "0" * 32)).status_code == 403
        assert api.http.delete(f"/exports/{asked['export']}/links/{asked['link']}").json()["revoked"]
        assert stranger.get(asked["url"]).status_code == 403
        other = api.post(f"/exports/{asked['export']}/links", {"lifetime": 60})
        assert stranger.get(other["url"]).content == whole.content
    assert len(api.get(f"/exports/{asked['export']}/links")) == 2
    assert [one["id"] for one in api.get("/exports")] == [asked["export"]]
    assert api.http.delete(f"/exports/{asked['export']}").status_code == 204
    assert api.http.put("/tags/other", json={"ref": "by-api"}).json()["id"] == taken["id"]
    assert {"by-api", "other"} <= {one["tag"] for one in api.get("/tags")}
    for tag in ("by-api", "other"):
        assert api.http.delete(f"/tags/{tag}").status_code == 204
    assert api.http.delete(f"/commits/{taken['id']}").json() == {"id": taken["id"]}


@pytest.fixture(scope="module")
def queried(payments: Payments) -> int:
    """An incident of another service, of which a query is known."""
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
    made = Incidents(directory).add("shop", "L1", sighting, before=None, at=None, log_end=0, log_tail=[])
    store_evidence(
        directory, made.number, Evidence(None, [Event(1, 10, 10, EventKind.QUERY, 0, 1, b"", fields)])
    )
    return made.number


def test_a_fixture_is_made_and_fetched(api, queried):
    task = api.post("/fixtures", {"incident": queried})
    made = api.result(task)
    assert made["satisfied"]
    for file in made["files"]:
        name = file.rpartition("/")[2]
        assert api.http.get(f"/fixtures/{task['id']}/{name}").content
    assert api.refused("GET", f"/fixtures/{task['id']}/other") == (404, "not-found")
    assert api.refused("GET", f"/fixtures/{'0' * 32}/fixture.yaml") == (404, "task-unknown")


def test_a_task_that_fails_says_why(api, payments):
    task = api.post("/fixtures", {"incident": payments.incident})
    with pytest.raises(AssertionError, match="no query of incident"):
        api.result(task)


def test_a_reproduction_is_a_run(api, payments):
    result = api.result(api.post("/reproductions", {"incident": payments.incident}))
    assert result["incident"] == payments.incident
    assert api.get("/runs", incident=payments.incident)["items"][0]["kind"] == "reproduce"


def test_recordings_and_their_requests_are_read_in_pages(api, payments):
    (recording,) = api.get("/recordings", service=payments.name)
    assert recording["is_alive"] and recording["proxy"] > 0 and recording["inside"] > 0
    path = f"/recordings/{payments.name}/{recording['life']}/requests"
    first = api.get(path, limit=2)
    second = api.get(path, limit=2, after=first["next"])
    numbers = [one["number"] for one in [*first["items"], *second["items"]]]
    assert numbers == sorted(set(numbers)) and len(numbers) >= 3
    shown = api.get(f"{path}/{numbers[0]}")
    assert (shown["method"], shown["status"]) == (first["items"][0]["method"], first["items"][0]["status"])
    assert api.refused("GET", f"/recordings/nobody/{recording['life']}/requests")[0] == 404


def test_the_store_and_the_host_are_looked_at(api):
    assert api.get("/store/stats")["stored"] > 0
    assert api.get("/store/garbage")["dry_run"] is True
    assert api.result(api.post("/store/verifications", {}))["problems"] == []
    assert api.get("/doctor")["ready"] is True
    assert httpx.get(f"{api.address}/health").json()["version"]


def test_who_did_what_is_in_the_audit_log(api):
    page = api.get("/audit")
    acts = [one for one in page["entries"] if one["outcome"] == "done" and one["task"]]
    assert acts and all(one["who"].startswith("test") for one in acts)


def test_why_it_failed_is_asked_and_told_only_to_who_may_see_memory(api, payments):
    """A name of nothing is refused at once; the replays are bounded as asked, and the answer says what could be told."""
    assert api.refused("POST", "/explanations", json={"incident": 999}) == (404, "incident-unknown")
    assert api.refused("POST", "/branches", json={"ref": "nothing"}) == (404, "ref-unknown")
    task = api.post("/explanations", {"incident": payments.incident, "times": 1, "most": 3})
    told = api.result(task)
    assert told["incident"] == payments.incident and "POST /payments" in told["failing"]
    assert 1 <= told["replays"] <= 3 and len(told["control"]) == 1
    assert told["sentence"] and (told["causes"] or told["why_not"])
    with Tokens(payments.relive.settings.server) as tokens:
        _, text = tokens.create("reader", [Scope.READ], lifetime=600)
    with httpx.Client(base_url=api.address, headers={"Authorization": f"Bearer {text}"}) as reader:
        kept = reader.get(f"/tasks/{task['id']}").json()
        assert (kept["kind"], kept["input"], kept["result"]) == ("why", {}, None)
