"""Values as PostgreSQL sends them, in its text and binary formats, as JSON values of the recorder's packed form.

The packed form is that of ``src/relive_inprocess/relive_recorder/values.py``: plain JSON, or ``{"$": [type, content]}``. A value is
the same in both formats as far as the text format can be read: what cannot be stays text. Of types that are not known here, text is
text, and the binary format is ``{"oid": OID, "base64": TEXT}``.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from relive.protocols.postgres.messages import text_of

__all__ = ["decode"]

_EPOCH = datetime(2000, 1, 1)
_DAY = date(2000, 1, 1).toordinal()
_FOREVER = (1 << 63) - 1
_INTERVAL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-])?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_SHORT_OFFSET = re.compile(r"([+-]\d\d)$")
_DEEPEST = 6  # dimensions of an array

# oid of an array: oid of its elements (pg_type.dat)
_ARRAYS = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1028: 26,
    1021: 700,
    1022: 701,
    1231: 1700,
    1009: 25,
    1015: 1043,
    1014: 1042,
    1003: 19,
    1182: 1082,
    1183: 1083,
    1115: 1114,
    1185: 1184,
    1187: 1186,
    2951: 2950,
    199: 114,
    3807: 3802,
}


def decode(oid: int, form: int, data: bytes | None) -> Any:
    """A value.

    Args:
        oid: of its type, 0 when that is not known.
        form: 0 for text, 1 for binary.
        data: None for NULL.
    """
    if data is None:
        return None
    try:
        if oid in _ARRAYS:
            return _array(_ARRAYS[oid], data) if form else _array_text(_ARRAYS[oid], text_of(data))
        if form:
            return _BINARY[oid](data)
        return _TEXT[oid](text_of(data)) if oid in _TEXT else text_of(data)
    except (ValueError, KeyError, IndexError, OverflowError, ArithmeticError, struct.error, RecursionError):
        return {"oid": oid, "base64": base64.b64encode(data).decode()} if form else text_of(data)


# -- how they are packed -----------------------------------------------------------------------------------------------


def _float(value: float) -> Any:
    return value if math.isfinite(value) else {"$": ["float", repr(value)]}


def _bytes(value: bytes) -> Any:
    try:
        return {"$": ["utf8", value.decode()]}
    except UnicodeDecodeError:
        return {"$": ["bytes", base64.b64encode(value).decode()]}


def _timestamp(value: datetime) -> Any:
    return {"$": ["datetime", value.isoformat(), 0]}


def _span(months: int, days: int, microseconds: int) -> Any:
    if months:  # no length of time: a month has no number of days
        return {"$": ["interval", [months, days, microseconds]]}
    span = timedelta(days=days, microseconds=microseconds)
    return {"$": ["timedelta", [span.days, span.seconds, span.microseconds]]}


# -- binary ------------------------------------------------------------------------------------------------------------


def _number(form: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(form, data)[0]


def _numeric(data: bytes) -> Any:
    """Int16 count, weight, sign, digits after the point, then base 10,000 digits (numeric_send)."""
    count, weight, sign, scale = struct.unpack_from("!hhHh", data)
    if sign in (0xC000, 0xD000, 0xF000):
        return {"$": ["decimal", {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign]]}
    digits = struct.unpack_from(f"!{count}h", data, 8)
    whole = 0
    for digit in digits:
        whole = whole * 10_000 + digit
    value = Decimal(whole).scaleb(4 * (weight - count + 1)) if abs(weight) < 5000 else None
    if value is None or count > 5000:
        raise ValueError("a number of more digits than are shown")
    text = f"{value:f}"
    before, _, after = text.partition(".")
    text = before + ("." + after[:scale].ljust(scale, "0") if scale else "")
    return {"$": ["decimal", ("-" if sign == 0x4000 else "") + text]}


def _date(data: bytes) -> Any:
    (days,) = struct.unpack("!i", data)
    return {"$": ["date", date.fromordinal(_DAY + days).isoformat()]}


def _time(data: bytes) -> Any:
    (microseconds,) = struct.unpack("!q", data)
    return {"$": ["time", (_EPOCH + timedelta(microseconds=microseconds)).time().isoformat(), 0]}


def _moment(data: bytes, zone: timezone | None = None) -> Any:
    (microseconds,) = struct.unpack("!q", data)
    if abs(microseconds) >= _FOREVER:
        return "infinity" if microseconds > 0 else "-infinity"
    return _timestamp((_EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=zone))


def _interval(data: bytes) -> Any:
    microseconds, days, months = struct.unpack("!qii", data)
    return _span(months, days, microseconds)


def _jsonb(data: bytes) -> str:
    if data[:1] != b"\1":
        raise ValueError("a version of jsonb that is not known")
    return text_of(data[1:])


def _array(oid: int, data: bytes) -> list[Any]:
    """Int32 dimensions, has NULLs, oid; for each dimension Int32 length, lower bound; elements (array_send)."""
    dimensions, _, oid = struct.unpack_from("!iiI", data)
    if not 0 <= dimensions <= _DEEPEST:
        raise ValueError("an array of too many dimensions")
    lengths = [struct.unpack_from("!ii", data, 12 + 8 * one)[0] for one in range(dimensions)]
    at = 12 + 8 * dimensions
    elements: list[Any] = []
    while at < len(data):
        (length,) = struct.unpack_from("!i", data, at)
        at += 4
        if length > len(data) - at:
            raise ValueError("an element that is longer than its array")
        elements.append(decode(oid, 1, None if length < 0 else data[at : at + length]))
        at += max(0, length)
    if dimensions and math.prod(lengths) != len(elements):
        raise ValueError("an array with other elements than it says")
    for length in reversed(lengths[1:]):
        elements = [elements[one : one + length] for one in range(0, len(elements), length)]
    return elements


# -- text --------------------------------------------------------------------------------------------------------------


def _bool_text(text: str) -> bool:
    return {"t": True, "true": True, "f": False, "false": False}[text.lower()]


def _bytes_text(text: str) -> Any:
    if not text.startswith("\\x"):
        raise ValueError("bytes that are not written in hexadecimal")
    return _bytes(bytes.fromhex(text[2:]))


def _moment_text(text: str) -> Any:
    value = datetime.fromisoformat(_SHORT_OFFSET.sub(r"\1:00", text) if len(text) > 10 else text)
    return _timestamp(value.astimezone(UTC) if value.tzinfo is not None else value)


def _interval_text(text: str) -> Any:
    """In the style "postgres", and as asyncpg and psycopg write it otherwise: left as text."""
    found = _INTERVAL.fullmatch(text)
    if found is None or not text:
        raise ValueError("another style")
    years, months, days, sign, hours, minutes, seconds, part = found.groups()
    microseconds = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    microseconds = microseconds * 1_000_000 + int((part or "").ljust(6, "0"))
    return _span(
        int(years or 0) * 12 + int(months or 0),
        int(days or 0),
        -microseconds if sign == "-" else microseconds,
    )


def _array_text(oid: int, text: str) -> list[Any]:
    r"""``{1,NULL,"a \"b\""}``, nested; with ``[lower:upper]=`` before it where bounds are unusual."""
    if text.startswith("["):
        text = text.partition("=")[2]
    found, at = _elements(oid, text, 0, 0)
    if at != len(text):
        raise ValueError("more than an array")
    return found


def _elements(oid: int, text: str, at: int, depth: int) -> tuple[list[Any], int]:
    if text[at] != "{" or depth == _DEEPEST:
        raise ValueError("no array")
    found: list[Any] = []
    at += 1
    while text[at] != "}":
        if text[at] == "{":
            inner, at = _elements(oid, text, at, depth + 1)
            found.append(inner)
        else:
            word, quoted, at = _word(text, at)
            is_null = not quoted and word.upper() == "NULL"
            found.append(None if is_null else decode(oid, 0, word.encode("utf-8", "surrogateescape")))
        if text[at] == ",":
            at += 1
    return found, at + 1


def _word(text: str, at: int) -> tuple[str, bool, int]:
    quoted = text[at] == '"'
    at += quoted
    letters: list[str] = []
    while text[at] != '"' if quoted else text[at] not in ",}":
        at += text[at] == "\\"
        letters.append(text[at])
        at += 1
    return "".join(letters), quoted, at + quoted


_BINARY: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: bool(struct.unpack("!?", data)[0]),
    17: _bytes,
    18: text_of,
    19: text_of,
    20: _number("!q"),
    21: _number("!h"),
    23: _number("!i"),
    25: text_of,
    26: _number("!I"),
    114: text_of,
    700: lambda data: _float(struct.unpack("!f", data)[0]),
    701: lambda data: _float(struct.unpack("!d", data)[0]),
    705: text_of,
    1042: text_of,
    1043: text_of,
    1082: _date,
    1083: _time,
    1114: _moment,
    1184: lambda data: _moment(data, UTC),
    1186: _interval,
    1700: _numeric,
    2278: text_of,
    2950: lambda data: {"$": ["uuid", str(uuid.UUID(bytes=data))]},
    3802: _jsonb,
}
_TEXT: dict[int, Callable[[str], Any]] = {
    16: _bool_text,
    17: _bytes_text,
    20: int,
    21: int,
    23: int,
    26: int,
    700: lambda text: _float(struct.unpack("!f", struct.pack("!f", float(text)))[0]),
    701: lambda text: _float(float(text)),
    1082: lambda text: {"$": ["date", date.fromisoformat(text).isoformat()]},
    1083: lambda text: {"$": ["time", time.fromisoformat(text).isoformat(), 0]},
    1114: _moment_text,
    1184: _moment_text,
    1186: _interval_text,
    1700: lambda text: {"$": ["decimal", str(Decimal(text)) if "e" in text.lower() else text]},
    2950: lambda text: {"$": ["uuid", str(uuid.UUID(text))]},
}
