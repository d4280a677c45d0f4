r"""Text of the operating system: file names, arguments and variables, whose bytes need not be UTF-8.

In Python it is a str as ``os.fsdecode`` makes it (undecodable bytes as lone surrogates), in JSON, which cannot hold those,
such a byte is written ``\xNN`` and a backslash ``\\``.
"""

from __future__ import annotations

import os
import re
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, ValidationInfo

__all__ = ["STEERING", "NativeText", "escape", "is_number", "printable", "unescape"]

_SPECIAL = re.compile("[\\\\\udc80-\udcff]")
_ESCAPED = re.compile(r"\\(\\|x[89a-f][0-9a-f]|)")
# What begins a command to a terminal: controls of ASCII and of ISO 6429 (C1), such as ESC, CSI as one character, OSC; what turns
# the direction of text (Unicode TR9), separators of lines that only some programs heed, and bytes that are no text.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_DIGITS_MOST = 18
_BYTE_BASE = 0xDC00  # os.fsdecode turns the byte NN into the character U+DCNN


def escape(text: str) -> str:
    """The text as it is written into JSON; it can be printed, too."""
    return _SPECIAL.sub(lambda match: _escaped(match[0]), text)


def _escaped(char: str) -> str:
    return "\\\\" if char == "\\" else f"\\x{ord(char) - _BYTE_BASE:02x}"


def unescape(text: str) -> str:
    """The text that ``escape`` was given; raises ValueError for what ``escape`` does not write."""
    return _ESCAPED.sub(lambda match: _unescaped(match[1]), text)


def _unescaped(code: str) -> str:
    if code == "":
        raise ValueError(r"a backslash that is followed neither by another nor by a byte such as x80")
    return code if code == "\\" else chr(_BYTE_BASE + int(code[1:], 16))


def printable(text: str) -> str:
    """The text with what would steer a terminal, or turn its direction, written as an escape."""
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def _read(value: object, info: ValidationInfo) -> str:
    if isinstance(value, bytes):
        return os.fsdecode(value)  # what protobuf makes of a string that is no UTF-8
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    return unescape(value) if info.mode == "json" else value


NativeText = Annotated[str, PlainValidator(_read), PlainSerializer(escape, return_type=str, when_used="json")]
"""A field of such text. ``model_dump_json`` escapes it and ``model_validate_json`` takes that back."""


def is_number(text: str) -> bool:
    """Only the digits 0 to 9, and not so many that they cannot be meant: ``int`` takes them as they stand."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MOST
