"""The route of a request: its method and path, with ``*`` for the parts that are values.

A part is one if it looks so (a number, an id with digits, hexadecimal, an escape), or if many words were seen in its place. A path
of gRPC (``/package.Service/Method``) has none that look so. Whatever clients send, the number of routes is bounded.
"""

from __future__ import annotations

import re
from collections import Counter

from relive.agent.failures.bounded_words import BoundedWords

__all__ = ["RouteTable"]

_VALUE = "*"
_FIRST_WORDS = 32  # words of the first part of a path that are kept apart
_WORDS = 4  # of another part
_METHODS = 16  # of HTTP that are kept apart
_RPC_METHODS = 64  # of a gRPC service that are kept apart
_PLACES = 2048  # in which words are learned, of all routes
_PLACES_OF_FIRST = 128  # of routes with the same first part: those of others stay what they are
_PARTS = 12  # of a path that are looked at
_LONG_PART = 32  # [characters] a longer one is no name
_NAMED = re.compile(r"[A-Za-z][A-Za-z_.-]*\d{0,2}")  # may have a digit or two in its name: v1, oauth2, s3
_VERSION = re.compile(r"v\d+(?:\.\d+)*")
_RPC = re.compile(r"/(?:[A-Za-z_]\w*\.)+[A-Z]\w*/[A-Z]\w*")
_RPC_MOST = 256  # [characters] of a path of gRPC
_HEX = re.compile(r"[0-9a-fA-F]{8,}")

_Place = tuple[str, tuple[str, ...], tuple[str, ...]]  # method, what stands before, what stands behind


class RouteTable:
    """The routes of one service, learned from requests that failed."""

    def __init__(self) -> None:
        self._words: dict[_Place, BoundedWords] = {}
        self._places_of_first: Counter[tuple[str, str]] = Counter()
        self._methods = BoundedWords(_METHODS)

    def route(self, method: str, target: str) -> str:
        """As ``GET /orders/*/items``; equal for the same request ever after, unless it was told by a word that others took."""
        method = method if self._methods.keeps(method) else _VALUE
        path = target.partition("?")[0]
        is_rpc = method == "POST" and len(path) <= _RPC_MOST and _RPC.fullmatch(path) is not None
        parts = path.split("/")
        if len(parts) > _PARTS:
            parts = [*parts[:_PARTS], _VALUE]
        begin = 1 if parts[0] == "" else 0
        for at in range(begin, len(parts)):
            if not is_rpc and _is_value(parts[at], is_first=at == begin and at + 1 < len(parts)):
                parts[at] = _VALUE
        for at in range(begin, len(parts)):
            if parts[at] == _VALUE:
                continue
            if at == begin:
                # What follows is anything, so it cannot tell places apart here.
                place: _Place = (method, (), ("",) if at + 1 < len(parts) else ())
                known: BoundedWords | None = self._words.setdefault(place, BoundedWords(_FIRST_WORDS))
            else:
                place = (method, tuple(parts[:at]), tuple(parts[at + 1 :]))
                known = self._known(place, parts[begin], _RPC_METHODS if is_rpc else _WORDS)
            if known is None or not known.keeps(parts[at]):
                parts[at] = _VALUE
        return f"{method} {'/'.join(parts)}".strip()

    def _known(self, place: _Place, first: str, most: int) -> BoundedWords | None:
        """The words of a place; None where there are too many places."""
        known = self._words.get(place)
        if known is not None:
            return known
        of_first = (place[0], first)
        if len(self._words) >= _PLACES or self._places_of_first[of_first] >= _PLACES_OF_FIRST:
            return None
        self._places_of_first[of_first] += 1
        return self._words.setdefault(place, BoundedWords(most))


def _is_value(part: str, *, is_first: bool) -> bool:
    if "%" in part or "@" in part or len(part) > _LONG_PART or _HEX.fullmatch(part):
        return True
    if not any(one.isdigit() for one in part) or _VERSION.fullmatch(part):
        return False
    return not (is_first and _NAMED.fullmatch(part))
