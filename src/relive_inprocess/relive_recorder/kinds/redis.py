"""Redis through redis-py, synchronous and asynchronous. Event ``redis-command`` (see ``calls``).

``asked``: ``server`` ("host:port" or a socket's path), ``database`` (number), and ``command`` (a list, packed, as the service
gave it) or for a pipeline ``commands`` (a list of such) and ``transaction`` (whether it is MULTI ... EXEC). ``answer``: what
the server said, as the connection's parser gave it, packed; of a pipeline a list of all it said. An error among them is
``{"error": ...}``. An answer whose JSON is longer than ``inline_bytes`` is the event's data instead.

In a replay redis-py's own callbacks turn what was said into values. Messages of subscriptions are recorded as they come
(``message``, without ``asked``), but not answered: there the subscription's connection breaks. Not recorded: cluster clients,
``MONITOR``, and who takes connections out of a pool to talk by himself.
"""

import functools
import json
import sys
from contextvars import ContextVar
from typing import Any, Callable, Dict, List, Optional, Tuple

from relive_recorder import bodies, context
from relive_recorder.calls import (
    Channel,
    Kept,
    NoAnswer,
    describe_error,
    failed,
    play,
    succeeded,
    through,
    through_async,
)
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import gather
from relive_recorder.recorder import FREE, OFF, REPLAY, encode, recorder
from relive_recorder.values import NotKept, pack, to_json, unpack

__all__ = ["change", "change_async"]

_KIND = "redis-command"
_NOTHING_MORE: Dict[str, Any] = {}
_MOST = 10_000  # members of a dict that are kept; ``values`` cuts longer ones
# What the server says to the command that this context is about.
_heard: "ContextVar[Optional[List[Any]]]" = ContextVar("relive_redis_heard", default=None)


def change(module: Any) -> None:
    """Called when it has been imported."""
    client, pipeline, subscription = module.Redis, module.Pipeline, module.PubSub
    client.parse_response = _hearing(client.parse_response)
    client.execute_command = _command(client.execute_command)
    pipeline.immediate_execute_command = _command(pipeline.immediate_execute_command)
    pipeline.execute = _pipeline(pipeline.execute)
    subscription.execute_command = _subscribing(subscription.execute_command)
    subscription.parse_response = _listening(subscription.parse_response)


def change_async(module: Any) -> None:
    """Called when it has been imported."""
    client, pipeline, subscription = module.Redis, module.Pipeline, module.PubSub
    client.parse_response = _hearing_async(client.parse_response)
    client.execute_command = _command_async(client.execute_command)
    pipeline.immediate_execute_command = _command_async(pipeline.immediate_execute_command)
    pipeline.execute = _pipeline_async(pipeline.execute)
    subscription.execute_command = _subscribing_async(subscription.execute_command)
    subscription.parse_response = _listening_async(subscription.parse_response)


def _is_watching() -> bool:
    return recorder.mode() not in (OFF, FREE)


# -- what is asked ----------------------------------------------------------------------------------------------------


def _asked(client: Any) -> Dict[str, Any]:
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


def _asked_command(client: Any, command: Any) -> Dict[str, Any]:
    asked = _asked(client)
    asked["command"] = _told_command(command)
    return asked


_without_secret_arguments = {""}  # names of commands that were looked at


def _asked_quickly(client: Any, command: Any) -> Optional[bytes]:
    """As ``_asked_command``, made and understood by the writer in C, see ``query.asked_quickly``."""
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


def _asked_again(asked: bytes) -> Tuple[Dict[str, Any], int]:
    """(what was asked, when) of what ``_asked_quickly`` gave."""
    return json.loads(asked[8:]), int.from_bytes(asked[:8], sys.byteorder)


def _tell(asked: bytes, heard: List[Any], value: Any) -> None:
    """Write down a command of ``_asked_quickly`` that gave a value. Never raises."""
    quick = recorder.quick
    if not heard or quick is None or quick.answered(_KIND, asked, heard[-1]) is None:
        again, began = _asked_again(asked)
        succeeded(_channel(heard), again, value, began)


