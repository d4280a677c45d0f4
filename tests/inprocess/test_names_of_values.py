"""Values that are secret by the name of a column, a key or a field: ``sql_names`` and ``redis_names``."""

from __future__ import annotations

import sys

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.credential_names import is_credential_name
from relive_recorder.kinds import redis_names, sql_names
from relive_recorder.scrub import Scrubber

sys.path.remove(str(INPROCESS))


@pytest.mark.parametrize(
    ("statement", "numbers"),
    [
        ("INSERT INTO users (name, password) VALUES (?, ?)", {1}),
        ("INSERT INTO users (name, password) VALUES (%s, crypt(%s, 'x')), (%s, %s)", {1, 3}),
        ('INSERT INTO "users" ("api_key", `name`) VALUES ($2, $1)', {1}),
        ("UPDATE users SET password = $2, name = $1 WHERE id = $3", {1}),
        ("SELECT 1 FROM users u WHERE u.token IN (?, ?) AND u.name = ?", {0, 1}),
        ("SELECT ? AS password, name -- password = ?\nFROM users WHERE id = ?", set()),
        ("SELECT password FROM users WHERE name = ?", set()),
    ],
)
def test_parameters_for_secret_columns(statement, numbers):
    assert sql_names.secret_parameters(statement, is_credential_name) == numbers


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "INSERT INTO u (name, password) VALUES ('eve', 'it''s')",
            "INSERT INTO u (name, password) VALUES ('eve', '<4>')",
        ),
        (
            "UPDATE u SET password='abc' WHERE name='password'",
            "UPDATE u SET password='<3>' WHERE name='password'",
        ),
        ("SELECT 'password' = 'x', name FROM u", "SELECT 'password' = 'x', name FROM u"),
    ],
)
def test_texts_for_secret_columns(statement, told):
    assert sql_names.without_literals(statement, is_credential_name, lambda text: f"<{len(text)}>") == told


@pytest.mark.parametrize(
    ("command", "places"),
    [
        (["SET", "user:1:password", "hunter22", "EX", 10], [2]),
        (["SETEX", "apikey:3", 10, "hunter22"], [3]),
        (["HSET", "user:1", "name", "ada", "token", "hunter22"], [5]),
        (["MSET", "a", "b", b"my-secret", b"hunter22"], [4]),
        (["LPUSH", "tokens", "one", "two"], [2, 3]),
        (["GET", "user:1:password"], []),
        (["SET", "user:1:name", "password"], []),
        (["PING"], []),
    ],
)
def test_words_that_are_secret(command, places):
    assert redis_names.secret_words(command, is_credential_name) == places


@pytest.mark.parametrize(
    ("command", "said", "told"),
    [
        (["GET", "user:1:password"], "hunter22", "*"),
        (["GET", "user:1:password"], {"$": ["utf8", "hunter22"]}, {"$": ["utf8", "*"]}),
        (["GET", "token:count"], "42", "42"),
        (["HGET", "user:1", "token"], "hunter22", "*"),
        (["HMGET", "user:1", "name", "token"], ["ada", "hunter22"], ["ada", "*"]),
        (["MGET", "a", "secret:b"], ["one", "hunter22"], ["one", "*"]),
        (["HGETALL", "user:1"], ["name", "ada", "secret", "hunter22"], ["name", "ada", "secret", "*"]),
        (
            ["HGETALL", "user:1"],
            {"$": ["dict", [["name", "ada"], [{"$": ["utf8", "secret"]}, "hunter22"]]]},
            {"$": ["dict", [["name", "ada"], [{"$": ["utf8", "secret"]}, "*"]]]},
        ),
        (["SET", "user:1:password", "x"], "OK", "OK"),
    ],
)
def test_answers_that_are_secret(command, said, told):
    scrubber = Scrubber()
    scrubber.placeholder = lambda _secret: "*"
    assert redis_names.without_secrets(command, said, is_credential_name, scrubber.secret) == told
