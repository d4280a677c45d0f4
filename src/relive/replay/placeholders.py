"""Texts with placeholders in the place of secrets: what the recorder in a service has of a text, and gives back in a replay.

What left the service was recorded as it was, by the proxy, so the same answer has the secret in the recording and its placeholder
in the replay.
"""

from __future__ import annotations

import re

__all__ = ["begins_same_text", "has_placeholder", "is_same_text"]

_PLACEHOLDER = re.compile("<secret:[0-9a-f]{8}>")
_IN_BYTES = re.compile(_PLACEHOLDER.pattern.encode())
_LONGEST = 4096  # [characters] of a secret that is cut; keys and tokens are shorter
_ANCHOR = 64  # [characters] that are compared before many are


def has_placeholder(came: bytes) -> bool:
    """There is one in it."""
    return _IN_BYTES.search(came) is not None


def is_same_text(recorded: str, came: str) -> bool:
    """They are equal, but where a placeholder came: for each there must be one character or more.

    Never slow: the pieces between placeholders are looked for from left to right, each where it comes first.
    """
    begin, *pieces = _PLACEHOLDER.split(came)
    if not pieces:
        return recorded == came
    if not recorded.startswith(begin):
        return False
    at, end = len(begin), pieces.pop()
    for piece in pieces:
        found = recorded.find(piece, at + 1)
        if found < 0:
            return False
        at = found + len(piece)
    return recorded.endswith(end) and at < len(recorded) - len(end)


def begins_same_text(recorded: str, came: str) -> bool:
    """As ``is_same_text``, of a text of which only the beginning was recorded."""
    begin, *pieces = _PLACEHOLDER.split(came)
    if not pieces or len(recorded) <= len(begin):
        return begin.startswith(recorded)
    if not recorded.startswith(begin):
        return False
    at = len(begin)
    for piece in pieces:
        found = recorded.find(piece, at + 1)
        if found < 0:  # what was recorded may end within that secret, or within the piece behind it
            return _is_cut_in(recorded[at:], piece)
        at = found + len(piece)
    return at >= len(recorded) or recorded.endswith(pieces[-1])


def _is_cut_in(rest: str, piece: str) -> bool:
    """It may be a secret, or its beginning, and then a beginning of the piece; or nothing."""
    if not rest:
        return True
    for at in range(1, min(len(rest), _LONGEST) + 1):
        if rest.startswith(piece[: min(_ANCHOR, len(rest) - at)], at) and piece.startswith(rest[at:]):
            return True
    return False
