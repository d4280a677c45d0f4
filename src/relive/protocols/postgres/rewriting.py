"""A recorded answer of PostgreSQL with other rows, with an error, later, or none: in parts, as the session gives them."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relive.protocols.call import Call, CallEnd, Timed
from relive.protocols.postgres.answer_parts import Parts, TrailingMessages, body_of
from relive.protocols.postgres.framing import BackendFramer, Message
from relive.protocols.postgres.messages import Column, build, error, read_row, read_row_description, row
from relive.protocols.postgres.server_info import parts_of
from relive.protocols.postgres.statement_state import Role
from relive.protocols.postgres.values import decode

__all__ = ["Unwritable", "with_delay", "with_end", "with_error", "with_rows"]

_BYTEA, _JSON, _JSONB = 17, 114, 3802
_CODE = "XX000"  # internal_error


class Unwritable(ValueError):
    """A value that PostgreSQL's protocol cannot be made of; the message says why."""


def with_rows(call: Call, rows: Sequence[Sequence[Any]]) -> Call:
    """The call with other rows, of packed values, in its first result. Raises Unwritable."""
    parts = _parts(call)
    chunks = parts.answers.get(Role.EXECUTE, ())
    messages = BackendFramer().feed(body_of(chunks))
    columns = next(
        (read_row_description(one.body) for one in messages if one.kind == "T"), parts.columns or ()
    )
    if not columns or parts.failed is not None or parts.stops is not None:
        raise Unwritable("it had no rows, and what their columns would be is not known")
    first = next((at for at, one in enumerate(messages) if one.kind in "CIs"), len(messages))
    if any(one.kind == "T" for one in messages[first:]):
        raise Unwritable("it is the answer to several statements")
    made = _made(columns, rows, [one for one in messages[:first] if one.kind == "D"], call)
    said = [one for one in messages[:first] if one.kind != "D"]
    data = b"".join(build(one.kind, one.body) for one in said) + made
    data += b"".join(_counted(one, len(rows)) for one in messages[first:])
    answer = {**call.answer, "rows": [list(one) for one in rows], "rowcount": len(rows)}
    return _with_part(call, parts, data, answer)


def with_error(call: Call, text: str) -> Call:
    """The call answered with an ErrorResponse. Raises Unwritable."""
    parts = replace(_parts(call), failed=Role.EXECUTE, stops=None, tags=())
    answer = {"error": {"severity": "ERROR", "code": _CODE, "message": text}}
    return _with_part(call, parts, error(_CODE, text), answer)


def with_delay(call: Call, after_ns: int) -> Call:
    """The call answered so long after it was asked. Raises Unwritable."""
    parts = _parts(call)
    answers = {
        role: tuple(Timed(0, one.data) for one in said[:1]) + said[1:] for role, said in parts.answers.items()
    }
    said = answers.get(Role.EXECUTE, ())
    if not said:
        raise Unwritable("it was not answered, so that nothing can come later")
    answers[Role.EXECUTE] = (Timed(after_ns, said[0].data), *said[1:])
    return replace(call, extra={**call.extra, "parts": replace(parts, answers=answers)})


def with_end(call: Call, end: CallEnd) -> Call:
    """The call without an answer: the connection ends so, or stays silent. Raises Unwritable."""
    parts = _parts(call)
    before = {role: said for role, said in parts.answers.items() if role < Role.EXECUTE}
    cut = replace(parts, answers=before, failed=None, stops=Role.EXECUTE, tags=(), trail=TrailingMessages())
    return replace(call, answer=None, end=end, end_after_ns=0, pieces=(), extra={**call.extra, "parts": cut})


def _parts(call: Call) -> Parts:
    parts = parts_of(call)
    if parts is None or parts.copied is not None or parts.cut:
        raise Unwritable("its answer was not kept whole, or is a copy")
    return parts


def _with_part(call: Call, parts: Parts, data: bytes, answer: Mapping[str, Any]) -> Call:
    wait = sum(one.after_ns for one in parts.answers.get(Role.EXECUTE, ()))
    answers = {**parts.answers, Role.EXECUTE: (Timed(wait, data),)}
    extra = {**call.extra, "parts": replace(parts, answers=answers)}
    return replace(call, answer=dict(answer), end=CallEnd.ANSWERED, end_after_ns=0, extra=extra)


