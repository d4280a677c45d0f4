"""Which failures of requests count as one where nobody inside the service tells: by route, by the answer, by a printed stack.

Terms: the *route* is the method and the path, with ``*`` for parts that are values. A part is one if it looks so (a number, an id
with digits, hexadecimal, an escape), or if many words were seen in its place; a path of gRPC (``/package.Service/Method``) has
none that look so. The *cause* is what the answer's text says without its values, and the stacks that the service printed. All of
it is bounded, whatever clients send, so a service makes no more incidents than it has routes and causes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import structlog

from relive.errors import RecordingError
from relive.kernel.plainfile import open_plain
from relive.model.outcome import Stack
from relive.model.stack import find_stack, find_stacks
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording

__all__ = ["Cause", "CauseTable", "RouteTable", "answer_shape", "stack_key"]

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

_BODY_MOST = 16 << 10  # [bytes] of an answer that tells a cause; a longer one is a page
_BODIES = 8  # causes by answers alone that are kept apart, for each status and route
_STACKS = 32  # causes by stacks that are kept apart, for each status, route and answer
_STACKS_MOST = 4  # different ones that make a cause: the last
_WORD = re.compile(r"\w[\w.-]*")
_WORDS_MOST = 200  # of a body
_LONG_WORD = 24  # [characters] a longer one is a token, unless it is the name of a class
_CLASS = re.compile(r"(?:[^\W\d]\w*\.)+[^\W\d]\w*|\w*(?:error|exception)")
_CLASS_MOST = 200  # [characters]
_LOG_MOST = 128 << 10  # [bytes] of log since a request began
_FRAMES = 5  # innermost ones that tell a stack


_Place = tuple[str, tuple[str, ...], tuple[str, ...]]  # method, what stands before, what stands behind


class RouteTable:
    """The routes of one service, learned from requests that failed."""

    def __init__(self) -> None:
        self._words: dict[_Place, set[str]] = {}
        self._places_of_first: Counter[tuple[str, str]] = Counter()
        self._methods: set[str] = set()

    def route(self, method: str, target: str) -> str:
        """As ``GET /orders/*/items``; equal for the same request ever after, unless it was told by a word that others took."""
        method = _kept(self._methods, method, _METHODS)
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
                known: set[str] | None = self._words.setdefault(
                    (method, (), ("",) if at + 1 < len(parts) else ()), set()
                )
                most = _FIRST_WORDS
            else:
                known = self._known((method, tuple(parts[:at]), tuple(parts[at + 1 :])), parts[begin])
                most = _RPC_METHODS if is_rpc else _WORDS
            parts[at] = _kept(known, parts[at], most)
        return f"{method} {'/'.join(parts)}".strip()

    def _known(self, place: _Place, first: str) -> set[str] | None:
        """The words of a place; None where there are too many places."""
        known = self._words.get(place)
        if known is not None:
            return known
        of_first = (place[0], first)
        if len(self._words) >= _PLACES or self._places_of_first[of_first] >= _PLACES_OF_FIRST:
            return None
        self._places_of_first[of_first] += 1
        return self._words.setdefault(place, set())


def _kept(known: set[str] | None, word: str, most: int) -> str:
    """The word where it is, or may become, one of the known; else the sign of a value."""
    if known is None or (word not in known and len(known) >= most):
        return _VALUE
    known.add(word)
    return word


def _is_value(part: str, *, is_first: bool) -> bool:
    if "%" in part or "@" in part or len(part) > _LONG_PART or _HEX.fullmatch(part):
        return True
    if not any(one.isdigit() for one in part) or _VERSION.fullmatch(part):
        return False
    return not (is_first and _NAMED.fullmatch(part))


def answer_shape(body: bytes, request: bytes) -> str:
    """What an answer says without its values, as a short hash; empty where it says nothing that can be told so.

    Args:
        body: of the answer, whole.
        request: what the client had sent: its words in the answer are values.
    """
    if not body or len(body) > _BODY_MOST:
        return ""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return ""
    stack = find_stack(text.splitlines())
    if stack is not None:
        return stack_key(stack)
    sent = set(_words_of(unquote(request.decode(errors="replace"))))
    words = [one for one in _words_of(text) if one not in sent]
    named = [one for one in words if _is_name(one) and not any(char.isdigit() for char in one)]
    return _hashed(named[:_WORDS_MOST]) if named else ""


def _words_of(text: str) -> Iterator[str]:
    return (one.group().lower() for one in _WORD.finditer(text))


def _is_name(word: str) -> bool:
    return len(word) < _LONG_WORD or (
        len(word) <= _CLASS_MOST and _CLASS.fullmatch(word.rstrip(".")) is not None
    )


def stack_key(stack: Stack) -> str:
    """Equal for stacks of the same kind of error at the same place."""
    kind = stack.exception.partition(":")[0].strip()
    kind = kind if stack.frames else " ".join(_WORD.findall(kind))
    return _hashed([kind, *(f"{file}:{line}:{function}" for file, line, function in stack.frames[-_FRAMES:])])


def _hashed(words: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(words).encode(errors="replace"), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class Cause:
    """What is seen of one from outside.

    Attributes:
        shape: as ``answer_shape`` gives it.
        stacks: keys of those in the log since the request began.
        is_alone: no other request was seen to fail meanwhile: the stacks are its own.
    """

    shape: str = ""
    stacks: Sequence[str] = ()
    is_alone: bool = True

    @classmethod
    def look_up(cls, recording: Path, request: int, log: Path, *, is_alone: bool) -> Cause:
        """``of`` a recorded request. Never raises: a failure whose cause cannot be told is still one, and the log says why."""
        try:
            return cls.of(Exchanges(Recording(recording)).by_number(request), log, is_alone=is_alone)
        except RecordingError:  # it was not written yet, or not any more
            return cls(is_alone=is_alone)
        except Exception:  # what is read is anybody's text
            structlog.get_logger().exception("the cause of a failure cannot be told", request=request)
            return cls(is_alone=is_alone)

    @classmethod
    def of(cls, exchange: Exchange, log: Path, *, is_alone: bool) -> Cause:
        """Raises RecordingError."""
        shape = ""
        if not exchange.answer_cut:
            shape = answer_shape(exchange.answer_body(), exchange.target.encode() + exchange.request_body())
        begin = exchange.log_offsets_before.get(str(log))
        stacks = find_stacks(_read(log, begin)) if begin is not None else []
        return cls(shape, [stack_key(one) for one in stacks], is_alone)


def _read(log: Path, begin: int) -> list[str]:
    try:
        with open_plain(log) as file:
            file.seek(begin)
            return file.read(_LOG_MOST).lstrip(b"\0").decode(errors="replace").splitlines()
    except OSError:
        return []


class CauseTable:
    """Tells the causes apart of failures that are alike by status and route."""

    def __init__(self) -> None:
        self._bodies: dict[str, set[str]] = {}
        self._stacks: dict[str, set[str]] = {}

    def fingerprint(self, base: str, cause: Cause, known: Collection[str]) -> str:
        """What stands for failures of this cause.

        All stacks in the log count, since any of them may be harmless, and which is not told. They may also be of another request
        that fails meanwhile: then those count that are known of this route.

        Args:
            base: kind, status and route.
            known: fingerprints that there are incidents of.
        """
        if cause.shape and _kept(self._bodies.setdefault(base, set()), cause.shape, _BODIES) != _VALUE:
            base = f"{base} answer {cause.shape}"
        lead = f"{base} stack "
        if not cause.is_alone:
            seen = set(cause.stacks)
            fitting = [
                one for one in known if one.startswith(lead) and seen.issuperset(one[len(lead) :].split())
            ]
            return max(fitting, key=lambda one: (len(one), one), default=base)
        last = list(dict.fromkeys(reversed(cause.stacks)))[:_STACKS_MOST]
        told = f"{lead}{' '.join(sorted(last))}"
        if not last or (
            told not in known and _kept(self._stacks.setdefault(base, set()), told, _STACKS) == _VALUE
        ):
            return base
        return told
