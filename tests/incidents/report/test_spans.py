"""Spans are what OpenTelemetry's own schema takes, and hang together."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.report.detail import Account, account_of
from relive.incidents.report.spans import spans_of
from relive.recording.events import EventKind

from .builders import MS, WALL_NS, Events, add_incident, keep_beside

IDS = ("traceId", "spanId", "parentSpanId")


def parsed(message: dict[str, Any]) -> TracesData:
    """By the schema, which wants base64 where OTLP/JSON has hex; a name it does not know is an error."""

    def translated(value: Any) -> Any:
        if isinstance(value, list):
            return [translated(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode() if key in IDS else translated(item)
            for key, item in value.items()
        }

    return json_format.Parse(json.dumps(translated(message)), TracesData())


def spans(account: Account) -> list[Span]:
    (resource,) = parsed(spans_of(account)).resource_spans
    (scope,) = resource.scope_spans
    return list(scope.spans)


def facts(attributes: Any) -> dict[str, Any]:
    found = {}
    for one in attributes:
        value = one.value
        kind = value.WhichOneof("value")
        found[one.key] = (
            [item.string_value for item in value.array_value.values]
            if kind == "array_value"
            else getattr(value, kind)
        )
    return found


def test_the_schema_takes_it_and_calls_hang_below_the_request(told):
    root, *calls = spans(told())
    assert (len(root.trace_id), len(root.span_id)) == (16, 8)
    assert root.trace_id.hex() == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert root.parent_span_id.hex() == "00f067aa0ba902b7"
    assert root.kind == Span.SPAN_KIND_SERVER
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (WALL_NS, WALL_NS + int(24.5 * MS))
    assert [call.name for call in calls] == ["SELECT", "GET", "GET", "GET"]
    assert {call.kind for call in calls} == {Span.SPAN_KIND_CLIENT}
    assert {call.parent_span_id for call in calls} == {root.span_id}
    assert {call.trace_id for call in calls} == {root.trace_id}
    assert len({span.span_id for span in (root, *calls)}) == 5


def test_attributes_are_those_of_the_conventions(told):
    root, query, redis, unavailable, timed_out = spans(told())
    of_root = facts(root.attributes)
    assert of_root["http.request.method"] == "POST"
    assert of_root["url.path"] == "/pay"
    assert of_root["url.query"] == "token=<secret>&x=1"
    assert of_root["http.response.status_code"] == 500
    assert of_root["client.address"] == "10.0.0.9"
    assert of_root["error.type"] == "builtins.KeyError"
    of_query = facts(query.attributes)
    assert of_query["db.system.name"] == "sqlite"
    assert of_query["db.query.text"].startswith("SELECT id, customer")
    assert of_query["db.response.returned_rows"] == 3
    of_redis = facts(redis.attributes)
    assert (of_redis["db.system.name"], of_redis["db.namespace"]) == ("redis", "2")
    assert (of_redis["server.address"], of_redis["server.port"]) == ("cache", 6379)
    of_http = facts(unavailable.attributes)
    assert of_http["url.full"] == "http://rates:8080/EUR?day=1"
    assert (of_http["server.address"], of_http["server.port"]) == ("rates", 8080)
    assert (of_http["http.response.status_code"], of_http["error.type"]) == (503, "503")
    assert unavailable.status.code == 2
    assert facts(timed_out.attributes)["error.type"] == "builtins.TimeoutError"
    assert query.status.code == 0
    assert (query.start_time_unix_nano, query.end_time_unix_nano) == (WALL_NS + 2 * MS, WALL_NS + 4 * MS)


def test_the_exception_and_log_records_are_events_of_the_request(told):
    log, exception = spans(told())[0].events
    assert facts(log.attributes)["log.body"] == "no rate for EUR"
    assert exception.name == "exception"
    assert exception.time_unix_nano == WALL_NS + 22 * MS
    about = facts(exception.attributes)
    assert (about["exception.type"], about["exception.message"]) == ("builtins.KeyError", "'EUR'")
    assert 'File "/srv/shop/rates.py", line 41, in in_euro' in about["exception.stacktrace"]


def test_the_resource_is_the_service(told):
    (resource,) = parsed(spans_of(told())).resource_spans
    about = facts(resource.resource.attributes)
    assert (about["service.name"], about["process.pid"]) == ("pay", 12)
    assert about["process.command_args"] == ["uvicorn", "pay:app"]


def test_ids_are_the_same_each_time_and_hex(told):
    account = told(proxy=False)
    first = spans_of(account)
    assert first == spans_of(account)
    (span, *_) = first["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert bytes.fromhex(span["traceId"])
    assert "parentSpanId" not in span


def test_only_the_proxys_request_is_a_trace_of_one_span(told):
    (root,) = spans(told(b"{}", inside=False))
    assert root.name == "POST /pay"
    assert facts(root.attributes)["error.type"] == "500"


def test_where_nothing_was_recorded_there_are_no_spans(told):
    with pytest.raises(UsageError, match="has no spans"):
        spans_of(told(inside=False, proxy=False))


def test_a_subprocess_and_a_file_are_spans_of_their_own_kind(tmp_path):
    incident = add_incident(tmp_path)
    events = Events()
    asked = {"argv": ["convert", "a.png"]}
    events.add(EventKind.SUBPROCESS, 5, ns=MS, asked=asked, answer={"status": 2})
    events.add(EventKind.FILE_READ, 6, asked={"path": "/etc/shop.conf"}, answer={"bytes": 3})
    keep_beside(tmp_path, incident.number, None, events.made)
    _, process, file = spans(account_of(Settings(home=tmp_path), incident))
    assert (process.kind, file.kind) == (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_INTERNAL)
    assert facts(process.attributes)["process.command_args"] == ["convert", "a.png"]
    assert facts(process.attributes)["process.exit.code"] == 2
    assert facts(file.attributes)["file.path"] == "/etc/shop.conf"
