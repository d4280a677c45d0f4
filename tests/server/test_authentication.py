"""Who is let in: with a token, without one, from a web page, at a real server."""

from __future__ import annotations

import anyio
import httpx
import pytest

from relive.errors import DiskFull, UsageError
from relive.server.authentication import Authenticator, Caller, is_loopback, refuse_open_server
from relive.server.credentials import Scope, Tokens
from server.serving import bearer, served


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server") as running:
        yield running


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server", without_credentials=True) as running:
        yield running


@pytest.fixture(scope="module")
def client():
    with httpx.Client() as made:
        yield made


def code(answer, status):
    assert answer.status_code == status
    return answer.json()["error"]["code"]


def test_a_token_opens_what_its_scopes_reach(server, client):
    """And nothing else."""
    reached = {}
    for scope in Scope:
        headers = bearer(server.token(scope))
        reached[scope] = [
            client.get(f"{server.url}/commits", headers=headers).status_code,
            client.post(f"{server.url}/commits", json={"ref": "abc"}, headers=headers).status_code,
            client.get(f"{server.url}/memory", headers=headers).status_code,
            client.get(f"{server.url}/audit", headers=headers).status_code,
        ]
    assert reached == {
        Scope.READ: [200, 403, 403, 403],
        Scope.OPERATE: [200, 200, 403, 403],
        Scope.MEMORY: [200, 403, 200, 403],
        Scope.ADMIN: [200, 200, 403, 200],
        Scope.HOST: [200, 403, 403, 403],
    }


def test_without_a_token_nobody_acts_on_the_host(tmp_path):
    """GIVEN an open server at loopback, THEN whoever reaches it may do all but start programs and change keys."""
    with Tokens(tmp_path / "server") as tokens:
        gate = Authenticator(tokens, host="127.0.0.1", without_credentials=True)
        asked = {
            "type": "http",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 9),
            "scheme": "http",
        }
        caller = anyio.run(gate.ask, asked)
    assert isinstance(caller, Caller)
    assert caller.scopes == set(Scope) - {Scope.HOST}


def test_a_scope_that_is_missing_is_named(server, client):
    answer = client.get(f"{server.url}/memory", headers=bearer(server.token(Scope.ADMIN, name="boss")))
    assert code(answer, 403) == "scope-missing"
    assert "--scope memory" in answer.json()["error"]["remedy"]


def test_wrong_tokens_are_all_answered_alike(server, client):
    """An unknown id, a wrong secret, an expired and a revoked one; so nobody learns which ids there are."""
    right = server.token(Scope.READ)
    made, revoked = server.tokens.create("gone", [Scope.READ], lifetime=None)
    server.tokens.revoke(made.id)
    expired = server.tokens.create("old", [Scope.READ], lifetime=0)[1]
    wrong = [
        "rlv_" + "0" * 16 + "_" + "0" * 64,
        right[:-2] + ("00" if right[-2:] != "00" else "11"),
        expired,
        revoked,
        "nonsense",
    ]
    answers = [client.get(f"{server.url}/commits", headers=bearer(one)) for one in wrong]
    assert {code(answer, 401) for answer in answers} == {"credentials-missing"}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize("kind", ["Basic", "bearerx", ""])
def test_a_token_is_only_taken_as_a_bearer(server, client, kind):
    answer = client.get(
        f"{server.url}/commits", headers={"Authorization": f"{kind} {server.token(Scope.READ)}".strip()}
    )
    assert code(answer, 401) == "credentials-missing"


def test_two_tokens_are_none(server, client):
    headers = [("Authorization", f"Bearer {server.token(Scope.READ)}")] * 2
    assert code(client.get(f"{server.url}/commits", headers=headers), 401) == "credentials-missing"


def test_who_asks_is_known_by_name_and_id(server, client):
    made, text = server.tokens.create("night-job", [Scope.READ], lifetime=None)
    assert client.get(f"{server.url}/commits", headers=bearer(text)).json()["who"] == f"night-job ({made.id})"
    assert next(one for one in server.tokens.all() if one.id == made.id).last_used_ns is not None


def test_a_use_that_cannot_be_noted_refuses_nobody(server, client, monkeypatch):
    """A full disk is looked at, and freed, by somebody with a token."""
    tried = []

    def full(token):
        tried.append(token.id)
        raise DiskFull("no space left while writing credentials.sqlite")

    made, text = server.tokens.create("admin", [Scope.READ], lifetime=None)
    monkeypatch.setattr(server.tokens, "note_use", full)
    assert client.get(f"{server.url}/commits", headers=bearer(text)).status_code == 200
    assert tried == [made.id]


def test_without_credentials_everything_is_open_on_loopback(open_server, client):
    for name in ("127.0.0.1", "localhost"):
        answer = client.get(f"{open_server.url}/commits", headers={"Host": f"{name}:{open_server.port}"})
        assert answer.json() == {"who": "anonymous", "scopes": ["admin", "memory", "operate", "read"]}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Host": "127.0.0.1@evil.example"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_what_a_web_page_can_send_is_refused(open_server, client, headers):
    """A name rebound to 127.0.0.1 comes as the Host; a form, an image or a script of another site says so."""
    acted = len(open_server.acts)
    assert code(client.get(f"{open_server.url}/commits", headers=headers), 403) == "origin-refused"
    answer = client.post(f"{open_server.url}/commits", json={"ref": "abc"}, headers=headers)
    assert code(answer, 403) == "origin-refused"
    assert len(open_server.acts) == acted


def test_the_servers_own_page_may_ask(open_server, client):
    headers = {"Origin": open_server.url, "Sec-Fetch-Site": "same-origin"}
    assert client.get(f"{open_server.url}/commits", headers=headers).status_code == 200


def test_a_form_of_a_page_is_not_taken_for_json(open_server, client):
    """The kinds of content that a page may send without being asked for leave."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.post(
            f"{open_server.url}/commits", content=b'{"ref": "abc"}', headers={"Content-Type": kind}
        )
        assert code(answer, 422) == "request-invalid"


def test_a_wrong_token_is_refused_where_none_is_needed(open_server, client):
    answer = client.get(f"{open_server.url}/commits", headers=bearer("rlv_wrong"))
    assert code(answer, 401) == "credentials-missing"


def test_a_token_limits_where_none_is_needed(open_server, client):
    headers = bearer(open_server.token(Scope.READ))
    assert code(client.get(f"{open_server.url}/memory", headers=headers), 403) == "scope-missing"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com", ""])
def test_an_open_server_does_not_listen_to_the_network(host):
    with pytest.raises(UsageError, match="--no-credentials"):
        refuse_open_server(host, without_credentials=True)
    refuse_open_server(host, without_credentials=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST."])
def test_loopback_has_many_names(host):
    assert is_loopback(host)
    refuse_open_server(host, without_credentials=True)
