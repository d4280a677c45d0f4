"""The cause of a failed request as it is seen from outside: what its answer says without its values, and the stacks in the log.

It tells failures of the same route apart where nobody inside the service does. Whatever clients send and the service prints, the
number of causes is bounded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import structlog

from relive.agent.failures.bounded_words import BoundedWords
from relive.errors import RecordingError
from relive.kernel.plainfile import open_plain
from relive.model.outcome import Stack
from relive.model.stack import find_stack, find_stacks
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording

__all__ = ["Cause", "CauseTable", "answer_shape", "stack_key"]

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
        self._bodies: dict[str, BoundedWords] = {}
        self._stacks: dict[str, BoundedWords] = {}

    def fingerprint(self, base: str, cause: Cause, known: Collection[str]) -> str:
        """What stands for failures of this cause.

        All stacks in the log count, since any of them may be harmless, and which is not told. They may also be of another request
        that fails meanwhile: then those count that are known of this route.

        Args:
            base: kind, status and route.
            known: fingerprints that there are incidents of.
        """
        if cause.shape and self._bodies.setdefault(base, BoundedWords(_BODIES)).keeps(cause.shape):
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
        if not last:
            return base
        if told in known or self._stacks.setdefault(base, BoundedWords(_STACKS)).keeps(told):
            return told
        return base
