"""An incident's request as OpenTelemetry spans, in the JSON form of OTLP: a ``TracesData`` message.

Written by hand, since JSON that the protobuf library makes has ids in base64, where OTLP wants hex (and numbers of enums, and
nanoseconds as text): https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Names of attributes are those of the
semantic conventions, 1.30. Ids follow from the incident alone, so that two exports are one trace; where the request brought
a ``traceparent``, the spans belong to that trace.

Calls are spans; log records, and the failure as ``exception``, are events of the request's span. Readings of the clock, of
chance and of the environment are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from relive import __version__
from relive.errors import UsageError
from relive.incidents.report.detail import Account
from relive.incidents.report.shown import shown, unpacked_text
from relive.incidents.report.timeline import Row, Timeline
from relive.incidents.report.words import CALLS, short_statement
from relive.model.failure import ErrorPackage
from relive.recording.events import EventKind

__all__ = ["spans_of"]

_INTERNAL, _SERVER, _CLIENT = 1, 2, 3  # SpanKind
_ERROR = 2  # StatusCode
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-[0-9a-f]{2}.*"
)
_HTTP_PORTS = {"http": 80, "https": 443}
_UNSIGNED_MOST = (1 << 64) - 1

Attributes = dict[str, Any]


def spans_of(account: Account) -> dict[str, Any]:
    """The message.

    Raises:
        UsageError: nothing was recorded of the incident's request.
    """
    timeline = account.timeline
    if timeline is None:
        raise UsageError(
            f"incident {account.incident.number} has no spans",
            cause="nothing was recorded of its request",
            remedy="record inside the service (`relive run` does so for Python), or by --listen",
        )
    spans = list(_spans(account, timeline))
    scope = {"name": "relive", "version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(_resource(account))},
                "scopeSpans": [{"scope": scope, "spans": spans}],
            }
        ]
    }


def _resource(account: Account) -> Attributes:
    incident, package = account.incident, account.package
    found: Attributes = {
        "service.name": incident.service,
        "service.instance.id": incident.life,
        "process.pid": account.recording.pid,
    }
    if package is not None:
        found |= {
            "process.pid": package.pid,
            "process.command_args": package.argv,
            "process.runtime.name": "cpython",
            "process.runtime.version": package.versions.python.split()[0]
            if package.versions.python
            else None,
            "vcs.ref.head.revision": package.revision.commit if package.revision is not None else None,
        }
    return found


# -- spans ---------------------------------------------------------------------------------------------------------------


def _spans(account: Account, timeline: Timeline) -> Iterator[dict[str, Any]]:
    name = f"{account.incident.service}/{account.incident.life}/{account.incident.number}"
    trace, parent = _trace(account, name)
    root = _id(f"{name}/request", 8)
    yield _root(account, timeline, trace, root, parent)
    for number, row in enumerate(timeline.rows):
        if row.kind not in CALLS or row.outside:
            continue
        span = _span(trace, _id(f"{name}/{row.pid}/{row.seq}/{number}", 8), root, timeline, row)
        kind, attributes = _call(row)
        span |= {"name": _name(row), "kind": kind}
        yield _finished(span, attributes, row)


def _trace(account: Account, name: str) -> tuple[str, str | None]:
    """(trace id, id of the caller's span)."""
    for key, value in _request_headers(account):
        match = _TRACEPARENT.fullmatch(value) if key.lower() == "traceparent" else None
        if match is not None:
            return match["trace"], match["span"]
    return _id(name, 16), None


def _id(name: str, length: int) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=length).hexdigest()


def _request_headers(account: Account) -> list[tuple[str, str]]:
    if account.proxied is not None:
        return account.proxied.headers
    package = account.package
    return package.request.headers if package is not None and package.request is not None else []


def _span(trace: str, own: str, parent: str | None, timeline: Timeline, row: Row) -> dict[str, Any]:
    begin = timeline.began_wall_ns + row.at_ns
    span = {
        "traceId": trace,
        "spanId": own,
        "startTimeUnixNano": _moment(begin),
        "endTimeUnixNano": _moment(begin + (row.took_ns or 0)),
    }
    return span | ({"parentSpanId": parent} if parent is not None else {})


