"""What Redis says: heard as the connection's parser gives it, told as ``answer`` of the event, and said again in a replay.

See ``redis`` for the fields.
"""

import functools
import json
import sys
from contextvars import ContextVar
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from relive_recorder import bodies
from relive_recorder.calls import Channel, KeptAnswer, NoAnswer, describe_error
from relive_recorder.kinds.query import gather
from relive_recorder.kinds.redis_names import is_telling, without_secrets
from relive_recorder.recorder import recorder
from relive_recorder.values import NotKept, pack, to_json, unpack

__all__ = [
    "KIND",
    "AsyncVoice",
    "Played",
    "RedisCall",
    "Voice",
    "broken",
    "hearing",
    "hearing_async",
    "listener",
]

KIND = "redis-command"
_NOTHING_MORE: Dict[str, Any] = {}
_MOST = 10_000  # members of a dict that are kept; ``values`` cuts longer ones
# What the server says to the command that this context is about.
listener: "ContextVar[Optional[List[Any]]]" = ContextVar("relive_redis_heard", default=None)


class _Ear:
    """A connection that notes what it reads."""

    __slots__ = ("_connection", "_heard")

    def __init__(self, connection: Any, heard: List[Any]) -> None:
        self._connection = connection
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def read_response(self, *given: Any, **named: Any) -> Any:
        try:
            said = self._connection.read_response(*given, **named)
        except Exception as error:
            self._heard.append(error)
            raise
        self._heard.append(said)
        return said


class _AsyncEar(_Ear):
    __slots__ = ()

    async def read_response(self, *given: Any, **named: Any) -> Any:
        try:
            said = await self._connection.read_response(*given, **named)
        except Exception as error:
            self._heard.append(error)
            raise
        self._heard.append(said)
        return said


class Voice:
    """In the place of a connection in a replay: says what was heard."""

    def __init__(self, heard: List[Any]) -> None:
        self._heard = heard

    def pack_commands(self, commands: Any) -> Any:
        return commands

    def send_packed_command(self, *_given: Any, **_named: Any) -> None:
        pass

    def disconnect(self, *_given: Any, **_named: Any) -> None:
        pass

    def read_response(self, *_given: Any, **_named: Any) -> Any:
        said = self._heard.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said


class AsyncVoice(Voice):
    """The same, for redis.asyncio."""

    async def send_packed_command(self, *_given: Any, **_named: Any) -> None:  # type: ignore[override]
        pass

    async def disconnect(self, *_given: Any, **_named: Any) -> None:  # type: ignore[override]
        pass

    async def read_response(self, *_given: Any, **_named: Any) -> Any:
        return Voice.read_response(self)


def hearing(real: Callable[..., Any]) -> Callable[..., Any]:
    """``parse_response`` of a client, that tells ``listener`` what it reads."""

    @functools.wraps(real)
    def parse_response(self: Any, connection: Any, command_name: Any, **options: Any) -> Any:
        heard = listener.get()
        if heard is not None:
            connection = _Ear(connection, heard)
        return real(self, connection, command_name, **options)

    return parse_response


def hearing_async(real: Callable[..., Any]) -> Callable[..., Any]:
    """The same, for redis.asyncio."""

    @functools.wraps(real)
    async def parse_response(self: Any, connection: Any, command_name: Any, **options: Any) -> Any:
        heard = listener.get()
        if heard is not None:
            connection = _AsyncEar(connection, heard)
        return await real(self, connection, command_name, **options)

    return parse_response


class RedisCall(Channel):
    """One call. What ``rebuild`` gives is what was heard, wrapped in ``Played``; else the value is redis-py's own."""

    kind = KIND

    def __init__(self, last: int, commands: Sequence[Sequence[Any]] = ()) -> None:
        self.heard: List[Any] = []
        self.commands = commands  # those that the last answers are to
        self.last = last  # so many answers belong to the call; those before are of attempts that failed

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        if self.last == 1 and self.heard:
            said = self.heard[-1]
            if said is None or type(said) is int:
                return said, b"", _NOTHING_MORE
        heard = self.heard[-self.last :]
        texts: List[str] = []
        said, size = _pack_reply(heard[0] if self.last == 1 and heard else heard, texts)
        said = self._without_named(said)
        if texts and not recorder.scrubber.is_clean(texts):
            said = recorder.scrubber.packed(said)
        if size <= recorder.options.inline_bytes:
            return said, b"", {}
        about, data = bodies.for_event(to_json(said).encode("utf-8", "surrogatepass"))
        return None, data, {**about, "answer_in_data": True}

    def _without_named(self, said: Any) -> Any:
        """An answer without what is secret by its command's key or fields."""
        scrubber = recorder.scrubber
        for number, command in enumerate(self.commands):
            if not is_telling(command, scrubber.is_secret_name):
                continue
            if self.last == 1:
                return without_secrets(command, said, scrubber.is_secret_name, scrubber.secret)
            # In a transaction what was said to EXEC, which is the last.
            answers = said[-1] if len(self.commands) < self.last and said and type(said[-1]) is list else said
            if number < len(answers):
                answers[number] = without_secrets(
                    command, answers[number], scrubber.is_secret_name, scrubber.secret
                )
        return said

    def find(self, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
        try:
            return super().find(asked)
        except NoAnswer as miss:
            raise broken(str(miss)) from miss

    def rebuild(self, kept: KeptAnswer) -> Any:
        try:
            said = kept.fields["answer"]
            if kept.fields.get("answer_in_data"):
                if kept.fields.get("cut"):
                    raise NotKept(f"{kept.fields['cut']} bytes of it were cut")
                said = json.loads(kept.data.decode("utf-8", "surrogatepass"))
            return Played(_said_again(said))
        except NotKept as missing:
            raise broken(f"the recording does not hold this answer: {missing}") from missing


class Played:
    """What was heard when it was recorded, in the place of a value: ``Voice`` says it."""

    __slots__ = ("said",)

    def __init__(self, said: Any) -> None:
        self.said = said


def broken(text: str) -> BaseException:
    """redis-py's own error for a connection that broke: what a miss is for the service."""
    return sys.modules["redis.exceptions"].ConnectionError(text)  # type: ignore[no-any-return]


def _pack_reply(said: Any, texts: List[str]) -> Tuple[Any, int]:
    """(packed, about how long its JSON is); the texts in it are added to ``texts``."""
    kind = type(said)
    if said is None or kind is int or kind is bool:
        return said, 8
    if (kind is str or kind is bytes) and len(said) > recorder.options.body_bytes:
        return {"$": ["cut", len(said)]}, 32
    if kind is bytes:
        encoded = pack(said)
        texts.append(encoded["$"][1])
        return encoded, len(texts[-1]) + 20
    if kind is str:
        texts.append(said)
        return said, len(said) + 3
    if kind is list:
        packed = [_pack_reply(one, texts) for one in said]
        return [one[0] for one in packed], sum([one[1] for one in packed], 3)
    if kind is dict and len(said) <= _MOST:
        items = [(_pack_reply(key, texts), _pack_reply(value, texts)) for key, value in said.items()]
        size = sum([key[1] + value[1] for key, value in items], 16)
        return {"$": ["dict", [[key[0], value[0]] for key, value in items]]}, size
    if isinstance(said, Exception):
        return {"error": describe_error(said)}, 200
    encoded = pack(said)
    return encoded, gather(encoded, texts)


def _said_again(encoded: Any) -> Any:
    if type(encoded) is list:
        return [_said_again(one) for one in encoded]
    if type(encoded) is dict and "error" in encoded:
        return Channel().rebuild_error(KeptAnswer(encoded, b""))
    return unpack(encoded)
