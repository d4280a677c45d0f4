"""Events in words, whatever their fields hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.incidents.report.words import error_text, phrase, short_statement, status_text
from relive.recording.events import EventKind

from .builders import packed
from .test_shown import JSON

NOT_FOUND = "FileNotFoundError: No such file or directory"
MISSING = {"type": "builtins.FileNotFoundError", "errno": 2}
TIMED_OUT = {"type": "socket.timeout", "args": packed("tuple", ["timed out", 3]), "text": ""}


REFUSED = {"error": TIMED_OUT}
UNAVAILABLE = {"asked": {"method": "PUT", "url": "http://a"}, "answer": {"status": 503}}
OBJECT = {"operation": "GetObject", "bucket": "b", "key": "k/1"}
MISSED = {"kind": "query", "asked": {"statement": "SELECT 2"}, "differs": ["statement"]}
FIELDS = (
    *("asked", "answer", "error", "status", "value", "source", "name", "text", "level", "kind", "differs"),
    *("bytes", "rows_fetched", "method", "target"),
)
PARTS = ("statement", "url", "command", "commands", "argv", "path", "operation", "key", "status", "errno")


EXAMPLES: list[tuple[str, dict[str, object], str, str, bool]] = [
    ("query", {"asked": {"statement": "SELECT 1"}, "rows_fetched": 1}, "SELECT 1", "1 row", False),
    ("query", {"asked": {"statement": "DELETE FROM a"}, "answer": {"rowcount": 2}}, "DELETE FROM a", "2 rows", False),
    ("query", {"asked": {"statement": "COMMIT"}, "answer": {"rowcount": -1}}, "COMMIT", "done", False),
    ("query", {"asked": {"statement": "SELECT 1"}, "answer": {"columns": ["a"]}}, "SELECT 1", "no rows fetched", False),
    ("query", {"asked": {"statement": "X"}, "answer": {"error": {"code": "57014", "message": "no"}}}, "X", "no (57014)", True),
    ("query", {"asked": {"statement": "X"}, "error": TIMED_OUT}, "X", "timeout: timed out, 3", True),
    ("http-call", {"asked": {"method": "GET", "url": "a"}, "answer": {"status": 404}}, "GET a", "404 Not Found", False),
    ("http-call", UNAVAILABLE, "PUT http://a", "503 Service Unavailable", True),
    ("redis-command", {"asked": {"command": ["SET", "a", 1]}, "answer": True}, "SET a 1", "True", False),
    ("redis-command", {"asked": {"commands": [["GET", "a"], ["GET", "b"]]}, "answer": []}, "GET a; GET b", "[]", False),
    ("s3-call", {"asked": OBJECT, "answer": {"status": 200}}, "GetObject b/k/1", "200 OK", False),
    ("redis-command", {"asked": {"command": ["GET", "a"]}, "answer": REFUSED}, "GET a", "timeout: timed out, 3", True),
    ("redis-command", {"asked": {"command": ["KEYS"]}, "answer_in_data": True, "bytes": 9}, "KEYS", "9 bytes", False),
    ("redis-command", {"message": ["message", "news", "x"]}, "message", "['message', 'news', 'x']", False),
    ("redis-command", {"asked": {"commands": [["PING"]] * 10}}, "; ".join(["PING"] * 8) + "; 2 more", "None", False),
    ("file-read", {"asked": {"path": "/x.conf"}, "answer": {"bytes": 12}}, "/x.conf", "12 bytes", False),
    ("file-read", {"asked": {"path": "/x.conf"}, "error": MISSING}, "/x.conf", NOT_FOUND, True),
    ("subprocess", {"asked": {"argv": ["ls", "-l"]}, "answer": {"status": 2}}, "ls -l", "exit 2", True),
    ("subprocess", {"asked": {"argv": ["ls"]}, "answer": {"status": -9}}, "ls", "signal 9", True),
    ("subprocess", {"asked": {"argv": ["ls"]}, "answer": {"status": 0}}, "ls", "exit 0", False),
    ("clock", {"source": "time.time", "value": 1.5}, "time.time", "1.5", False),
    ("environment-read", {"name": "HOME"}, "HOME", "not set", False),
    ("environment-read", {"name": "HOME", "value": "/"}, "HOME", "'/'", False),
    ("log-record", {"level": "ERROR", "text": "a\n b\x1b[31m"}, "a b\\x1b[31m", "ERROR", True),
    ("failure", {"type": "builtins.KeyError", "text": "'x'"}, "KeyError: 'x'", "escaped", True),
    ("miss", MISSED, "SELECT 2", "differs in statement", True),
    ("miss", {"kind": [], "asked": 3}, "3", "not recorded", True),
    ("handling-ended", {"method": "GET", "target": "/", "status": 200}, "GET /", "200 OK", False),
    ("random", {"source": "os.urandom", "value": 7}, "os.urandom", "7", False),
    ("name-lookup", {"asked": {"name": "db"}, "answer": ["10.0.0.1"]}, "db", "['10.0.0.1']", False),
    ("dialogue-opened", {"to": ["10.0.0.1", 5432], "error": "ECONNREFUSED"}, "connect 10.0.0.1:5432", "ECONNREFUSED", True),
    ("dialogue-up", {"asked": {"server": "a:1", "data": "x"}, "answer": {"data": "y"}}, "a:1 'x'", "'y'", False),
    ("handling-started", {"method": "GET", "target": "/"}, "GET /", "", False),
]  # fmt: skip
# Rows of a timeline that are made of several events, or shown by their name alone.
BY_NAME = {
    *(
        "recorder-started",
        "connection-opened",
        "connection-closed",
        "request-started",
        "request-body",
        "request-ended",
    ),
    *(
        "interim-answer",
        "answer-started",
        "answer-body",
        "answer-ended",
        "stream-to-service",
        "stream-to-client",
    ),
    *("request-abandoned", "answer-broken", "commit-taken", "process-started", "handling-body", "rows"),
    *("dialogue-down", "dialogue-ended", "note"),
}


def test_every_kind_of_event_has_its_words_or_is_known_to_have_none():
    told = {kind for kind, *_ in EXAMPLES}
    assert told | BY_NAME == {kind.value for kind in EventKind}
    for kind in BY_NAME - told:
        assert phrase(EventKind(kind), {}) == (kind, "", False)


@pytest.mark.parametrize(("kind", "fields", "what", "result", "failed"), EXAMPLES)
def test_an_event_in_words(kind, fields, what, result, failed):
    assert phrase(EventKind(kind), fields) == (what, result, failed)


@pytest.mark.parametrize(
    ("statement", "short"),
    [
        ("SELECT a FROM t", "SELECT a FROM t"),
        ("select id, name, price, amount, note\n from t where id=1", "select … from t where id=1"),
        (
            "SELECT (SELECT max(n) FROM inner_table), b FROM outer_table",
            "SELECT … FROM outer_table",
        ),
        (
            "SELECT pg_advisory_lock(1234567890, 1234567890)",
            "SELECT pg_advisory_lock(1234567890, 1234567890)",
        ),
        (
            "INSERT INTO t (id, name, price, amount, note) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "INSERT INTO t (…) VALUES (…)",
        ),
        ("INSERT INTO t (a) VALUES (?)", "INSERT INTO t (a) VALUES (?)"),
    ],
)
def test_a_statement_is_told_without_its_lists(statement, short):
    assert short_statement(statement) == short


def test_an_error_is_told_by_its_text_or_its_arguments():
    assert error_text({"type": "a.B", "text": "boo"}) == "B: boo"
    assert error_text({"type": "builtins.OSError", "args": packed("tuple", [])}) == "OSError"
    assert error_text({"type": "builtins.KeyError", "args": packed("tuple", ["EUR"])}) == "KeyError: 'EUR'"
    assert error_text({}) == "error"
    assert error_text("x") == "'x'"


def test_a_status_that_has_no_name_is_told_by_number():
    assert status_text(299) == "299"
    assert status_text("200") == ""


@given(
    st.sampled_from(EventKind),
    st.dictionaries(
        st.sampled_from(FIELDS),
        JSON | st.dictionaries(st.sampled_from(PARTS), JSON, max_size=3),
        max_size=4,
    ),
)
def test_no_field_can_break_the_words(kind, fields):
    words = phrase(kind, fields)
    assert len(words.what) <= 400
    assert "\n" not in words.what + words.result
