"""Recorded values as short text for people.

Packed values are read as ``src/relive_inprocess/relive_recorder/values.py`` writes them; whatever else stands in their place is
shown as the JSON that it is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from relive.model.text import printable

__all__ = ["one_line", "shorten", "shown", "unpacked_text"]

_DEPTH = 8
_ITEMS = 24
_BYTES = 32
_DOTS = "…"


def shown(value: Any, limit: int = 80) -> str:
    """A packed value as Python writes it, in one line of at most ``limit`` characters; what was cut is marked."""
    return shorten(one_line(_text(value, _DEPTH)), limit)


def one_line(text: str) -> str:
    """The text with every run of white space as one blank and nothing in it that moves a cursor."""
    return printable(" ".join(text.split()))


def shorten(text: str, limit: int) -> str:
    """The text, or its beginning with an ellipsis, in ``limit`` characters."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + _DOTS


def unpacked_text(value: Any) -> str | None:
    """The text that a packed value is, or whose bytes it is; None if it is neither."""
    if isinstance(value, str):
        return value
    name, content = _tagged(value)
    if name == "bytes" and isinstance(content, str):
        try:
            return base64.b64decode(content, validate=True).decode("utf-8", "backslashreplace")
        except binascii.Error:
            return None
    return None


def _tagged(value: Any) -> tuple[str | None, Any]:
    """(name of the type, content) of ``{"$": [NAME, CONTENT]}``; (None, None) for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        tag = value.get("$")
        if isinstance(tag, list) and len(tag) >= 2 and isinstance(tag[0], str):
            return tag[0], tag[1] if tag[0] != "long" else tag[1:]
    return None, None


def _text(value: Any, depth: int) -> str:
    if depth == 0:
        return _DOTS
    name, content = _tagged(value)
    if name is not None:
        return _of_type(name, content, depth)
    if isinstance(value, list):
        return f"[{_joined(value, depth)}]"
    if isinstance(value, dict):
        return f"{{{_joined(value.items(), depth, pairs=True)}}}"
    return repr(value)


def _joined(items: Iterable[Any], depth: int, *, pairs: bool = False) -> str:
    parts = []
    for index, item in enumerate(items):
        if index == _ITEMS:
            parts.append(_DOTS)
            break
        if pairs and isinstance(item, list | tuple) and len(item) == 2:
            parts.append(f"{_text(item[0], depth - 1)}: {_text(item[1], depth - 1)}")
        else:
            parts.append(_text(item, depth - 1))
    return ", ".join(parts)


def _of_type(name: str, content: Any, depth: int) -> str:
    if name == "cut":
        return f"{_DOTS} {content} more" if isinstance(content, int) else _DOTS
    if name == "long" and len(content) > 1:
        return f"{_text(content[0], depth - 1)}{_DOTS} (of {content[1]} in all)"
    if name == "opaque":
        return f"<{content}>" if isinstance(content, str) else "<?>"
    if name == "bytes":
        return _bytes(content)
    if name == "utf8" and isinstance(content, str):
        return f"b{content!r}"
    if isinstance(content, list):
        if name == "tuple":
            return f"({_joined(content, depth)}{',' * (len(content) == 1)})"
        if name == "dict":
            return f"{{{_joined(content, depth, pairs=True)}}}"
        if name in ("set", "frozenset"):
            return f"{{{_joined(content, depth)}}}" if content else f"{name}()"
        return f"{name}({_joined(content, depth)})"
    if name in ("float", "datetime", "date", "time", "uuid", "path", "ipaddress") and isinstance(
        content, str
    ):
        return content
    return f"{name}({_text(content, depth - 1)})"


def _bytes(content: Any) -> str:
    try:
        raw = base64.b64decode(content, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return "bytes(?)"
    if len(raw) <= _BYTES:
        return repr(raw)
    return f"{raw[:_BYTES]!r}{_DOTS} ({len(raw)} bytes)"
