"""What goes out of the service and comes back with an answer: recorded, or in a replay answered from the recording.

Every library's file in ``kinds/`` describes its calls by a ``Channel`` and sends them ``through`` it. An event of a call is written
when it has ended; its fields are:

    asked   what was asked, a dict of JSON values (see ``values``): what a recorded call is found by in a replay
    answer  what came back, as the channel tells it; absent when the call failed
    error   when it failed: {"type": "module.Class", "args": packed, "text": str}
    ns      how long it took
    more    what the channel adds (sizes, what was cut, the name of a body's file)

and its data is the answer's body, where the channel keeps one.

Calls that are made while another one is performed are part of it: they are recorded in a lane of their own (``context.WITHIN``),
and a replay, which answers the outermost, neither answers nor misses them. Of a ``local`` call they are no part, since that is
performed in a replay too.
"""

import sys
import time
import types
from typing import Any, Awaitable, Callable, Dict, Generator, Optional, Tuple

from relive_recorder import context
from relive_recorder.guard import attempt
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.values import pack, unpack

__all__ = [
    "Channel",
    "KeptAnswer",
    "NoAnswer",
    "answer_with",
    "describe_error",
    "failed",
    "next_reading",
    "play",
    "succeeded",
    "through",
    "through_async",
    "through_steps",
]

_mono = time.monotonic_ns


class NoAnswer(ConnectionError):
    """In a replay: the recording holds no answer to this call. For the service a connection that broke."""


class KeptAnswer:
    """A recorded answer.

    Attributes:
        fields: of the event, see the module.
        data: of the event; a body that lay in a file is here too.
    """

    __slots__ = ("data", "fields")

    def __init__(self, fields: Dict[str, Any], data: bytes) -> None:
        self.fields = fields
        self.data = data


