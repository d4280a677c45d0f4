"""Every error is answered in one shape, with the status of the table."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from relive import errors
from relive.errors import ReliveError
from relive.server.credentials import Scope
from relive.server.errors import STATUSES, status_of
from server.serving import bearer, served

KINDS = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, ReliveError)]
PAGE = Path(__file__).parents[2] / "docs" / "api-security.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    token = server.token(Scope.READ, Scope.OPERATE)
    with httpx.Client(base_url=server.url, headers=bearer(token)) as made:
        yield made


def told(answer, status):
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message", "cause", "remedy"}
    return answer.json()["error"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_has_a_status_of_its_own_or_of_its_family(kind):
    family = kind.__mro__[kind.__mro__.index(ReliveError) - 1] if kind is not ReliveError else kind
    assert family.code in STATUSES
    assert 400 <= status_of(kind("it failed")) < 600


def test_a_kind_without_a_status_has_that_of_its_family():
    assert "incident-unknown" not in STATUSES
    assert status_of(errors.IncidentUnknown("no incident 7")) == 404


def test_the_manual_has_the_table():
    rows = re.findall(r"^\| (\d{3}) \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert {
        code: int(status) for status, codes in rows for code in re.findall(r"`([a-z-]+)`", codes)
    } == dict(STATUSES)


def test_an_error_of_relive_keeps_its_four_parts(client):
    assert told(client.get("/unknown"), 404) == {
        "code": "ref-unknown",
        "message": "no commit is called 'x'",
        "cause": "so it is",
        "remedy": "`relive log`",
    }


def test_a_field_that_cannot_be_is_named_and_its_value_is_not_shown(client):
    error = told(client.post("/commits", json={"ref": "s", "times": "hunter2"}), 422)
    assert error["code"] == "request-invalid"
    assert "body.ref" in error["cause"] and "body.times" in error["cause"]
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b"", b'"x"', b"[" * 5000])
def test_a_body_that_is_none_is_refused(client, body):
    answer = client.post("/commits", content=body, headers={"Content-Type": "application/json"})
    assert told(answer, answer.status_code)["code"] == "request-invalid"
    assert answer.status_code in (400, 422)


def test_a_path_that_is_not_there(client):
    assert told(client.get("/nothing"), 404)["code"] == "not-found"


def test_a_method_that_is_not_there(client):
    answer = client.delete("/commits")
    assert told(answer, 405)["code"] == "method-not-allowed"
    assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


def test_a_bug_is_told_without_its_text(client):
    error = told(client.get("/bug"), 500)
    assert error["code"] == "error"
    assert "hunter2" not in str(error)


def test_no_token_says_how_to_come_by_one(server):
    answer = httpx.get(f"{server.url}/commits")
    assert "relive token create" in told(answer, 401)["remedy"]
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_openapi_knows_no_other_shape(client):
    schema = client.get("/openapi.json").json()
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert {"4XX", "5XX"} <= set(schema["paths"]["/commits"]["post"]["responses"])
