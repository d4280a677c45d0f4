"""Python values as JSON that can be read back: what parameters, rows and answers are kept as.

``None``, booleans, integers, finite floats and text stand for themselves, lists for lists. Everything else is an object
with the one key ``"$"``: a list of a type's name and its content:

===============================  ================================================================================
``{"$": ["utf8", TEXT]}``        bytes that are UTF-8, as that text: it can be read, and searched for secrets
``{"$": ["bytes", TEXT]}``       other bytes as base64; ``bytearray`` and ``memoryview`` come back as bytes
``{"$": ["tuple", [..]]}``       also ``set`` and ``frozenset`` (sorted by their JSON, so that equal sets are equal)
``{"$": ["dict", [[k, v], ..]]}``  a mapping in its order
``{"$": ["float", TEXT]}``       nan, inf, -inf
``{"$": ["int", TEXT]}``         an integer of more than 63 bits, in hexadecimal
``{"$": ["complex", [r, i]]}``
``{"$": ["decimal", TEXT]}``     also ``fraction``, ``uuid``, ``datetime``, ``date``, ``time``, ``timedelta`` (days, seconds,
                                 microseconds), ``ipaddress``, ``path``
``{"$": ["cut", N]}``            the rest of a container: so many items were left out
``{"$": ["long", BEGIN, N, CRC]}``  of a text or bytes of so many characters or bytes: the packed beginning, and the CRC-32 of
                                 all of it in UTF-8; it cannot be read back
``{"$": ["opaque", TYPE]}``      a value of a type that is not kept: only the type's name; it cannot be read back
===============================  ================================================================================

No user code runs: types are compared exactly, ``__repr__``, ``__str__``, ``__eq__`` of foreign types are never called.
Subclasses of the plain types (an ``IntEnum``, a named tuple) are kept as what they are a kind of.
"""

import binascii
import json
import math
import sys
from typing import Any, Callable, Dict, List

__all__ = ["NotKept", "pack", "to_json", "unpack"]

DEPTH = 12
ITEMS = 10_000
_LARGE = 1 << 63
_DATETIME = "datetime"


class NotKept(ValueError):
    """What was recorded is only the name of a type, or was cut."""


def to_json(value: Any) -> str:
    """One line of JSON for a packed value or a tree of plain dicts and lists."""
    return _encode(value)


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def pack(value: Any, depth: int = DEPTH) -> Any:
    """See the module. Containers deeper than ``depth`` become opaque; of more than 10,000 items the rest is cut."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:  # a recording holds no more than 64 bits
        return value if -_LARGE < value < _LARGE else {"$": ["int", hex(value)]}
    if kind is float:
        return value if math.isfinite(value) else {"$": ["float", float.__repr__(value)]}
    packer = _PACKERS.get(kind)
    if packer is not None:
        return packer(value, depth)
    for base, packer in _BASES:
        if isinstance(value, base):
            return packer(value, depth)
    for module, name, packer in _LATE:
        loaded = sys.modules.get(module)
        if loaded is not None and kind is getattr(loaded, name, None):
            return packer(value, depth)
    return _opaque(value, depth)


def _opaque(value: Any, _depth: int) -> Any:
    kind = type(value)
    return {"$": ["opaque", f"{kind.__module__}.{kind.__qualname__}"]}


def _items(values: Any, depth: int) -> List[Any]:
    packed = []
    for index, item in enumerate(values):
        if index == ITEMS:
            packed.append({"$": ["cut", len(values) - ITEMS]})
            break
        packed.append(pack(item, depth - 1))
    return packed


def _pack_list(value: Any, depth: int) -> Any:
    return _items(value, depth) if depth > 0 else _opaque(value, depth)


def _pack_tuple(value: Any, depth: int) -> Any:
    return {"$": ["tuple", _items(value, depth)]} if depth > 0 else _opaque(value, depth)


def _pack_dict(value: Any, depth: int) -> Any:
    if depth <= 0:
        return _opaque(value, depth)
    pairs: List[Any] = []
    for index, (key, item) in enumerate(dict.items(value)):
        if index == ITEMS:
            pairs.append({"$": ["cut", dict.__len__(value) - ITEMS]})
            break
        pairs.append([pack(key, depth - 1), pack(item, depth - 1)])
    return {"$": ["dict", pairs]}


def _pack_set(name: str) -> Callable[[Any, int], Any]:
    def packer(value: Any, depth: int) -> Any:
        if depth <= 0:
            return _opaque(value, depth)
        return {"$": [name, sorted(_items(value, depth), key=_encode)]}

    return packer


def _pack_bytes(value: Any, _depth: int) -> Any:
    try:
        return {"$": ["utf8", str(value, "utf-8")]}
    except (ValueError, TypeError):  # other bytes; a memoryview that is not of bytes
        pass
    return {"$": ["bytes", binascii.b2a_base64(bytes(value), newline=False).decode("ascii")]}


def _pack_complex(value: Any, _depth: int) -> Any:
    return {"$": ["complex", [pack(value.real), pack(value.imag)]]}


def _text(name: str, text: Callable[[Any], str] = str) -> Callable[[Any, int], Any]:
    return lambda value, _depth: {"$": [name, text(value)]}


def _pack_timedelta(value: Any, _depth: int) -> Any:
    return {"$": ["timedelta", [value.days, value.seconds, value.microseconds]]}


def _pack_aware(name: str) -> Callable[[Any, int], Any]:
    """A date or time; its time zone only as an offset, and only where that is asked of one of Python's own."""

    def packer(value: Any, depth: int) -> Any:
        zone = value.tzinfo
        if zone is not None and type(zone).__module__ not in ("datetime", "zoneinfo"):
            return _opaque(value, depth)
        return {"$": [name, value.isoformat(), value.fold]}

    return packer


