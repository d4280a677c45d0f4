"""What Redis is asked, as the event ``redis-command`` has it: ``asked``; see ``redis``."""

import json
import sys
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder import bodies
from relive_recorder.kinds.redis_names import secret_words
from relive_recorder.recorder import encode, recorder
from relive_recorder.values import pack

__all__ = ["asked_again", "asked_command", "asked_commands", "asked_of", "asked_quickly", "is_transaction"]

_WITH_SECRETS = ("AUTH", "HELLO", "CONFIG", "ACL", "MIGRATE")
_without_secret_arguments = {""}  # names of commands that were looked at


def asked_of(client: Any) -> Dict[str, Any]:
    """Server and database."""
    pool = client.connection_pool
    where = getattr(pool, "_relive_where", None)
    if where is None:
        given = pool.connection_kwargs
        path = given.get("path")
        server = str(path) if path else f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
        asked = {"server": server, "database": given.get("db") or 0}
        where = pool._relive_where = (*asked.values(), encode(asked)[:-1] + ',"command":')
        if isinstance(given.get("password"), str):
            recorder.scrubber.learn(given["password"])
    return {"server": where[0], "database": where[1]}


def asked_command(client: Any, command: Any) -> Dict[str, Any]:
    """``asked`` of one command, a sequence as redis-py has it."""
    asked = asked_of(client)
    asked["command"] = _encoded_command(command)
    return asked


def asked_quickly(client: Any, command: Any) -> Optional[bytes]:
    """As ``asked_command``, made and understood by the writer in C, see ``query.asked_quickly``."""
    quick = recorder.quick
    where = getattr(client.connection_pool, "_relive_where", None)
    if quick is None or where is None or not command or type(command[0]) is not str:
        return None
    name = command[0]
    if name not in _without_secret_arguments:
        if name.upper().startswith(_WITH_SECRETS):
            return None
        if len(_without_secret_arguments) < 1000 and len(name) < 100:
            _without_secret_arguments.add(name)
    asked: Optional[bytes] = quick.asked(where[2], "", command)
    return asked


def asked_again(asked: bytes) -> Tuple[Dict[str, Any], int]:
    """(what was asked, when) of what ``asked_quickly`` gave."""
    return json.loads(asked[8:]), int.from_bytes(asked[:8], sys.byteorder)


def asked_commands(client: Any, commands: Any) -> Dict[str, Any]:
    """``asked`` of a pipeline with these commands."""
    asked = asked_of(client)
    asked["commands"] = [_encoded_command(one) for one in commands]
    asked["transaction"] = is_transaction(client)
    return asked


def is_transaction(pipeline: Any) -> bool:
    """Whether a pipeline is sent as MULTI ... EXEC; redis-py's versions differ in how they tell."""
    if getattr(pipeline, "explicit_transaction", False):
        return True
    return bool(pipeline.is_transaction if hasattr(pipeline, "is_transaction") else pipeline.transaction)


def _encoded_command(command: Any) -> List[Any]:
    encoded = [_encoded_argument(one) for one in command]
    for at in secret_words(command, recorder.scrubber.is_secret_name):
        encoded[at] = recorder.scrubber.secret(encoded[at], 6)
    name = command[0]
    name = name.decode("latin-1").upper() if type(name) is bytes else str(name).upper()
    if name.startswith(_WITH_SECRETS):
        return _without_secrets(name, encoded)
    return encoded


def _encoded_argument(value: Any) -> Any:
    kind = type(value)
    if kind is str and len(value) <= recorder.options.inline_bytes:
        return recorder.scrubber.often(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is str:
        return bodies.describe(value.encode("utf-8", "surrogatepass"))
    if kind in (bytes, bytearray, memoryview) and len(value) > recorder.options.inline_bytes:
        return bodies.describe(bytes(value))
    return recorder.scrubber.packed(pack(value))


def _without_secrets(name: str, encoded: List[Any]) -> List[Any]:
    """All arguments of AUTH are secrets; in the others what follows a word that says so, and a rule ``>PASSWORD``."""
    result = encoded[:1]
    for before, value in zip(encoded, encoded[1:]):
        result.append(_without_secret(name, result, before, value))
    return result


def _without_secret(name: str, earlier: List[Any], before: Any, value: Any) -> Any:
    if type(value) is not str:
        return value
    word = before.upper() if type(before) is str else ""
    if name.startswith("ACL") and value[:1] in (">", "<", "#", "!"):
        return value[:1] + recorder.scrubber.learn(value[1:])
    after_user = name.startswith("HELLO") and len(earlier) >= 2 and str(earlier[-2]).upper() == "AUTH"
    if name == "AUTH" or after_user or word in ("AUTH", "AUTH2", "REQUIREPASS", "MASTERAUTH"):
        return recorder.scrubber.learn(value)
    return value