def _counted(message: Message, count: int) -> bytes:
    """A tag ends with how many rows there were: ``SELECT 2``."""
    words = message.body.rstrip(b"\0").split(b" ")
    if message.kind == "C" and words[-1].isdigit():
        return build("C", b" ".join([*words[:-1], b"%d" % count]) + b"\0")
    return build(message.kind, message.body)


def _made(
    columns: Sequence[Column], rows: Sequence[Sequence[Any]], recorded: Sequence[Message], call: Call
) -> bytes:
    forms = _forms(columns, [read_row(one.body) for one in recorded], call)
    said = []
    for one in rows:
        if len(one) != len(columns):
            raise Unwritable(f"a row has {len(one)} values, and there are {len(columns)} columns")
        said.append(
            row([_encode(of.type, form, value) for of, form, value in zip(columns, forms, one, strict=True)])
        )
    return b"".join(said)


def _forms(columns: Sequence[Column], recorded: Sequence[Sequence[bytes | None]], call: Call) -> list[int]:
    """Of each column 0 (text) or 1 (binary): in which of the two the recorded rows read as they were told."""
    decoded = (call.answer or {}).get("rows") or []
    forms = []
    for at, column in enumerate(columns):
        both = [column.format, 1 - column.format]
        known = [
            (one[at], shown[at]) for one, shown in zip(recorded, decoded, strict=False) if one[at] is not None
        ]
        fits = [form for form in both if all(decode(column.type, form, raw) == value for raw, value in known)]
        forms.append(fits[0] if fits else column.format)
    return forms


def _encode(oid: int, form: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if form:
        return _binary(oid, value)
    return _text(oid, value).encode("utf-8", "surrogateescape")


def _text(oid: int, value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int | float | str):
        return str(value)
    tag = _tag(value)
    if tag is not None and isinstance(tag[1], str):
        kind, content = tag
        if oid == _BYTEA and kind in ("utf8", "bytes"):
            raw = content.encode() if kind == "utf8" else base64.b64decode(content)
            return "\\x" + raw.hex()
        if kind in ("utf8", "decimal", "uuid", "date", "time", "float", "ipaddress"):
            return str(content)
        if kind == "datetime":
            return str(content).replace("T", " ")
    if oid in (_JSON, _JSONB):
        return json.dumps(value)
    raise Unwritable(f"{json.dumps(value)[:80]} cannot be written as a value of type {oid}")


def _tag(value: Any) -> tuple[str, Any] | None:
    tag = value.get("$") if isinstance(value, dict) and len(value) == 1 else None
    return (str(tag[0]), tag[1]) if isinstance(tag, list) and len(tag) >= 2 else None


def _number(form: str) -> Callable[[Any], bytes]:
    return lambda value: struct.pack(form, value)


def _of_text(value: Any) -> bytes:
    return _text(0, value).encode("utf-8", "surrogateescape")


_BINARY: Mapping[int, Callable[[Any], bytes]] = {
    16: lambda value: b"\1" if value else b"\0",
    20: _number("!q"),
    21: _number("!h"),
    23: _number("!i"),
    26: _number("!I"),
    700: _number("!f"),
    701: _number("!d"),
    **dict.fromkeys((19, 25, 705, 1042, 1043), _of_text),
    _JSON: lambda value: (value if isinstance(value, str) else json.dumps(value)).encode(),
    _JSONB: lambda value: b"\1" + (value if isinstance(value, str) else json.dumps(value)).encode(),
    2950: lambda value: uuid.UUID(_text(0, value)).bytes,
}


def _binary(oid: int, value: Any) -> bytes:
    make = _BINARY.get(oid)
    try:
        if make is not None:
            return make(value)
    except (struct.error, ValueError, TypeError) as fault:
        raise Unwritable(f"{json.dumps(value)[:80]} is no value of type {oid}: {fault}") from fault
    raise Unwritable(f"type {oid} cannot be written in the binary format that was asked for")
