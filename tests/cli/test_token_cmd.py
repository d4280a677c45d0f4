"""``relive token`` and ``relive audit``: what they say, in words and in JSON."""

from __future__ import annotations

import json
import re
import time

import pytest

from relive.config import load_settings
from relive.server.audit import Audit
from relive.server.credentials import Scope, Tokens


def create(relive, *words):
    return relive("token", "create", "--name", "ci", "--scope", "read", *words)


def test_a_token_is_all_that_stdout_holds(relive, home):
    said = create(relive, "--scope", "operate")
    assert said.status == 0
    assert re.fullmatch(r"rlv_[0-9a-f]{16}_[0-9a-f]{64}\n", said.out)
    assert "is not shown again" in said.err
    with Tokens(load_settings().server) as tokens:
        found = tokens.verify(said.out.strip())
    assert found.scopes == (Scope.READ, Scope.OPERATE)
    assert found.expires_ns - found.created_ns == 90 * 86_400 * 10**9


def test_the_list_does_not_know_the_tokens(relive, home):
    token = create(relive).out.strip()
    create(relive, "--expires", "never")
    listed = relive("token", "list")
    assert token.split("_")[1] in listed.out
    assert token.split("_")[2] not in listed.out + relive("token", "list", "--json").out
    assert [one["state"] for one in json.loads(relive("token", "list", "--json").out)] == ["valid", "valid"]


def test_an_empty_list_says_so(relive, home):
    assert str(relive("token", "list")) == "! There are no tokens.\n= 0"


def test_a_revoked_token_opens_nothing(relive, home):
    made = json.loads(create(relive, "--json").out)
    said = relive("token", "revoke", "ci")
    assert said.out == f"{made['id']}\n"
    with Tokens(load_settings().server) as tokens:
        assert tokens.verify(made["token"]) is None
    (row,) = json.loads(relive("token", "list", "--json").out)
    assert row["state"] == "revoked"
    assert row["revoked_ns"] <= time.time_ns()
    assert relive("token", "revoke", "ci").status == 3


@pytest.mark.parametrize("words", [["--expires", "soon"], ["--scope", "root"], ["--name", "a b"]])
def test_what_cannot_be_is_a_mistake_of_the_caller(relive, home, words):
    assert create(relive, *words).status == 2


def test_the_audit_log_is_checked(relive, home):
    assert relive("audit", "verify").out == f"0 {'0' * 64}\n"
    audit = Audit(load_settings().server)
    entry = audit.record(who="ci", address="::1", what="POST /commits", outcome="done")
    assert relive("audit", "verify").out == f"1 {entry.hash}\n"
    path = home / "server" / "audit" / "000000000001.jsonl"
    path.write_text(path.read_text().replace("ci", "me"))
    said = relive("audit", "verify")
    assert (said.status, "audit-broken" in said.err) == (7, True)
