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
from typing import Any, Callable, Dict, List, Optional, Tuple

from relive_recorder import context
from relive_recorder.calls import failed, play, succeeded, through, through_async
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import is_watching
from relive_recorder.kinds.redis_asked import (
    asked_again,
    asked_command,
    asked_commands,
    asked_of,
    asked_quickly,
    is_transaction,
)
from relive_recorder.kinds.redis_heard import (
    KIND,
    AsyncVoice,
    Played,
    RedisCall,
    Voice,
    broken,
    hearing,
    hearing_async,
    listener,
)
from relive_recorder.recorder import REPLAY, recorder

__all__ = ["change", "change_async"]


def change(module: Any) -> None:
    """Called when it has been imported."""
    client, pipeline, subscription = module.Redis, module.Pipeline, module.PubSub
    client.parse_response = hearing(client.parse_response)
    client.execute_command = _command(client.execute_command)
    pipeline.immediate_execute_command = _command(pipeline.immediate_execute_command)
    pipeline.execute = _pipeline(pipeline.execute)
    subscription.execute_command = _subscribing(subscription.execute_command)
    subscription.parse_response = _listening(subscription.parse_response)


def change_async(module: Any) -> None:
    """Called when it has been imported."""
    client, pipeline, subscription = module.Redis, module.Pipeline, module.PubSub
    client.parse_response = hearing_async(client.parse_response)
    client.execute_command = _command_async(client.execute_command)
    pipeline.immediate_execute_command = _command_async(pipeline.immediate_execute_command)
    pipeline.execute = _pipeline_async(pipeline.execute)
    subscription.execute_command = _subscribing_async(subscription.execute_command)
    subscription.parse_response = _listening_async(subscription.parse_response)
    module.ConnectionPool.disconnect = _apart(module.ConnectionPool.disconnect)


# -- commands ---------------------------------------------------------------------------------------------------------


def _record_answer(asked: bytes, heard: List[Any], value: Any) -> None:
    """Write down a command of ``asked_quickly`` that gave a value. Never raises."""
    quick = recorder.quick
    if not heard or quick is None or quick.answered(KIND, asked, heard[-1]) is None:
        again, began = asked_again(asked)
        succeeded(_channel(heard), again, value, began)


def _failed(asked: bytes, heard: List[Any], error: BaseException) -> "Optional[Callable[[], Played]]":
    """Write down a command of ``asked_quickly`` that raised an error; or what gives the recorded answer, see ``calls.failed``."""
    channel, (again, began) = _channel(heard), asked_again(asked)
    kept = failed(channel, again, error, began)
    return None if kept is None else functools.partial(play, channel, again, kept)


def _channel(heard: List[Any]) -> "RedisCall":
    channel = RedisCall(1)
    channel.heard = heard
    return channel