class Channel:
    """One kind of call. Subclasses say how its answers are kept.

    Attributes:
        kind: of its events, one of ``EventKind`` in ``relive.recording.events``.
        local: what answers lies in the commit (a file, a SQLite database): in a replay it is asked really, and recorded.
    """

    kind = ""
    local = False

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        """(answer as JSON, body, more fields) of a value that the call returned. May raise: then the recorder goes off."""
        return recorder.scrubber.packed(pack(value)), b"", {}

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        """``error`` of a call that raised it; at least ``type`` and ``args``."""
        return describe_error(error)

    def recorded(self, value: Any, seq: int) -> None:
        """Called when the event of a call's value was written, with its number: what comes later may refer to it."""

    def rebuild(self, kept: KeptAnswer) -> Any:
        """The value again. Raises ``values.NotKept`` when that cannot be."""
        return unpack(kept.fields["answer"])

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        """The exception again; of a class that is not loaded, a ``NoAnswer`` with its text."""
        return _error_again(kept.fields["error"])

    def simulated(self, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
        """In a replay, of a call that was not recorded: an answer that every server gives every time; None where there is none."""
        return None

    def find(self, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
        """In a replay: the recorded answer; None for a miss that policy answers with the real call.

        Raises:
            NoAnswer: a miss, as policy says.
        """
        return _find(self, asked)


def _no_player(_channel: Channel, _asked: Dict[str, Any]) -> Optional[KeptAnswer]:
    return None


def _no_readings(_kind: str, _source: str) -> Optional[Tuple[Any, bool]]:
    return None


_find: Callable[[Channel, Dict[str, Any]], Optional[KeptAnswer]] = _no_player
_next_reading: Callable[[str, str], Optional[Tuple[Any, bool]]] = _no_readings
_happened: Callable[[Channel, Dict[str, Any]], Any] = _no_player


def answer_with(
    find: Callable[[Channel, Dict[str, Any]], Optional[KeptAnswer]],
    reading: Callable[[str, str], Optional[Tuple[Any, bool]]],
    happened: Callable[[Channel, Dict[str, Any]], Any] = _no_player,
) -> None:
    """Have a replay's calls answered by ``find`` (see ``Channel.find``) and its readings by ``reading`` (see ``next_reading``).

    ``happened`` is told of calls that began before the commit and had their real answers by then.
    """
    global _find, _next_reading, _happened
    _find, _next_reading, _happened = find, reading, happened


def next_reading(kind: str, source: str) -> Optional[Tuple[Any, bool]]:
    """In a replay: (``value``, True) of the next recorded reading ("clock", "random") of a source in this lane, or a value that
    goes on from the last one and False; None if none is left. Who takes a recorded one says so in his event: ``played``.
    """
    return _next_reading(kind, source)


def through(channel: Channel, asked: Dict[str, Any], perform: Callable[[], Any]) -> Any:
    """Perform a call, recorded; or answer it. ``perform`` is called at most once, and what it raises is raised on."""
    mode = recorder.mode()
    if mode == RECORD:
        began = _mono()
        try:
            value = perform() if channel.local else _within(perform)
        except BaseException as error:
            again = failed(channel, asked, error, began)
            if again is None:
                raise
        else:
            attempt(_emit_recorded, channel, asked, value, _mono() - began)
            return value
        return play(channel, asked, again)
    if mode == REPLAY and not channel.local:
        kept = channel.find(asked)
        if kept is not None:
            return play(channel, asked, kept)
    return _watched(channel, asked, perform) if mode == REPLAY else perform()


def _within(perform: Callable[[], Any]) -> Any:
    call = attempt(context.inward)
    try:
        return perform()
    finally:
        if call is not None:
            context.outward(call)


async def through_async(
    channel: Channel, asked: Dict[str, Any], perform: Callable[[], Awaitable[Any]]
) -> Any:
    """As ``through``, for calls that are awaited."""
    return await _awaited(channel, asked, perform)


@types.coroutine
def _awaited(
    channel: Channel, asked: Dict[str, Any], perform: Callable[[], Awaitable[Any]]
) -> Generator[Any, Any, Any]:
    """What is awaited is a generator below (PEP 492): its steps are those of ``through_steps``."""
    return (yield from through_steps(channel, asked, lambda: perform().__await__()))


def through_steps(
    channel: Channel, asked: Dict[str, Any], perform: Callable[[], Generator[Any, Any, Any]]
) -> Generator[Any, Any, Any]:
    """As ``through``, for calls that are generators: each step of one says what it waits for, and its result is the value."""
    mode = recorder.mode()
    if mode == REPLAY and not channel.local:
        kept = channel.find(asked)
        if kept is not None:
            return play(channel, asked, kept)
    if mode not in (RECORD, REPLAY):
        return (yield from perform())
    began = _mono()
    try:
        value = yield from (perform() if channel.local else _steps_within(perform))
    except BaseException as error:
        again = _brought_back_meanwhile(channel, asked) if mode == RECORD else None
        if again is None:
            attempt(_emit_error, channel, asked, error, _mono() - began)
            raise
    else:
        attempt(_emit_recorded if mode == RECORD else _emit_answer, channel, asked, value, _mono() - began)
        return value
    return play(channel, asked, again)


def succeeded(channel: Channel, asked: Dict[str, Any], value: Any, began: int) -> None:
    """For who performs calls in the original himself: this one gave a value. Never raises."""
    attempt(_emit_recorded, channel, asked, value, _mono() - began)


def failed(channel: Channel, asked: Dict[str, Any], error: BaseException, began: int) -> Optional[KeptAnswer]:
    """For who performs calls in the original himself: this one raised an error, which is recorded. Or, where the process was
    brought back meanwhile, the recorded answer, to be given by ``play`` instead of the error.
    """
    again = _brought_back_meanwhile(channel, asked)
    if again is None:
        attempt(_emit_error, channel, asked, error, _mono() - began)
    return again


def _steps_within(perform: Callable[[], Generator[Any, Any, Any]]) -> Generator[Any, Any, Any]:
    call = attempt(context.inward)
    try:
        return (yield from perform())
    finally:
        if call is not None:
            context.outward(call)


def _watched(channel: Channel, asked: Dict[str, Any], perform: Callable[[], Any]) -> Any:
    """Perform really in a replay, and record what came of it into the branch's ring."""
    began = _mono()
    try:
        value = perform() if channel.local else _within(perform)
    except BaseException as error:
        attempt(_emit_error, channel, asked, error, _mono() - began)
        raise
    attempt(_emit_answer, channel, asked, value, _mono() - began)
    return value


def _brought_back_meanwhile(channel: Channel, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
    """The recorded answer to a call that was under way when the commit was taken, and whose other end is gone now."""
    if channel.local or recorder.mode() != REPLAY:
        return None
    try:
        return channel.find(asked)
    except NoAnswer:
        return None


def play(channel: Channel, asked: Dict[str, Any], kept: KeptAnswer) -> Any:
    """Give a recorded answer, or raise the recorded error; a ``NoAnswer`` where what was kept of it is not enough."""
    fields = dict(kept.fields, asked=asked, played=True)
    recorder.emit(channel.kind, fields, b"" if "file" in kept.fields else kept.data)
    try:
        if "error" not in kept.fields:
            return channel.rebuild(kept)
        error = channel.rebuild_error(kept)
    except Exception as fault:  # a recording is somebody else's, and may be of another version
        raise NoAnswer(
            f"the recorded answer to this {channel.kind} cannot be given again: {fault}"
        ) from fault
    raise error


def _emit_recorded(channel: Channel, asked: Dict[str, Any], value: Any, took: int) -> None:
    # Committed after it was answered, but before this was written down.
    if not channel.local and recorder.mode() == REPLAY:
        _happened(channel, asked)
    _emit_answer(channel, asked, value, took)


def _emit_answer(channel: Channel, asked: Dict[str, Any], value: Any, took: int) -> None:
    answer, data, more = channel.encode(value)
    fields = {"asked": asked, "answer": answer, "ns": took}
    if more:
        fields.update(more)
    channel.recorded(value, recorder.emit(channel.kind, fields, data))


def _emit_error(channel: Channel, asked: Dict[str, Any], error: BaseException, took: int) -> None:
    recorder.emit(channel.kind, {"asked": asked, "error": channel.encode_error(error), "ns": took})


def describe_error(error: BaseException) -> Dict[str, Any]:
    """An exception as JSON; no code of its class is run."""
    kind = type(error)
    args = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    text = recorder.scrubber.packed(pack(args, 4))
    return {"type": f"{kind.__module__}.{kind.__qualname__}", "args": text}


def _error_again(described: Dict[str, Any]) -> BaseException:
    module, _, name = str(described.get("type", "")).rpartition(".")
    # Not asking a module that makes names up.
    kind = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    try:
        args = unpack(described.get("args"))
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return kind(*args)
    except Exception:  # the class wants other arguments than its instances remember
        pass
    return NoAnswer(f"{described.get('type')}: {described.get('args')}")