_PACKERS: Dict[type, Callable[[Any, int], Any]] = {
    list: _pack_list,
    tuple: _pack_tuple,
    dict: _pack_dict,
    set: _pack_set("set"),
    frozenset: _pack_set("frozenset"),
    bytes: _pack_bytes,
    bytearray: _pack_bytes,
    memoryview: _pack_bytes,
    complex: _pack_complex,
}
# Subclasses: what they are a kind of, read with the base's own methods.
_BASES = (
    (bool, lambda value, _depth: bool(value)),
    (int, lambda value, _depth: pack(int.__int__(value))),
    (float, lambda value, _depth: pack(float.__float__(value))),
    (str, lambda value, _depth: str.__str__(value)),
    (bytes, _pack_bytes),
    (tuple, lambda value, depth: _pack_tuple(tuple(tuple.__iter__(value)), depth)),
    (list, lambda value, depth: _pack_list(list(list.__iter__(value)), depth)),
    (dict, _pack_dict),
)
# Types of modules that are only looked at when somebody else has imported them: importing them costs start-up time.
_LATE = (
    ("decimal", "Decimal", _text("decimal")),
    ("uuid", "UUID", _text("uuid")),
    (_DATETIME, _DATETIME, _pack_aware(_DATETIME)),
    (_DATETIME, "date", _text("date")),
    (_DATETIME, "time", _pack_aware("time")),
    (_DATETIME, "timedelta", _pack_timedelta),
    ("fractions", "Fraction", _text("fraction")),
    ("ipaddress", "IPv4Address", _text("ipaddress")),
    ("ipaddress", "IPv6Address", _text("ipaddress")),
    ("pathlib", "PosixPath", _text("path")),
)


def unpack(packed: Any) -> Any:
    """The value that was packed.

    Raises:
        NotKept: it, or something in it, was not kept, or is of a kind this version does not know.
    """
    if isinstance(packed, list):
        return [unpack(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    try:
        name, content = packed["$"][:2]
        return _UNPACKERS[name](content, packed["$"])
    except NotKept:
        raise
    except Exception as fault:  # what is read may have been written by anybody
        raise NotKept(f"not a packed value: {_encode(packed)[:80]}") from fault


def _unpack_pairs(content: Any, _all: Any) -> Any:
    return {unpack(key): unpack(item) for key, item in content}


def _unpack_datetime(name: str) -> Callable[[Any, Any], Any]:
    def unpacker(content: Any, whole: Any) -> Any:
        import datetime

        value = getattr(datetime, name).fromisoformat(content)
        return value.replace(fold=whole[2]) if len(whole) > 2 else value

    return unpacker


def _imported(module: str, name: str, splat: bool = False) -> Callable[[Any, Any], Any]:
    def unpacker(content: Any, _all: Any) -> Any:
        kind = getattr(__import__(module), name)
        return kind(*content) if splat else kind(content)

    return unpacker


_UNPACKERS: Dict[str, Callable[[Any, Any], Any]] = {
    "utf8": lambda content, _all: content.encode("utf-8"),
    "bytes": lambda content, _all: binascii.a2b_base64(content),
    "tuple": lambda content, _all: tuple(unpack(item) for item in content),
    "set": lambda content, _all: {unpack(item) for item in content},
    "frozenset": lambda content, _all: frozenset(unpack(item) for item in content),
    "dict": _unpack_pairs,
    "int": lambda content, _all: int(content, 16),
    "float": lambda content, _all: float(content),
    "complex": lambda content, _all: complex(unpack(content[0]), unpack(content[1])),
    "decimal": _imported("decimal", "Decimal"),
    "fraction": _imported("fractions", "Fraction"),
    "uuid": _imported("uuid", "UUID"),
    "ipaddress": _imported("ipaddress", "ip_address"),
    "path": _imported("pathlib", "PosixPath"),
    "timedelta": _imported(_DATETIME, "timedelta", splat=True),
    _DATETIME: _unpack_datetime(_DATETIME),
    "date": _unpack_datetime("date"),
    "time": _unpack_datetime("time"),
}