def _command(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        asked = asked_quickly(self, args)
        if asked is None:
            return _execute(self, real, args, options)
        heard: List[Any] = []
        token = listener.set(heard)
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
            _record_answer(asked, heard, value)
            return value
        finally:
            listener.reset(token)
        return self.parse_response(Voice([answer().said]), args[0], **options)

    return execute_command


def _execute(client: Any, real: Callable[..., Any], args: Any, options: Any) -> Any:
    asked = attempt(asked_command, client, args) if is_watching() and args else None
    if asked is None:
        return real(client, *args, **options)
    channel = RedisCall(1, (args,))
    token = listener.set(channel.heard)
    try:
        value = through(channel, asked, functools.partial(real, client, *args, **options))
    finally:
        listener.reset(token)
    if type(value) is Played:
        return client.parse_response(Voice([value.said]), args[0], **options)
    return value


def _command_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute_command(self: Any, *args: Any, **options: Any) -> Any:
        asked = asked_quickly(self, args)
        if asked is None:
            return await _execute_async(self, real, args, options)
        heard: List[Any] = []
        token = listener.set(heard)
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
            _record_answer(asked, heard, value)
            return value
        finally:
            listener.reset(token)
        return await self.parse_response(AsyncVoice([answer().said]), args[0], **options)

    return execute_command


async def _execute_async(client: Any, real: Callable[..., Any], args: Any, options: Any) -> Any:
    asked = attempt(asked_command, client, args) if is_watching() and args else None
    if asked is None:
        return await real(client, *args, **options)
    channel = RedisCall(1, (args,))
    token = listener.set(channel.heard)
    try:
        value = await through_async(channel, asked, lambda: real(client, *args, **options))
    finally:
        listener.reset(token)
    if type(value) is Played:
        return await client.parse_response(AsyncVoice([value.said]), args[0], **options)
    return value


def _apart(real: Callable[..., Any]) -> Callable[..., Any]:
    """A task for each open connection is the pool's business: a pool whose commands are answered in a replay has none open."""

    @functools.wraps(real)
    async def disconnect(self: Any, *given: Any, **named: Any) -> Any:
        call = attempt(context.inward) if recorder.mode() else None
        try:
            return await real(self, *given, **named)
        finally:
            if call is not None:
                context.outward(call)

    return disconnect


# -- pipelines --------------------------------------------------------------------------------------------------------


def _pipeline_call(pipeline: Any) -> Optional[Tuple[RedisCall, Dict[str, Any]]]:
    """(channel, asked) for what is queued in it; None when nothing is, or nothing is recorded."""
    stack = pipeline.command_stack
    if not stack or not is_watching():
        return None
    transaction = is_transaction(pipeline)
    commands = [command[0] for command in stack]
    asked = attempt(asked_commands, pipeline, commands)
    return None if asked is None else (RedisCall(len(stack) + 2 * transaction, commands), asked)


def _pipeline(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute(self: Any, raise_on_error: bool = True) -> Any:
        call = _pipeline_call(self)
        if call is None:
            return real(self, raise_on_error)
        if self.scripts and recorder.mode() == REPLAY:
            self.load_scripts()
        token = listener.set(call[0].heard)
        try:
            value = through(*call, lambda: real(self, raise_on_error))
        finally:
            listener.reset(token)
            if recorder.mode() == REPLAY:
                stack, how = self.command_stack, _played_how(self)
                _let_go(self)
                self.reset()
        if type(value) is Played:
            try:
                return how(Voice(_listed(value.said)), stack, raise_on_error)
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
        token = listener.set(call[0].heard)
        try:
            value = await through_async(*call, lambda: real(self, raise_on_error))
        finally:
            listener.reset(token)
            if recorder.mode() == REPLAY:
                stack, how = self.command_stack, _played_how(self)
                _let_go(self)
                await self.reset()
        if type(value) is Played:
            try:
                return await how(AsyncVoice(_listed(value.said)), stack, raise_on_error)
            finally:
                self.watching = False
        return value

    return execute


def _listed(said: Any) -> List[Any]:
    return said if type(said) is list else [said]


def _played_how(pipeline: Any) -> Callable[..., Any]:
    return pipeline._execute_transaction if is_transaction(pipeline) else pipeline._execute_pipeline  # type: ignore[no-any-return]


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
        asked = attempt(asked_command, self, args) if is_watching() and args else None
        if asked is None:
            return real(self, *args, **named)
        value = through(RedisCall(1), asked, lambda: real(self, *args, **named))
        return None if type(value) is Played else value

    return execute_command


def _subscribing_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute_command(self: Any, *args: Any, **named: Any) -> Any:
        asked = attempt(asked_command, self, args) if is_watching() and args else None
        if asked is None:
            return await real(self, *args, **named)
        value = await through_async(RedisCall(1), asked, lambda: real(self, *args, **named))
        return None if type(value) is Played else value

    return execute_command


def _listening(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def parse_response(self: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() == REPLAY:
            raise broken("messages of subscriptions are not answered in a replay")
        message = real(self, *given, **named)
        if message is not None and is_watching():
            attempt(_note_message, self, message)
        return message

    return parse_response


def _listening_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def parse_response(self: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() == REPLAY:
            raise broken("messages of subscriptions are not answered in a replay")
        message = await real(self, *given, **named)
        if message is not None and is_watching():
            attempt(_note_message, self, message)
        return message

    return parse_response


def _note_message(subscription: Any, message: Any) -> None:
    channel = RedisCall(1)
    channel.heard.append(message)
    answer, data, more = channel.encode(message)
    recorder.emit(KIND, {**asked_of(subscription), "message": answer, **more}, data)
