"""What an event inside a service was, and what came of it, in a few words.

Fields are read as ``relive.recording.events`` and the recorder's ``calls`` document them, and never trusted: one that is absent
or of another type is passed over.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from relive.incidents.report.shown import one_line, shorten, shown, unpacked_text
from relive.recording.events import EventKind

__all__ = [
    "CALLS",
    "READINGS",
    "Phrase",
    "error_text",
    "phrase",
    "short_statement",
    "short_type",
    "status_text",
]

CALLS = frozenset(
    {
        EventKind.QUERY,
        EventKind.HTTP_CALL,
        EventKind.REDIS_COMMAND,
        EventKind.S3_CALL,
        EventKind.FILE_READ,
        EventKind.SUBPROCESS,
        EventKind.DIALOGUE_OPENED,
        EventKind.DIALOGUE_UP,
        EventKind.NAME_LOOKUP,
    }
)
READINGS = frozenset({EventKind.CLOCK, EventKind.RANDOM})

_COMMANDS, _WORDS = 8, 64  # of a pipeline that are told; words of one command
_LONG = 400  # [characters] of a text in the model; a terminal cuts it further
_COLUMNS = 24  # [characters] longer lists of columns are left out of a statement, as below
_LISTED = re.compile(r"^(INSERT\s+INTO\s+\S+\s*)\([^()]{24,}\)", re.IGNORECASE)
_VALUES = re.compile(r"(\bVALUES\s*)\(.{24,}\)", re.IGNORECASE)


class Phrase(NamedTuple):
    """An event in words; ``failed`` when the service saw it fail."""

    what: str
    result: str
    failed: bool = False


def phrase(kind: EventKind, fields: Mapping[str, Any]) -> Phrase:
    """In words; for a kind that has none its name."""
    make = _PHRASES.get(kind)
    if make is not None:
        return _cut(make(fields))
    return Phrase(kind.value, "")


def _cut(one: Phrase) -> Phrase:
    return Phrase(shorten(one_line(one.what), _LONG), shorten(one_line(one.result), _LONG), one.failed)


def short_type(name: Any) -> str:
    """``KeyError`` for ``builtins.KeyError``: a class without its module."""
    return str(name).rpartition(".")[2] if isinstance(name, str) and name else "error"


def error_text(error: Any) -> str:
    """``TimeoutError: timed out`` of a recorded error."""
    if not isinstance(error, dict):
        return shown(error)
    name, text, number = short_type(error.get("type")), error.get("text"), error.get("errno")
    if not isinstance(text, str) or not text:
        text = _arguments(error.get("args"), quoted=name == "KeyError")  # as Python tells it
    if not text and isinstance(number, int) and number in errno.errorcode:
        text = os.strerror(number)
    return f"{name}: {text}" if text else name


def _arguments(packed: Any, *, quoted: bool) -> str:
    content = packed
    if isinstance(packed, dict) and isinstance(packed.get("$"), list) and len(packed["$"]) > 1:
        content = packed["$"][1]
    if not isinstance(content, list):
        return ""
    return ", ".join(item if isinstance(item, str) and not quoted else shown(item) for item in content[:4])


def status_text(status: Any) -> str:
    """``503 Service Unavailable``."""
    if not isinstance(status, int):
        return ""
    return f"{status} {http.client.responses.get(status, '')}".rstrip()


def short_statement(statement: str) -> str:
    """A statement in one line: ``SELECT … FROM orders WHERE id = ?``, lists of columns left out where they are long."""
    text = " ".join(statement.split())
    if text[:7].upper() == "SELECT ":
        at = _outer_from(text)
        if at - 7 > _COLUMNS:
            return f"{text[:6]} …{text[at:]}"
        return text
    text = _LISTED.sub(r"\1(…)", text)
    return _VALUES.sub(r"\1(…)", text)


def _outer_from(text: str) -> int:
    """Where `` FROM `` stands outside brackets; 0 if nowhere."""
    depth = 0
    for match in re.finditer(r"[()]| FROM ", text, re.IGNORECASE):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
        elif depth == 0:
            return match.start()
    return 0


def _part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """A text as it is, anything else as Python writes it; empty for None."""
    if value is None:
        return ""
    text = unpacked_text(value)
    return text if text is not None else shown(value)


def _outcome(fields: Mapping[str, Any], result: Callable[[], str]) -> tuple[str, bool]:
    if "error" in fields:
        return error_text(fields["error"]), True
    return result(), False


def _query(fields: Mapping[str, Any]) -> Phrase:
    asked, answer = _part(fields, "asked"), _part(fields, "answer")
    what = short_statement(_text(asked.get("statement"))) or "query"

    def result() -> str:
        rows, changed = fields.get("rows_fetched"), answer.get("rowcount")
        if isinstance(rows, int):
            return f"{rows} row{'s' * (rows != 1)}"
        if isinstance(changed, int) and changed >= 0:
            return f"{changed} row{'s' * (changed != 1)}"
        return "no rows fetched" if answer.get("columns") else "done"

    error = answer.get("error")
    if isinstance(error, dict):  # the server's own words, as they were seen at the border
        return Phrase(what, f"{_text(error.get('message'))} ({_text(error.get('code'))})", True)
    return Phrase(what, *_outcome(fields, result))


def _http(fields: Mapping[str, Any]) -> Phrase:
    asked, answer = _part(fields, "asked"), _part(fields, "answer")
    status = answer.get("status")
    result, failed = _outcome(fields, lambda: status_text(status) or "answered")
    failed = failed or (isinstance(status, int) and status >= 500)
    return Phrase(f"{_text(asked.get('method')) or 'GET'} {_text(asked.get('url'))}", result, failed)


def _redis(fields: Mapping[str, Any]) -> Phrase:
    if "message" in fields:  # of a subscription
        return Phrase("message", shown(fields["message"]))
    asked, answer = _part(fields, "asked"), fields.get("answer")
    commands = asked.get("commands")
    several = commands if isinstance(commands, list) else [asked.get("command")]
    what = "; ".join(_command(one) for one in several[:_COMMANDS])
    if len(several) > _COMMANDS:
        what += f"; {len(several) - _COMMANDS} more"
    if isinstance(answer, dict) and "error" in answer:  # the server's, which is an answer to Redis
        return Phrase(what, error_text(answer["error"]), True)
    size = fields.get("bytes")
    long = f"{size} bytes" if fields.get("answer_in_data") and isinstance(size, int) else None
    return Phrase(what or "command", *_outcome(fields, lambda: long or shown(answer)))


def _command(words: Any) -> str:
    return " ".join(_text(word) for word in words[:_WORDS]) if isinstance(words, list) else _text(words)


def _s3(fields: Mapping[str, Any]) -> Phrase:
    asked, status = _part(fields, "asked"), _part(fields, "answer").get("status")
    place = "/".join(_text(asked[name]) for name in ("bucket", "key") if asked.get(name) is not None)
    result, failed = _outcome(fields, lambda: status_text(status) or "answered")
    failed = failed or (isinstance(status, int) and status >= 500)
    return Phrase(f"{_text(asked.get('operation')) or 'S3'} {place}".rstrip(), result, failed)


def _file(fields: Mapping[str, Any]) -> Phrase:
    size = _part(fields, "answer").get("bytes")
    result = f"{size} bytes" if isinstance(size, int) else "read"
    return Phrase(_text(_part(fields, "asked").get("path")) or "file", *_outcome(fields, lambda: result))


def _bytes(fields: Mapping[str, Any]) -> Phrase:
    """Bytes of a protocol that is not understood."""
    asked, answer = _part(fields, "asked"), _part(fields, "answer")
    what = f"{_text(asked.get('server'))} {shown(asked.get('data'))}".strip()
    return Phrase(what, *_outcome(fields, lambda: shown(answer["data"]) if "data" in answer else "no answer"))


def _connecting(fields: Mapping[str, Any]) -> Phrase:
    """A connection that could not be made."""
    to = fields.get("to")
    place = ":".join(str(part) for part in to) if isinstance(to, list) else ""
    return Phrase(f"connect {place}".rstrip(), _text(fields.get("error")), True)


def _lookup(fields: Mapping[str, Any]) -> Phrase:
    name = _part(fields, "asked").get("name") or fields.get("question")
    return Phrase(_text(name) or "name lookup", *_outcome(fields, lambda: shown(fields.get("answer", ""))))


def _subprocess(fields: Mapping[str, Any]) -> Phrase:
    status = _part(fields, "answer").get("status")
    result, failed = _outcome(fields, lambda: _exit(status))
    what = _command(_part(fields, "asked").get("argv")) or "subprocess"
    return Phrase(what, result, failed or (isinstance(status, int) and status != 0))


def _exit(status: Any) -> str:
    if not isinstance(status, int):
        return "done"
    return f"exit {status}" if status >= 0 else f"signal {-status}"


def _reading(fields: Mapping[str, Any]) -> Phrase:
    return Phrase(_text(fields.get("source")) or "reading", shown(fields.get("value")))


def _environment(fields: Mapping[str, Any]) -> Phrase:
    value = fields.get("value")
    return Phrase(_text(fields.get("name")), "not set" if value is None else shown(value))


def _log(fields: Mapping[str, Any]) -> Phrase:
    level = _text(fields.get("level"))
    return Phrase(_text(fields.get("text")), level, level.upper() in ("ERROR", "CRITICAL", "FATAL"))


def _failure(fields: Mapping[str, Any]) -> Phrase:
    where = fields.get("where")
    result = (
        "logged" if where == "log" else f"escaped from the {where}" if isinstance(where, str) else "escaped"
    )
    return Phrase(error_text({"type": fields.get("type"), "text": fields.get("text")}), result, True)


def _miss(fields: Mapping[str, Any]) -> Phrase:
    differs = fields.get("differs")
    result = (
        f"differs in {', '.join(map(str, differs[:4]))}"
        if isinstance(differs, list) and differs
        else "not recorded"
    )
    kind = fields.get("kind")
    call = next((one for one in CALLS if one == kind), None)
    inner = shown(fields.get("asked")) if call is None else phrase(call, fields).what
    return Phrase(inner, result, True)


def _handling(fields: Mapping[str, Any]) -> Phrase:
    return Phrase(
        f"{_text(fields.get('method'))} {_text(fields.get('target'))}".strip() or "request",
        *_outcome(fields, lambda: status_text(fields.get("status"))),
    )


_PHRASES: Mapping[EventKind, Callable[[Mapping[str, Any]], Phrase]] = {
    EventKind.QUERY: _query,
    EventKind.HTTP_CALL: _http,
    EventKind.REDIS_COMMAND: _redis,
    EventKind.S3_CALL: _s3,
    EventKind.FILE_READ: _file,
    EventKind.SUBPROCESS: _subprocess,
    EventKind.DIALOGUE_UP: _bytes,
    EventKind.DIALOGUE_OPENED: _connecting,
    EventKind.NAME_LOOKUP: _lookup,
    EventKind.CLOCK: _reading,
    EventKind.RANDOM: _reading,
    EventKind.ENVIRONMENT_READ: _environment,
    EventKind.LOG_RECORD: _log,
    EventKind.FAILURE: _failure,
    EventKind.MISS: _miss,
    EventKind.HANDLING_STARTED: _handling,
    EventKind.HANDLING_ENDED: _handling,
}
