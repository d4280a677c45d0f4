"""What a real server answers to those who may not, and to requests that are none: one shape, no 5xx, nothing done."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from real.harness import LIMIT
from relive.incidents.evidence import Evidence, store_evidence
from relive.model.failure import ErrorPackage, Frame, Link, Versions, Where
from relive.server.credentials import Scope, Tokens, reach
from server.api_server import Api, serving
from server.filled import Filled, filled

MANUAL = Path(__file__).parent.parent.parent / "docs" / "api.md"
# What each operation needs. One that is not here fails the test below, so that a new one is given its scopes on purpose.
NEEDED: dict[str, set[Scope]] = {
    "health": set(),
    "download_export": set(),
    **{
        name: {Scope.READ}
        for name in """list_targets list_commits show_commit list_tags list_incidents show_incident render_incident
        list_recordings list_requests show_request list_branches show_branch list_runs list_verdicts store_stats foresee_gc
        list_tasks show_task follow_task doctor check_target""".split()
    },
    **{
        name: {Scope.OPERATE}
        for name in """take_commit delete_commit put_tag delete_tag restore restore_many rollback stop_branch replay make_fixture
        verify_store cancel_task retain""".split()
    },
    **{
        name: {Scope.HOST}
        for name in """run watch adopt release stop restore_as_podman push pull import gc repair key_list key_new key_rotate
        key_rotate_signing key_trust keep kept""".split()
    },
    **{
        name: {Scope.OPERATE, Scope.MEMORY}
        for name in (
            "execute",
            "reproduce",
            "debug",
            "python_stacks",
            "python_objects",
            "runtime_state",
            "evaluate",
            "diff_values",
            "bisect",
            "leaks",
            "try",
            "what_if",
            "why",
            "logpoint",
            "who_wrote",
            "chaos",
        )
    },
    **{
        name: {Scope.MEMORY}
        for name in """export list_exports delete_export list_links make_link revoke_link show_run read_fixture
        read_logs inspect_commit find_in_memory diff_commits divergence""".split()
    },
    "read_audit": {Scope.ADMIN},
}
# Of these it is only looked at who may not: they look at the whole host or store, in a process of their own.
DEAR = {"check_target", "doctor", "store_stats", "verify_store"}
# They act, or look at the whole store: what they do is in ``test_host_operations``.
DEAR |= {name for name, scopes in NEEDED.items() if Scope.HOST in scopes} | {"retain"}


@pytest.fixture(scope="module")
def home() -> Iterator[Filled]:
    with filled() as made:
        yield made


@pytest.fixture(scope="module")
def api(home: Filled) -> Iterator[Api]:
    with serving(home.environment, "admin", "memory") as made:
        yield made


@pytest.fixture(scope="module")
def tokens(home: Filled, api: Api) -> Iterator[Tokens]:
    with closing(Tokens(home.settings.server)) as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def routes(api: Api) -> Iterator[tuple[str, str, str]]:
    """(operation, method, path with values of nothing that there is)."""
    for path, methods in api.get("/openapi.json")["paths"].items():
        for method, operation in methods.items():
            told = path.replace("{number}", "99").replace("{form}", "html")
            yield operation["operationId"], method.upper(), re.sub(r"\{\w+\}", "0" * 32, told)


def test_every_route_has_its_scopes_written_here(api):
    assert {operation for operation, _, _ in routes(api)} == set(NEEDED)


def test_the_manual_lists_every_route_with_its_scopes(api):
    told = {
        (method, path): set(re.findall(r"`(\w+)`", scopes))
        for method, path, scopes in re.findall(
            r"^\| `([A-Z]+) (/\S*)` \| (.*?) \|", MANUAL.read_text(), re.MULTILINE
        )
    }
    assert told == {
        (method.upper(), path): NEEDED[operation["operationId"]]
        for path, methods in api.get("/openapi.json")["paths"].items()
        for method, operation in methods.items()
    }


@pytest.mark.parametrize("scope", Scope)
def test_each_scope_opens_what_it_is_for_and_nothing_else(api, tokens, scope):
    """GIVEN a token with one scope, THEN each route says 403 and which one is missing, or it looks at what was asked."""
    _, token = tokens.create(f"only-{scope}", [scope], lifetime=600)
    with httpx.Client(base_url=api.address, headers=bearer(token), timeout=LIMIT) as client:
        for operation, method, path in routes(api):
            missing = NEEDED[operation] - reach([scope])
            if operation in DEAR and not missing:
                continue
            answer = client.request(method, path, json={} if method in ("POST", "PUT") else None)
            code = answer.json()["error"]["code"] if answer.is_error else None
            if operation == "download_export":
                assert (answer.status_code, code) == (403, "url-refused")
            elif missing:
                assert (answer.status_code, code) == (403, "scope-missing"), operation
            else:
                assert answer.status_code not in (401, 403) and answer.status_code < 500, (operation, code)


@pytest.mark.parametrize("change", [{"set": ["1"]}, {"write": ["/etc/motd=a"]}])
def test_who_may_not_read_memory_runs_nothing_in_a_branch(api, tokens, change):
    _, token = tokens.create(f"operates-{next(iter(change))}", [Scope.OPERATE], lifetime=600)
    with httpx.Client(base_url=api.address, headers=bearer(token), timeout=LIMIT) as client:
        for path, params in (("/branches", {"ref": "nobody"}), ("/runs", {"what": "1"})):
            answer = client.post(path, json=params | change)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope-missing"), path


def stranger_at(api: Api, number: int) -> httpx.Client:
    """A client at an address of its own: the server allows each 60 requests without a token at once."""
    from_there = httpx.HTTPTransport(local_address=f"127.0.1.{number}")
    return httpx.Client(base_url=api.address, timeout=LIMIT, transport=from_there)


def test_nobody_gets_anything_but_health(api):
    closed = [one for one in routes(api) if one[0] not in ("health", "download_export")]
    for at in range(0, len(closed), 40):
        with stranger_at(api, 1 + at // 40) as stranger:
            for number, (_, method, path) in enumerate(closed[at : at + 40]):
                # A wrong token and none in turn.
                headers = bearer("rlv_0123456789abcdef_" + "0" * 64) if number % 2 else {}
                answer = stranger.request(method, path, content=b"{", headers=headers)
                told = (answer.status_code, answer.json()["error"]["code"])
                assert told == (401, "credentials-missing"), path
                assert answer.headers["www-authenticate"].startswith("Bearer")
            assert stranger.get("/health").status_code == 200


@pytest.mark.parametrize(
    "shown",
    [
        "Bearer",
        "Basic cm9vdDpyb290",
        "Bearer rlv_",
        "Bearer rlv_0123456789abcdef_" + "f" * 5000,
        "Bearer ../../token.key",
        "Bearer r\xffv_\xe9",
        "bearer null",
    ],
)
def test_what_is_no_token_is_refused(api, shown):
    with httpx.Client(base_url=api.address) as stranger:
        answer = stranger.get("/commits", headers=[(b"Authorization", shown.encode("latin-1"))])
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "credentials-missing")


def test_two_tokens_expired_and_revoked_ones_are_refused(api, tokens):
    known, token = tokens.create("short", [Scope.READ], lifetime=600)
    with httpx.Client(base_url=api.address) as client:
        assert client.get("/tags", headers=bearer(token)).status_code == 200
        twice = [("Authorization", f"Bearer {token}")] * 2
        assert client.get("/tags", headers=twice).status_code == 401
        tokens.revoke(known.id)
        assert client.get("/tags", headers=bearer(token)).status_code == 401


def test_frames_tell_their_locals_only_to_who_may_see_memory(home, api, tokens):
    number = home.incidents(1)[0]
    frame = Frame(file="a.py", line=1, function="pay", module="a", own=True, locals={"iban": "'DE77'"})
    package = ErrorPackage(
        version=1, type="builtins.KeyError", text="x", fingerprint="0123456789abcdef", where=Where.HANDLER,
        wall_ns=1, mono_ns=1, pid=1, thread="t", lane=0, chain=[Link(type="KeyError", text="x", frames=[frame])],
        versions=Versions(python="3.11"),
    )  # fmt: skip
    store_evidence(home.settings.incidents, number, Evidence(package.model_dump_json().encode(), []))
    _, token = tokens.create("operator", [Scope.ADMIN], lifetime=600)
    for form in ("", "/html", "/otlp", "/har"):
        with httpx.Client(base_url=api.address, headers=bearer(token)) as operator:
            assert "DE77" not in operator.get(f"/incidents/{number}{form}").text
    shown = api.get(f"/incidents/{number}")["package"]["chain"][0]["frames"][0]
    assert shown["locals"] == {"iban": "'DE77'"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"null", "application/json"),
        (b"[]", "application/json"),
        (b'{"target": 7}', "application/json"),
        (b'{"target": "pay", "files": ["/etc/shadow"]}', "application/json"),
        (b'{"target": "\xff\xfe"}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"target": ' + b"9" * 6000 + b"}", "application/json"),
        (b'{"target": "pay"}', "text/plain"),
        (b'{"target": "pay"}', "multipart/form-data"),
        (b"target=pay", "application/x-www-form-urlencoded"),
        (b'{"target": "pay"}', "application/json; charset=utf-16"),
    ],
)
def test_bodies_that_are_none_are_refused(api, body, kind):
    answer = api.http.post("/commits", content=body, headers={"Content-Type": kind})
    # It was read, and nothing is called so: a charset of JSON means nothing (RFC 8259).
    if answer.status_code == 404:
        assert kind == "application/json; charset=utf-16"
        return
    assert answer.status_code in (400, 422) and answer.json()["error"]["code"] == "request-invalid", (
        answer.text
    )


@pytest.mark.parametrize(
    "text", ["\x00", "a\x00b", "\ud800", "x" * 100_000, "../../etc", "NaN", "pid:-1", "pid:0"]
)
def test_texts_that_no_name_has_are_refused_wherever_they_stand(api, text):
    """As JSON escapes, so that lone surrogates come as well; as names of nothing, where they could be one."""
    for path, field in (("/commits", "target"), ("/branches", "ref"), ("/runs", "what"), ("/exports", "ref")):
        answer = api.http.post(
            path, content=json.dumps({field: text}), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (202, 404, 422), (path, answer.text)
        if answer.status_code == 202:
            task = answer.json().get("task", answer.json())
            assert api.http.delete(f"/tasks/{task['id']}").status_code == 200
    content = json.dumps({"ref": text})
    for path in ("/tags/x", "/tags/release"):
        answer = api.http.put(path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (404, 422), answer.text


def test_a_body_that_is_too_large_is_refused_unread(api):
    refused = api.refused("POST", "/commits", content=b" " * (9 << 20))
    assert refused == (413, "request-too-large")
    with socket.create_connection(httpx.URL(api.address).netloc.decode().split(":"), LIMIT) as raw:
        raw.sendall(
            f"POST /commits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\n"
            "Content-Length: 99999999999\r\n\r\n".encode()
        )
        assert raw.recv(12) == b"HTTP/1.1 413"


def test_long_addresses_and_headers_are_refused(api):
    assert api.refused("GET", "/commits/" + "a" * 20_000) == (431, "headers-too-large")
    assert api.refused("GET", "/commits", headers={"X-Long": "a" * 20_000}) == (431, "headers-too-large")
    assert api.refused("GET", "/commits/" + "a" * 500)[0] == 422


PATHS = [
    "/commits/..%2f..%2fserver%2ftoken.key",
    "/commits/%00",
    "/commits/release%00",
    "/commits/%ff%fe",
    "/commits/%ed%a0%80",
    "/commits/@{",
    "/commits/pay@{9999999999999999999 years ago}",
    "/tags/..%2frelease",
    "/recordings/..%2f..%2fserver/audit/requests",
    "/recordings/../server/requests",
    "/recordings/%00/%00/requests/1",
    "/branches/..",
    "/branches/%2e%2e%2f",
    "/branches/%00/logs",
    "/fixtures/..%2f..%2fserver/token.key",
    "/fixtures/" + "0" * 32 + "/..%2ftoken.key",
    "/exports/..%2ftoken.key/links",
    "/tasks/%00",
    "/tasks/..%2f/events",
    "/incidents/99999999999999999999999999",
    "/incidents/-1",
    "/incidents/1e3",
    "/incidents/1/../../etc",
    "/runs/0",
    "//etc/passwd",
    "/..//..//etc/passwd",
    "/static/..%2f..%2fetc%2fpasswd",
    "/commits?after=%00",
    "/commits?after=%F0%28%8C%28",
    "/commits?limit=99999999999999999999999",
    "/commits?since_wall_ns=1e400",
    "/commits?since_wall_ns=9223372036854775808",
    "/incidents?after=" + "A" * 3000,
    "/tasks?after=%00",
    "/tasks?after=" + "9" * 150,
    "/audit?after=99999999999999999999999",
    "/runs?after=9223372036854775808",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_out_or_breaks_it(api, path):
    """Sent as it stands: httpx would tidy it up."""
    host, port = httpx.URL(api.address).host, httpx.URL(api.address).port
    with closing(http.client.HTTPConnection(host, port, timeout=LIMIT)) as raw:
        raw.putrequest("GET", path.replace(" ", "%20"), skip_accept_encoding=True)
        raw.putheader("Authorization", f"Bearer {api.token}")
        raw.endheaders()
        answer = raw.getresponse()
        text = answer.read()
    assert 400 <= answer.status < 500, text
    assert set(json.loads(text)["error"]) == {"code", "message", "cause", "remedy"}


# With values that no store can hold: answered as not found, or refused, not broken.
SEARCHES = [
    "%00",
    "%ed%a0%80",
    "%22",
    "*",
    "a" * 5000,
    "a OR b",
    "NEAR(",
    "-",
    "%25",
    "''; DROP TABLE commits",
]


@pytest.mark.parametrize("text", SEARCHES)
def test_any_text_can_be_searched_for(api, text):
    for path in ("/commits", "/incidents"):
        for field in ("search", "target", "tag", "service", "fingerprint"):
            answer = api.http.get(f"{path}?{field}={text}".replace(" ", "%20"))
            assert answer.status_code in (200, 422), (path, field, answer.text)


def test_wrong_methods_are_refused_with_those_that_are_right(api):
    for operation, method, path in routes(api):
        answer = api.http.request("PATCH", path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method-not-allowed"), operation
        assert method in answer.headers["allow"]
    assert api.refused("TRACE", "/commits")[0] == 405
    assert api.refused("GET", "/nowhere") == (404, "not-found")


def test_what_is_no_http_does_not_end_the_server(api):
    for junk in (
        b"\x00" * 100,
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nA" + b":" * 99_999,
    ):
        with (
            socket.create_connection(httpx.URL(api.address).netloc.decode().split(":"), LIMIT) as raw,
            contextlib.suppress(ConnectionError),  # it closes before it has read all: that is a reset
        ):
            raw.sendall(junk)
            with contextlib.suppress(OSError):  # "not connected" after a reset
                raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    assert api.get("/health")["version"]


@pytest.mark.parametrize("key", ["", "x" * 201, "\x00", "é"])
def test_idempotency_keys_that_are_none_are_refused(api, key):
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    if "\x00" in key:  # no client sends that
        return
    answer = api.http.post("/store/verifications", json={}, headers=headers)
    assert answer.status_code in ((202,) if key == "é" else (422,)), answer.text