def _moment(wall_ns: int) -> str:
    return str(min(max(0, wall_ns), _UNSIGNED_MOST))


def _finished(span: dict[str, Any], attributes: Attributes, row: Row) -> dict[str, Any]:
    if row.failed:
        attributes = {"error.type": _error_type(row), **attributes}
        span["status"] = {"code": _ERROR, "message": row.result}
    span["attributes"] = _attributes(
        attributes | {"relive.sequence": row.seq, "thread.id": row.details.get("thread")}
    )
    return span


def _error_type(row: Row) -> str:
    error = row.details.get("error")
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return str(error["type"])
    status = _part(row.details, "answer").get("status")
    return str(status) if isinstance(status, int) else "_OTHER"


def _root(account: Account, timeline: Timeline, trace: str, own: str, parent: str | None) -> dict[str, Any]:
    served = [
        row for row in timeline.rows if row.kind in (EventKind.REQUEST_STARTED, EventKind.HANDLING_STARTED)
    ]
    package, proxied = account.package, account.proxied
    words = served[0].what if served else account.incident.sighting.summary
    method, _, target = words.partition(" ") if served else ("", "", "")
    path, _, query = target.partition("?")
    status = proxied.status if proxied is not None else None
    if status is None:
        statuses = (
            row.details.get("answer", {}).get("status")
            for row in served
            if isinstance(row.details.get("answer"), dict)
        )
        status = next((one for one in statuses if isinstance(one, int)), None)
    request = package.request if package is not None else None
    client = str(request.peer[0]) if request is not None and request.peer else None
    if proxied is not None and proxied.client is not None:
        client = proxied.client.rpartition(":")[0]
    attributes: Attributes = {
        "http.request.method": method or None,
        "url.path": path or None,
        "url.query": query or None,
        "url.scheme": "http" if served else None,
        "http.response.status_code": status,
        "client.address": client,
        "error.type": package.type
        if package is not None
        else (str(status) if status and status >= 500 else "_OTHER"),
        "relive.incident": account.incident.number,
        "relive.commit.before": account.incident.before,
        "relive.commit.at": account.incident.at,
    }
    begin = timeline.began_wall_ns
    span: dict[str, Any] = {
        "traceId": trace,
        "spanId": own,
        "name": f"{method} {path}".strip() if served else words,
        "kind": _SERVER if served else _INTERNAL,
        "startTimeUnixNano": _moment(begin),
        "endTimeUnixNano": _moment(begin + timeline.took_ns),
        "attributes": _attributes(attributes),
        "events": list(_events(account, timeline)),
        "status": {"code": _ERROR, "message": account.incident.sighting.summary},
    }
    return span | ({"parentSpanId": parent} if parent is not None else {})


def _events(account: Account, timeline: Timeline) -> Iterator[dict[str, Any]]:
    for row in timeline.rows:
        at = {"timeUnixNano": _moment(timeline.began_wall_ns + row.at_ns)}
        if row.kind is EventKind.LOG_RECORD:
            details = {
                "log.severity": row.result,
                "log.logger": row.details.get("logger"),
                "log.body": row.what,
            }
            yield {**at, "name": "log", "attributes": _attributes(details)}
    package = account.package
    if package is not None:
        facts: Attributes = {
            "exception.type": package.type,
            "exception.message": package.text,
            "exception.stacktrace": _stack(package),
            "exception.escaped": package.where.value != "log",
        }
        yield {
            "timeUnixNano": _moment(package.wall_ns),
            "name": "exception",
            "attributes": _attributes(facts),
        }


def _stack(package: ErrorPackage) -> str:
    """As Python prints it, of the exception that escaped."""
    lines = ["Traceback (most recent call last):"]
    for frame in package.chain[0].frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        at = frame.line - frame.source.first if frame.source is not None else -1
        if frame.source is not None and 0 <= at < len(frame.source.lines):
            lines.append(f"    {frame.source.lines[at].strip()}")
    lines.append(f"{package.type}: {package.text}")
    return "\n".join(lines)


