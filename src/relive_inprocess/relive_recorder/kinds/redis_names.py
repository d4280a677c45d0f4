"""Which words and answers of Redis are secret by the names of keys and fields: ``GET user:1:password``, ``HGET user:1 token``."""

from typing import Any, Callable, List, Sequence

__all__ = ["is_telling", "secret_words", "without_secrets"]

_SHORTEST = 6  # [characters] shorter values are flags, counts, states
_PAIRS_FROM = {"MSET": 1, "MSETNX": 1, "HSET": 2, "HMSET": 2, "HSETNX": 2}
_VALUE_AT = {"SET": 2, "SETEX": 3, "PSETEX": 3, "SETRANGE": 3, "HINCRBY": 9, "EXPIRE": 9, "PEXPIRE": 9}
_FIELDS_FROM = {"HGET": 2, "HMGET": 2, "HGETDEL": 2, "HGETEX": 2, "MGET": 1}
_READ_WHOLE = frozenset(
    (
        "GET",
        "GETSET",
        "GETDEL",
        "GETEX",
        "GETRANGE",
        "LRANGE",
        "LINDEX",
        "LPOP",
        "RPOP",
        "SMEMBERS",
        "SPOP",
        "HVALS",
    )
)
_MORE_WRITES = frozenset(("GETSET", "SETNX", "APPEND", "LPUSH", "RPUSH", "LPUSHX", "RPUSHX", "SADD", "LSET"))

IsSecret = Callable[[str], bool]


def _text(word: Any) -> str:
    return word if type(word) is str else word.decode("utf-8", "replace") if type(word) is bytes else ""


def is_telling(command: Sequence[Any], is_secret: IsSecret) -> bool:
    """A word behind the command's name is, or has in it, the name of a secret."""
    return any(
        is_secret(_text(word)) for word in command[1:] if type(word) in (str, bytes) and len(word) < 1000
    )


def secret_words(command: Sequence[Any], is_secret: IsSecret) -> List[int]:
    """Places of the words that are secret, by the key or field that they are a value of."""
    name = _text(command[0]).upper()
    key = is_secret(_text(command[1])) if len(command) > 1 else False
    begin = _PAIRS_FROM.get(name)
    if begin is not None:
        whole = key and begin == 2
        return [at + 1 for at in range(begin, len(command) - 1, 2) if whole or is_secret(_text(command[at]))]
    if not key:
        return []
    if name in _VALUE_AT:
        return [_VALUE_AT[name]] if _VALUE_AT[name] < len(command) else []
    return list(range(2, len(command))) if name in _MORE_WRITES else []


def without_secrets(
    command: Sequence[Any], said: Any, is_secret: IsSecret, secret: Callable[[Any, int], Any]
) -> Any:
    """An answer, packed, with ``secret`` of what is one by the command's key or fields in its place."""
    name = _text(command[0]).upper()
    if len(command) < 2:
        return said
    if name == "HGETALL":
        return _by_fields(said, is_secret(_text(command[1])), is_secret, secret)
    if is_secret(_text(command[1])) and (name in _READ_WHOLE or name in ("HGET", "HMGET")):
        return secret(said, _SHORTEST)
    begin = _FIELDS_FROM.get(name)
    if begin is None:
        return said
    fields = [is_secret(_text(word)) for word in command[begin:]]
    if type(said) is list:
        return [secret(one, _SHORTEST) if encoded else one for one, encoded in zip(said, fields)] + said[
            len(fields) :
        ]
    return secret(said, _SHORTEST) if any(fields) else said


def _by_fields(said: Any, whole: bool, is_secret: IsSecret, secret: Callable[[Any, int], Any]) -> Any:
    """Fields and values in turns, or a packed dict."""
    if type(said) is list:
        return [
            secret(one, _SHORTEST) if at % 2 and (whole or is_secret(_plain(said[at - 1]))) else one
            for at, one in enumerate(said)
        ]
    if type(said) is dict and type(said.get("$")) is list and said["$"][0] == "dict":
        pairs = [
            [name, secret(value, _SHORTEST) if whole or is_secret(_plain(name)) else value]
            for name, value in said["$"][1]
        ]
        return {"$": ["dict", pairs]}
    return said


def _plain(packed: Any) -> str:
    """A text, also where it is packed bytes."""
    if type(packed) is dict and type(packed.get("$")) is list and packed["$"][0] == "utf8":
        return str(packed["$"][1])
    return packed if type(packed) is str else ""