def _failed(asked: bytes, heard: List[Any], error: BaseException) -> "Optional[Callable[[], _Played]]":
    """Write down a command of ``_asked_quickly`` that raised an error; or what gives the recorded answer, see ``calls.failed``."""
    channel, (again, began) = _channel(heard), _asked_again(asked)
    kept = failed(channel, again, error, began)
    return None if kept is None else functools.partial(play, channel, again, kept)


def _channel(heard: List[Any]) -> "_Redis":
    channel = _Redis(1)
    channel.heard = heard
    return channel


def _asked_commands(client: Any, commands: Any) -> Dict[str, Any]:
    asked = _asked(client)
    asked["commands"] = [_told_command(one) for one in commands]
    asked["transaction"] = _is_transaction(client)
    return asked


def _told_command(command: Any) -> List[Any]:
    told = [_told_argument(one) for one in command]
    name = command[0]
    name = name.decode("latin-1").upper() if type(name) is bytes else str(name).upper()
    if name.startswith(_WITH_SECRETS):
        return _without_secrets(name, told)
    return told


def _told_argument(value: Any) -> Any:
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


_WITH_SECRETS = ("AUTH", "HELLO", "CONFIG", "ACL", "MIGRATE")


def _without_secrets(name: str, told: List[Any]) -> List[Any]:
    """All arguments of AUTH are secrets; in the others what follows a word that says so, and a rule ``>PASSWORD``."""
    result = told[:1]
    for before, value in zip(told, told[1:]):
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


# -- what is heard ----------------------------------------------------------------------------------------------------


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


class _Voice:
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


class _AsyncVoice(_Voice):
    async def send_packed_command(self, *_given: Any, **_named: Any) -> None:  # type: ignore[override]
        pass

    async def disconnect(self, *_given: Any, **_named: Any) -> None:  # type: ignore[override]
        pass

    async def read_response(self, *_given: Any, **_named: Any) -> Any:
        return _Voice.read_response(self)


def _hearing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def parse_response(self: Any, connection: Any, command_name: Any, **options: Any) -> Any:
        heard = _heard.get()
        if heard is not None:
            connection = _Ear(connection, heard)
        return real(self, connection, command_name, **options)

    return parse_response


def _hearing_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def parse_response(self: Any, connection: Any, command_name: Any, **options: Any) -> Any:
        heard = _heard.get()
        if heard is not None:
            connection = _AsyncEar(connection, heard)
        return await real(self, connection, command_name, **options)

    return parse_response