# -- what a call was -----------------------------------------------------------------------------------------------------


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _name(row: Row) -> str:
    """Of few different values, as the conventions want it: no parameters, no keys."""
    if row.kind in (EventKind.HTTP_CALL, EventKind.REDIS_COMMAND, EventKind.QUERY):
        return row.what.partition(" ")[0] or row.kind.value
    if row.kind is EventKind.S3_CALL:
        return f"S3.{row.what.partition(' ')[0]}"
    return row.kind.value


def _call(row: Row) -> tuple[int, Attributes]:
    """(span kind, attributes)."""
    asked, answer = _part(row.details, "asked"), _part(row.details, "answer")
    status = answer.get("status") if isinstance(answer.get("status"), int) else None
    match row.kind:
        case EventKind.HTTP_CALL:
            return _CLIENT, _http(asked, status)
        case EventKind.S3_CALL:
            about = {
                "rpc.system": "aws-api",
                "rpc.service": "S3",
                "rpc.method": asked.get("operation"),
                "aws.s3.bucket": asked.get("bucket"),
                "aws.s3.key": asked.get("key"),
            }
            return _CLIENT, _http(asked, status) | about
        case EventKind.QUERY:
            return _CLIENT, _query(row, asked)
        case EventKind.REDIS_COMMAND:
            operation = row.what.partition(" ")[0]
            text = {"db.system.name": "redis", "db.operation.name": operation, "db.query.text": row.what}
            database = asked.get("database")
            namespace = str(database) if isinstance(database, int) else None
            return _CLIENT, text | {"db.namespace": namespace} | _server(asked)
        case EventKind.FILE_READ:
            return _INTERNAL, {"file.path": row.what}
        case EventKind.DIALOGUE_OPENED | EventKind.DIALOGUE_UP | EventKind.NAME_LOOKUP:
            return _CLIENT, _server(asked) or _server({"server": _address(row.details.get("to"))})
        case _:
            return _INTERNAL, _process(row, asked, answer)


def _process(row: Row, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> Attributes:
    status, words = answer.get("status"), asked.get("argv")
    command = words if isinstance(words, list) else [row.what]
    return {
        "process.command_args": [word if isinstance(word, str) else shown(word) for word in command],
        "process.exit.code": status if isinstance(status, int) else None,
    }


def _http(asked: Mapping[str, Any], status: int | None) -> Attributes:
    url = asked.get("url")
    found: Attributes = {
        "http.request.method": asked.get("method"),
        "url.full": url,
        "http.response.status_code": status,
    }
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        if parts is not None:
            found |= {
                "server.address": parts.hostname,
                "server.port": parts.port or _HTTP_PORTS.get(parts.scheme),
            }
    except ValueError:  # a port that is none
        pass
    return found


def _query(row: Row, asked: Mapping[str, Any]) -> Attributes:
    statement = unpacked_text(asked.get("statement")) or row.what
    rows = row.details.get("rows_fetched")
    return {
        "db.system.name": _system(asked),
        "db.query.text": statement,
        "db.query.summary": short_statement(statement)[:255],
        "db.operation.name": statement.split(None, 1)[0].upper() if statement.strip() else None,
        "db.namespace": asked.get("database"),
        "db.response.returned_rows": rows if isinstance(rows, int) else None,
        **_server(asked),
    }


_SYSTEMS = frozenset({"sqlite", "postgresql", "mysql", "mariadb"})


def _system(asked: Mapping[str, Any]) -> str:
    system = asked.get("system")
    return str(system) if isinstance(system, str) and system in _SYSTEMS else "other_sql"


def _address(to: Any) -> str | None:
    return ":".join(str(part) for part in to) if isinstance(to, list) and len(to) == 2 else None


def _server(asked: Mapping[str, Any]) -> Attributes:
    server = asked.get("server")
    if not isinstance(server, str):
        return {}
    host, _, port = server.rpartition(":")
    if host and port.isascii() and port.isdigit():
        return {"server.address": host, "server.port": int(port)}
    return {"server.address": server}


# -- attributes ----------------------------------------------------------------------------------------------------------


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    """As OTLP has them; those that are None are left out."""
    return [{"key": key, "value": _value(value)} for key, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    text = value if isinstance(value, str) else shown(value)
    return {"stringValue": text.encode("utf-8", "replace").decode("utf-8")}
