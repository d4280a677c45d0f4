"""Single commands of Redis: their names, and how they and their answers are told. What they do to keys: ``effects``."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from relive_inprocess.relive_recorder.values import pack

__all__ = ["CONFIRMATIONS", "MESSAGES", "SUBSCRIBING", "encoded_answer", "encoded_command", "name_of"]

SUBSCRIBING = frozenset("SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE".split())
CONFIRMATIONS = frozenset(name.lower().encode() for name in SUBSCRIBING)
MESSAGES = frozenset((b"message", b"pmessage", b"smessage"))
_INLINE = 64 << 10  # [bytes] longer words and answers are told by their digest
_SECRET = "<secret>"
_WORD_BEFORE_SECRET = frozenset((b"AUTH2", b"REQUIREPASS", b"MASTERAUTH"))


def name_of(words: list[bytes]) -> str:
    """The command's name in capitals."""
    return words[0].decode("latin-1").upper()


def encoded_command(words: list[bytes]) -> list[Any]:
    """A command as the recorder in Python processes tells it: text where it is text; no secrets."""
    name = name_of(words)
    encoded: list[Any] = []
    for index, word in enumerate(words):
        encoded.append(_SECRET if index and _is_secret(name, words, index) else _encoded_word(word))
    return encoded


def encoded_answer(said: tuple[bytes, Any]) -> Any:
    """A value as redis-py's parser gives it, packed."""
    kind, content = said
    if kind in b"-!" and isinstance(content, bytes):
        text = content.decode("utf-8", "backslashreplace").removeprefix("ERR ")
        return {"error": {"type": "redis.exceptions.ResponseError", "args": pack((text,))}}
    if isinstance(content, list):
        encoded = [encoded_answer(one) for one in content]
        if kind == b"%":
            return {"$": ["dict", [list(pair) for pair in zip(encoded[::2], encoded[1::2], strict=True)]]}
        return encoded
    if not isinstance(content, bytes):
        return pack(content)
    if kind == b",":
        return pack(_double(content))
    if kind == b"(":
        return pack(int(content)) if len(content) <= 4000 else pack(content)
    if len(content) > _INLINE:
        return {"bytes": len(content), "blake2b": blake2b(content, digest_size=16).hexdigest()}
    return pack(content[4:] if kind == b"=" else content)


def _double(text: bytes) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _encoded_word(word: bytes) -> Any:
    if len(word) > _INLINE:
        return {"bytes": len(word), "blake2b": blake2b(word, digest_size=16).hexdigest()}
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        return pack(word)


def _is_secret(name: str, words: list[bytes], index: int) -> bool:
    if name == "AUTH":
        return True
    before = words[index - 1].upper()
    if name == "HELLO":
        return index >= 4 and words[index - 2].upper() == b"AUTH"
    if name == "ACL":
        return words[index][:1] in (b">", b"<", b"#", b"!")
    if name == "MIGRATE":
        return before in (b"AUTH", b"AUTH2") or (index > 1 and words[index - 2].upper() == b"AUTH2")
    return name == "CONFIG" and before in _WORD_BEFORE_SECRET
