"""The HTTP part of an incident as HAR 1.2 (http://www.softwareishard.com/blog/har-12-spec/): the request that came in, as the
proxy or else the recorder saw it, and the calls the service made for it. What is not known stands as the format says: -1, or empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from relive import __version__
from relive.incidents.report.body import ReportBody
from relive.incidents.report.detail import Account
from relive.incidents.report.proxied import Proxied
from relive.incidents.report.shown import unpacked_text
from relive.incidents.report.timeline import Row, Timeline
from relive.recording.events import EventKind

__all__ = ["har_of"]

_CALLS = frozenset({EventKind.HTTP_CALL, EventKind.S3_CALL})
_UNKNOWN = -1

Headers = list[tuple[str, str]]


def har_of(account: Account) -> dict[str, Any]:
    """The log, entries in the order in which they began; without any where no HTTP was recorded."""
    entries = []
    timeline = account.timeline
    if account.proxied is not None:
        entries.append(_incoming(account.proxied))
    elif timeline is not None:
        entries += [_handled(account, timeline, row) for row in timeline.rows if _is_http_handling(row)]
    if timeline is not None:
        entries += [_outgoing(timeline, row) for row in timeline.rows if row.kind in _CALLS]
    entries.sort(key=lambda entry: str(entry["startedDateTime"]))
    return {
        "log": {
            "version": "1.2",
            "creator": {"name": "Relive", "version": __version__},
            "entries": entries,
            "comment": f"incident {account.incident.number} of {account.incident.service}",
        }
    }


def _is_http_handling(row: Row) -> bool:
    return row.kind is EventKind.HANDLING_STARTED and isinstance(row.details.get("method"), str)


# -- entries -------------------------------------------------------------------------------------------------------------


def _entry(
    began_wall_ns: int,
    request: dict[str, Any],
    response: dict[str, Any],
    *,
    wait: float,
    receive: float,
    comment: str,
) -> dict[str, Any]:
    """``wait`` and ``receive`` in milliseconds."""
    return {
        "startedDateTime": _moment(began_wall_ns),
        "time": wait + receive,
        "request": request,
        "response": response,
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": receive},
        "comment": comment,
    }


def _moment(wall_ns: int) -> str:
    seconds, rest = divmod(max(0, wall_ns), 1_000_000_000)
    try:
        return (
            datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // 1_000_000:03}Z"
        )
    except (OverflowError, ValueError, OSError):
        return "1970-01-01T00:00:00.000Z"


def _incoming(one: Proxied) -> dict[str, Any]:
    ended = one.ended_mono_ns if one.ended_mono_ns is not None else one.began_mono_ns
    answered = one.answered_mono_ns if one.answered_mono_ns is not None else ended
    host = dict(one.headers).get("host", "localhost")
    url = one.target if "://" in one.target else f"http://{host}{one.target}"
    request = _request(one.method, url, one.version, one.headers, one.body)
    response = _response(one.status, "", one.version, one.answer_headers, one.answer_body)
    if one.status is None:
        response["comment"] = f"no answer: {one.ended.value}"
    return _entry(
        one.began_wall_ns,
        request,
        response,
        wait=_milliseconds(answered - one.began_mono_ns),
        receive=_milliseconds(ended - answered),
        comment=f"request {one.number}, as the proxy recorded it",
    )


def _handled(account: Account, timeline: Timeline, row: Row) -> dict[str, Any]:
    details = row.details
    package = account.package.request if account.package is not None else None
    headers = _pairs(details.get("headers")) or (list(package.headers) if package is not None else [])
    body = _body(details.get("body"))
    if body.is_empty and package is not None and package.body is not None:
        body = ReportBody.of(package.body.encode("utf-8", "surrogatepass"), size=None)
    answer = details.get("answer")
    answer = answer if isinstance(answer, dict) else {}
    host = next((value for name, value in headers if name.lower() == "host"), "localhost")
    target = str(details.get("target", ""))
    url = target if "://" in target else f"http://{host}{target}"
    return _entry(
        timeline.began_wall_ns + row.at_ns,
        _request(str(details["method"]), url, "HTTP/1.1", headers, body),
        _response(
            answer.get("status"), "", "HTTP/1.1", _pairs(answer.get("headers")), _body(answer.get("body"))
        ),
        wait=_milliseconds(row.took_ns or 0),
        receive=0,
        comment="the request, as it was handled inside the service",
    )


def _outgoing(timeline: Timeline, row: Row) -> dict[str, Any]:
    asked, answer = _part(row.details, "asked"), _part(row.details, "answer")
    text = unpacked_text(asked.get("body"))
    sent = ReportBody.of(text.encode("utf-8", "surrogatepass")) if text is not None else ReportBody()
    headers = [*_pairs(asked.get("headers")), *_pairs(row.details.get("volatile"))]
    response = _response(
        answer.get("status"),
        answer.get("reason"),
        "HTTP/1.1",
        _pairs(answer.get("headers")),
        _body(row.details.get("body")),
    )
    if "error" in row.details:
        response["comment"] = response["_error"] = row.result
    return _entry(
        timeline.began_wall_ns + row.at_ns,
        _request(str(asked.get("method") or "GET"), str(asked.get("url") or ""), "HTTP/1.1", headers, sent),
        response,
        wait=_milliseconds(row.took_ns or 0),
        receive=0,
        comment="a call that the service made",
    )


def _milliseconds(nanoseconds: int) -> float:
    return max(0, nanoseconds) / 1e6


# -- their parts ---------------------------------------------------------------------------------------------------------


def _request(method: str, url: str, version: str, headers: Headers, body: ReportBody) -> dict[str, Any]:
    found: dict[str, Any] = {
        "method": method,
        "url": url,
        "httpVersion": version,
        "cookies": _cookies(headers, "cookie"),
        "headers": _named(headers),
        "queryString": _named(_query(url)),
        "headersSize": _UNKNOWN,
        "bodySize": body.size,
    }
    if not body.is_empty:
        found["postData"] = {"mimeType": _content_type(headers), "params": [], "text": body.words()}
    return found


def _response(status: Any, reason: Any, version: str, headers: Headers, body: ReportBody) -> dict[str, Any]:
    content: dict[str, Any] = {"size": body.size, "mimeType": _content_type(headers)}
    if body.text is not None and not body.is_empty:
        content["text"] = body.text
    elif body.base64 is not None:
        content |= {"text": body.base64, "encoding": "base64"}
    if body.cut:
        where = f", the rest in {body.file}" if body.file else ""
        content["comment"] = f"{body.cut} bytes were cut{where}"
    return {
        "status": status if isinstance(status, int) else 0,
        "statusText": reason if isinstance(reason, str) else "",
        "httpVersion": version,
        "cookies": _cookies(headers, "set-cookie"),
        "headers": _named(headers),
        "content": content,
        "redirectURL": next((value for name, value in headers if name.lower() == "location"), ""),
        "headersSize": _UNKNOWN,
        "bodySize": body.size,
    }


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _pairs(headers: Any) -> Headers:
    """Headers as pairs, whether they were kept as pairs or by name."""
    items: Iterable[Any] = (
        headers.items() if isinstance(headers, dict) else headers if isinstance(headers, list) else ()
    )
    return [(str(one[0]), str(one[1])) for one in items if isinstance(one, list | tuple) and len(one) == 2]


def _body(value: Any) -> ReportBody:
    return ReportBody.model_validate(value) if isinstance(value, dict) else ReportBody()


def _named(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _query(url: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query, keep_blank_values=True)
    except ValueError:
        return []


def _content_type(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "content-type"), "")


def _cookies(headers: Headers, header: str) -> list[dict[str, str]]:
    return [cookie for name, value in headers if name.lower() == header for cookie in _cookies_of(value)]


def _cookies_of(value: str) -> Iterator[dict[str, str]]:
    try:
        parsed: SimpleCookie = SimpleCookie(value)
    except CookieError:
        return
    for name, morsel in parsed.items():
        yield {"name": name, "value": morsel.value}
