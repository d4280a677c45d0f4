"""When two questions are the same: what is compared of them, and in which words it is said that they differ.

Compared of HTTP and S3 calls (``asked`` as ``http.py`` makes it):

    method, host, path   as they are; ``host`` with a port where that is not the usual one
    query:NAME           each parameter, whatever the order of names; several values of one name in their order; of S3 without
                         the signature of a presigned URL
    header:NAME          every header but those that ``http.py`` calls volatile
    body                 as JSON or as a form where its content type says so, of multipart without its boundary, else as it is
                         (always without gzip and deflate);
                         JSON and forms have paths, such as ``body:$.items[0].created_at``

Of Redis commands: all of ``asked``, the command's name in capitals. Of everything else: all of ``asked``. There fields have paths,
such as ``$.command[2]``.

What may differ is declared by the same names, with ``*`` for anything: ``header:x-*``, ``query:ts``, ``body:$.items[*].id``,
``$.command[2]``, or the name of a field of ``asked``. What is named is left out with all that lies beneath it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from relive.recording.events import EventKind

__all__ = [
    "PathStep",
    "boundary_of",
    "compared",
    "differences",
    "origin",
    "path_step",
    "path_steps",
    "takes_any_answer",
    "uncompressed",
]

_HTTP = frozenset((EventKind.HTTP_CALL, EventKind.S3_CALL))
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\['([^']*)'\]")
_PLAIN = re.compile(r"[^.\[\]'\s]+")
_BOUNDARY = re.compile(r';\s*boundary="?([^";,\s]+)"?', re.IGNORECASE)
# Of a presigned URL: what differs with each second, and who signed.
_SIGNED = frozenset(
    "x-amz-signature x-amz-date x-amz-credential x-amz-security-token signature expires awsaccesskeyid".split()
)
# Two questions each that differ in nothing but their subject.
_UNLIKE: tuple[tuple[EventKind, dict[str, Any], dict[str, Any]], ...] = (
    (EventKind.QUERY, {"statement": "a"}, {"statement": "b"}),
    (EventKind.REDIS_COMMAND, {"command": ["A"]}, {"command": ["B"]}),
    (EventKind.REDIS_COMMAND, {"commands": [["A"]]}, {"commands": [["B"]]}),
    (EventKind.HTTP_CALL, {"method": "A", "url": "http://h/"}, {"method": "B", "url": "http://h/"}),
    (EventKind.HTTP_CALL, {"method": "A", "url": "http://h/a"}, {"method": "A", "url": "http://h/b"}),
)
_LARGEST = 16 << 20  # [bytes] of a body that is compressed
_DEEPEST = 200  # JSON that is nested deeper is compared as text

# Ids that services take over from the request that they serve, the one that is the likeliest to be the client's first.
_ORIGINS = ("x-request-id", "x-correlation-id", "traceparent", "x-b3-traceid", "x-amzn-trace-id")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-")

PathStep = str | int | None  # a name, an index, or any index


def compared(kind: EventKind, asked: Mapping[str, Any], ignore: Collection[str] = ()) -> dict[str, Any]:
    """What is compared of a question, as JSON values."""
    parts = (
        _http(asked) if kind in _HTTP else dict(_redis(asked) if kind is EventKind.REDIS_COMMAND else asked)
    )
    if kind is EventKind.S3_CALL:
        parts["query"] = {
            name: value for name, value in parts["query"].items() if name.lower() not in _SIGNED
        }
    for name in ignore:
        parts = _without(parts, name, kind in _HTTP)
    return parts


def differences(
    kind: EventKind, one: Mapping[str, Any], other: Mapping[str, Any], most: int = 1 << 30
) -> tuple[str, ...]:
    """Names of what differs between two values of ``compared``, as they can be ignored; at most ``most`` of them."""
    found: list[str] = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if left == right and name in one and name in other:
            continue
        if kind not in _HTTP:
            _paths(left, right, "$" + path_step(name), found, most)
        elif name in ("query", "header") and isinstance(left, Mapping) and isinstance(right, Mapping):
            found += [
                f"{name}:{key}"
                for key in sorted(left.keys() | right.keys())
                if left.get(key) != right.get(key)
            ]
        elif name == "body" and isinstance(left, Mapping | list) and isinstance(right, Mapping | list):
            _paths(left, right, "body:$", found, most)
        else:
            found.append(name)
        if len(found) >= most:
            return tuple(found[:most])
    return tuple(found)


def origin(volatile: Mapping[str, str]) -> str | None:
    """What the headers of an HTTP call say of the request that it was made for; None where they say nothing.

    Of a trace its number: those of its parts are made up for each call.
    """
    for name in _ORIGINS:
        value = volatile.get(name)
        if value:
            trace = _TRACE.match(value) if name == "traceparent" else None
            return f"{name} {trace[1] if trace is not None else value}"
    return None


def takes_any_answer(name: str) -> bool:
    """With ``name`` left out, questions with nothing in common are the same: other statements, other commands, other resources."""
    return any(compared(kind, one, [name]) == compared(kind, other, [name]) for kind, one, other in _UNLIKE)


def boundary_of(content_type: str) -> str | None:
    """The boundary between the parts of a multipart body."""
    found = _BOUNDARY.search(content_type)
    return found[1] if found is not None and content_type.lower().lstrip().startswith("multipart/") else None


def uncompressed(body: bytes, encoding: str) -> bytes:
    """A body without gzip or deflate: the same content has other bytes in another second. As it is where that fails."""
    window = {"gzip": 31, "x-gzip": 31, "deflate": 15}.get(encoding.strip().lower())
    if window is None:
        return body
    unpacker = zlib.decompressobj(window)
    try:
        plain = unpacker.decompress(body, _LARGEST)
    except zlib.error:
        return body
    return plain if unpacker.eof else body


# -- what is compared -------------------------------------------------------------------------------------------------


def _http(asked: Mapping[str, Any]) -> dict[str, Any]:
    parts = urlsplit(str(asked.get("url", "")))
    headers = {str(name): value for name, value in dict(asked.get("headers") or {}).items()}
    content_type = str(headers.get("content-type", ""))
    boundary = boundary_of(content_type)
    if boundary is not None:
        headers["content-type"] = _BOUNDARY.sub("", content_type)
    return {
        "method": asked.get("method"),
        "host": parts.netloc.lower(),
        "path": parts.path or "/",
        "query": _pairs(parts.query),
        "header": headers,
        "body": _body(
            _readable(asked.get("body"), str(headers.get("content-encoding", ""))),
            content_type.lower(),
            boundary,
        ),
    }


def _readable(body: Any, encoding: str) -> Any:
    """A body that is kept as bytes because it is compressed, as text if it is one."""
    packed = body.get("$") if encoding and isinstance(body, Mapping) else None
    if not isinstance(packed, list) or len(packed) != 2 or packed[0] != "bytes":
        return body
    try:
        return uncompressed(base64.b64decode(packed[1]), encoding).decode("utf-8")
    except ValueError:
        return body


def _pairs(text: str) -> dict[str, list[str]]:
    pairs: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="surrogateescape"):
        pairs.setdefault(name, []).append(value)
    return pairs


def _body(body: Any, content_type: str, boundary: str | None) -> Any:
    if not isinstance(body, str) or not body:
        return body
    if boundary is not None:
        return body.replace(boundary, "boundary")
    if "json" in content_type:
        return _json(body)
    if "application/x-www-form-urlencoded" in content_type:
        return _pairs(body) or body
    return body


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    shallow = text.count("[") + text.count("{") <= _DEEPEST
    return value if shallow or _is_shallow(value, _DEEPEST) else text


def _is_shallow(value: Any, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_is_shallow(one, left - 1) for one in inner)


def _redis(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    changed = dict(asked)
    if "command" in asked:
        changed["command"] = _capitals(asked["command"])
    if isinstance(asked.get("commands"), list):
        changed["commands"] = [_capitals(one) for one in asked["commands"]]
    return changed


def _capitals(command: Any) -> Any:
    if isinstance(command, list) and command and isinstance(command[0], str):
        return [command[0].upper(), *command[1:]]
    return command


# -- what is left out -------------------------------------------------------------------------------------------------


def _without(parts: dict[str, Any], name: str, is_http: bool) -> dict[str, Any]:
    group, colon, key = name.partition(":")
    if is_http and colon and group in ("query", "header") and isinstance(parts.get(group), dict):
        low = key.lower() if group == "header" else key
        return {
            **parts,
            group: {one: value for one, value in parts[group].items() if not fnmatchcase(one, low)},
        }
    if is_http and colon and group == "body" and key != "$":
        steps = path_steps(key)
        return {**parts, "body": _pruned(parts["body"], steps)} if steps and "body" in parts else parts
    if is_http:
        name = {"headers": "header", "$.headers": "header"}.get(name, name)
        gone = {"body:$": ("body",), "url": ("host", "path", "query")}.get(name, (name,))
        return {one: value for one, value in parts.items() if one not in gone}
    steps = path_steps(name)
    if steps:
        pruned = _pruned(parts, steps)
        return pruned if isinstance(pruned, dict) else parts
    return {one: value for one, value in parts.items() if one != name}


def path_steps(path: str) -> list[PathStep]:
    """The steps of ``$.a[0]['b c']``; empty for what is no path."""
    if not path.startswith("$"):
        return []
    steps: list[PathStep] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return []
        at = found.end()
        if found[2] is not None:
            steps.append(None if found[2] == "*" else int(found[2]))
        else:
            steps.append(found[1] if found[1] is not None else found[3])
    return steps


def _pruned(value: Any, steps: list[PathStep]) -> Any:
    """The value without what lies at a path. An item of a list becomes None, so that those behind it keep their places."""
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if not isinstance(value, Mapping):
            return value
        kept = {}
        for name, inner in value.items():
            if not fnmatchcase(name, step):
                kept[name] = inner
            elif rest:
                kept[name] = _pruned(inner, rest)
        return kept
    if not isinstance(value, list):
        return value
    change: Callable[[Any], Any] = (lambda inner: _pruned(inner, rest)) if rest else lambda _inner: None
    return [change(inner) if step is None or step == at else inner for at, inner in enumerate(value)]


# -- what differs -----------------------------------------------------------------------------------------------------


def _paths(one: Any, other: Any, path: str, found: list[str], most: int) -> None:
    """Add the paths at which two JSON values differ."""
    if len(found) >= most or one == other:
        return
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted(one.keys() | other.keys()):
            if name in one and name in other:
                _paths(one[name], other[name], path + path_step(name), found, most)
            else:
                found.append(path + path_step(name))
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            _paths(left, right, f"{path}[{index}]", found, most)
    else:
        found.append(path)


def path_step(name: str) -> str:
    """``.name`` or ``['a name']``: one step of a path, as ``path_steps`` reads it."""
    return f".{name}" if _PLAIN.fullmatch(name) else f"['{name}']"