class _Redis(Channel):
    """One call. What ``rebuild`` gives is what was heard, wrapped in ``_Played``; else the value is redis-py's own."""

    kind = _KIND

    def __init__(self, last: int) -> None:
        self.heard: List[Any] = []
        self.last = last  # so many answers belong to the call; those before are of attempts that failed

    def tell(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        if self.last == 1 and self.heard:
            said = self.heard[-1]
            if said is None or type(said) is int:
                return said, b"", _NOTHING_MORE
        heard = self.heard[-self.last :]
        texts: List[str] = []
        said, size = _told_said(heard[0] if self.last == 1 and heard else heard, texts)
        if texts and not recorder.scrubber.is_clean(texts):
            said = recorder.scrubber.packed(said)
        if size <= recorder.options.inline_bytes:
            return said, b"", {}
        about, data = bodies.keep(to_json(said).encode("utf-8", "surrogatepass"))
        return None, data, {**about, "answer_in_data": True}

    def find(self, asked: Dict[str, Any]) -> Optional[Kept]:
        try:
            return super().find(asked)
        except NoAnswer as miss:
            raise _broken(str(miss)) from miss

    def rebuild(self, kept: Kept) -> Any:
        try:
            said = kept.fields["answer"]
            if kept.fields.get("answer_in_data"):
                if kept.fields.get("cut"):
                    raise NotKept(f"{kept.fields['cut']} bytes of it were cut")
                said = json.loads(kept.data.decode("utf-8", "surrogatepass"))
            return _Played(_said_again(said))
        except NotKept as missing:
            raise _broken(f"the recording does not hold this answer: {missing}") from missing


class _Played:
    __slots__ = ("said",)

    def __init__(self, said: Any) -> None:
        self.said = said


def _broken(text: str) -> BaseException:
    return sys.modules["redis.exceptions"].ConnectionError(text)  # type: ignore[no-any-return]


def _told_said(said: Any, texts: List[str]) -> Tuple[Any, int]:
    """(packed, about how long its JSON is); the texts in it are added to ``texts``."""
    kind = type(said)
    if said is None or kind is int or kind is bool:
        return said, 8
    if (kind is str or kind is bytes) and len(said) > recorder.options.body_bytes:
        return {"$": ["cut", len(said)]}, 32
    if kind is bytes:
        told = pack(said)
        texts.append(told["$"][1])
        return told, len(texts[-1]) + 20
    if kind is str:
        texts.append(said)
        return said, len(said) + 3
    if kind is list:
        packed = [_told_said(one, texts) for one in said]
        return [one[0] for one in packed], sum([one[1] for one in packed], 3)
    if kind is dict and len(said) <= _MOST:
        items = [(_told_said(key, texts), _told_said(value, texts)) for key, value in said.items()]
        size = sum([key[1] + value[1] for key, value in items], 16)
        return {"$": ["dict", [[key[0], value[0]] for key, value in items]]}, size
    if isinstance(said, Exception):
        return {"error": describe_error(said)}, 200
    told = pack(said)
    return told, gather(told, texts)


def _said_again(told: Any) -> Any:
    if type(told) is list:
        return [_said_again(one) for one in told]
    if type(told) is dict and "error" in told:
        return Channel().rebuild_error(Kept(told, b""))
    return unpack(told)


# -- commands and pipelines -------------------------------------------------------------------------------------------


def _command(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        asked = _asked_quickly(self, args)
        if asked is None:
            return _execute(self, real, args, options)
        heard: List[Any] = []
        token = _heard.set(heard)
        call = attempt(context.inward)
        try:
            try:
                value = real(self, *args, **options)
            finally:
                if call is not None:
                    context.outward(call)
        except BaseException as error:
            answer = _failed(asked, heard, error)
            if answer is None:
                raise
        else:
            _tell(asked, heard, value)
            return value
        finally:
            _heard.reset(token)
        return self.parse_response(_Voice([answer().said]), args[0], **options)

    return execute_command


def _execute(client: Any, real: Callable[..., Any], args: Any, options: Any) -> Any:
    asked = attempt(_asked_command, client, args) if _is_watching() and args else None
    if asked is None:
        return real(client, *args, **options)
    channel = _Redis(1)
    token = _heard.set(channel.heard)
    try:
        value = through(channel, asked, functools.partial(real, client, *args, **options))
    finally:
        _heard.reset(token)
    if type(value) is _Played:
        return client.parse_response(_Voice([value.said]), args[0], **options)
    return value


def _command_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        asked = _asked_quickly(self, args)
        if asked is None:
            return await _execute_async(self, real, args, options)
        heard: List[Any] = []
        token = _heard.set(heard)
        call = attempt(context.inward)
        try:
            try:
                value = await real(self, *args, **options)
            finally:
                if call is not None:
                    context.outward(call)
        except BaseException as error:
            answer = _failed(asked, heard, error)
            if answer is None:
                raise
        else:
            _tell(asked, heard, value)
            return value
        finally:
            _heard.reset(token)
        return await self.parse_response(_AsyncVoice([answer().said]), args[0], **options)

    return execute_command


async def _execute_async(client: Any, real: Callable[..., Any], args: Any, options: Any) -> Any:
    asked = attempt(_asked_command, client, args) if _is_watching() and args else None
    if asked is None:
        return await real(client, *args, **options)
    channel = _Redis(1)
    token = _heard.set(channel.heard)
    try:
        value = await through_async(channel, asked, lambda: real(client, *args, **options))
    finally:
        _heard.reset(token)
    if type(value) is _Played:
        return await client.parse_response(_AsyncVoice([value.said]), args[0], **options)
    return value


def _is_transaction(pipeline: Any) -> bool:
    if getattr(pipeline, "explicit_transaction", False):
        return True
    return bool(pipeline.is_transaction if hasattr(pipeline, "is_transaction") else pipeline.transaction)


def _pipeline_call(pipeline: Any) -> Optional[Tuple[_Redis, Dict[str, Any]]]:
    """(channel, asked) for what is queued in it; None when nothing is, or nothing is recorded."""
    stack = pipeline.command_stack
    if not stack or not _is_watching():
        return None
    transaction = _is_transaction(pipeline)
    asked = attempt(_asked_commands, pipeline, [command[0] for command in stack])
    return None if asked is None else (_Redis(len(stack) + 2 * transaction), asked)


def _pipeline(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute(self: Any, raise_on_error: bool = True) -> Any:
        call = _pipeline_call(self)
        if call is None:
            return real(self, raise_on_error)
        if self.scripts and recorder.mode() == REPLAY:
            self.load_scripts()
        token = _heard.set(call[0].heard)
        try:
            value = through(*call, lambda: real(self, raise_on_error))
        finally:
            _heard.reset(token)
            if recorder.mode() == REPLAY:
                stack, how = self.command_stack, _played_how(self)
                _let_go(self)
                self.reset()
        if type(value) is _Played:
            try:
                return how(_Voice(_listed(value.said)), stack, raise_on_error)
            finally:
                self.watching = False
        return value

    return execute


def _pipeline_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute(self: Any, raise_on_error: bool = True) -> Any:
        call = _pipeline_call(self)
        if call is None:
            return await real(self, raise_on_error)
        if self.scripts and recorder.mode() == REPLAY:
            await self.load_scripts()
        token = _heard.set(call[0].heard)
        try:
            value = await through_async(*call, lambda: real(self, raise_on_error))
        finally:
            _heard.reset(token)
            if recorder.mode() == REPLAY:
                stack, how = self.command_stack, _played_how(self)
                _let_go(self)
                await self.reset()
        if type(value) is _Played:
            try:
                return await how(_AsyncVoice(_listed(value.said)), stack, raise_on_error)
            finally:
                self.watching = False
        return value

    return execute


def _listed(said: Any) -> List[Any]:
    return said if type(said) is list else [said]


def _played_how(pipeline: Any) -> Callable[..., Any]:
    return pipeline._execute_transaction if _is_transaction(pipeline) else pipeline._execute_pipeline  # type: ignore[no-any-return]


def _let_go(pipeline: Any) -> None:
    """Nothing is watched at a server that is not there."""
    pipeline.watching = False
    connection = getattr(pipeline, "connection", None)
    if connection is not None and recorder.mode() == REPLAY:
        pipeline.connection = None


# -- subscriptions ----------------------------------------------------------------------------------------------------


def _subscribing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute_command(self: Any, *args: Any, **named: Any) -> Any:
        asked = attempt(_asked_command, self, args) if _is_watching() and args else None
        if asked is None:
            return real(self, *args, **named)
        value = through(_Redis(1), asked, lambda: real(self, *args, **named))
        return None if type(value) is _Played else value

    return execute_command


def _subscribing_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute_command(self: Any, *args: Any, **named: Any) -> Any:
        asked = attempt(_asked_command, self, args) if _is_watching() and args else None
        if asked is None:
            return await real(self, *args, **named)
        value = await through_async(_Redis(1), asked, lambda: real(self, *args, **named))
        return None if type(value) is _Played else value

    return execute_command


def _listening(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def parse_response(self: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() == REPLAY:
            raise _broken("messages of subscriptions are not answered in a replay")
        message = real(self, *given, **named)
        if message is not None and _is_watching():
            attempt(_note_message, self, message)
        return message

    return parse_response


def _listening_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def parse_response(self: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() == REPLAY:
            raise _broken("messages of subscriptions are not answered in a replay")
        message = await real(self, *given, **named)
        if message is not None and _is_watching():
            attempt(_note_message, self, message)
        return message

    return parse_response


def _note_message(subscription: Any, message: Any) -> None:
    channel = _Redis(1)
    channel.heard.append(message)
    answer, data, more = channel.tell(message)
    recorder.emit(_KIND, {**_asked(subscription), "message": answer, **more}, data)
