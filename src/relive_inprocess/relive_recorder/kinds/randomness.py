"""Randomness: ``os.urandom`` and so ``secrets`` and ``random.SystemRandom``; the functions of ``random``; ``uuid1`` and ``uuid4``.

Event ``random``: fields ``source`` (such as "os.urandom", "random.choice"), ``value`` (packed): what the call gave, one event
for each call, however much was drawn in it. Of ``choice``, ``choices``, ``sample`` and ``shuffle`` it is the indexes that were
drawn: what is drawn from may be anything. What generators of their own (``random.Random()``, numpy's) give is not recorded: their
state is in memory and so in the commit, and they give the same numbers again by themselves; so does that of ``random``, of which
only what other threads drew in between can differ. What a ``random.Random`` begins with where it is given nothing is recorded
("random.seed", 32 bytes; it comes from the kernel, and not by way of ``os.urandom``).
"""

import functools
import os
import sys
from binascii import b2a_base64
from typing import Any, Callable, Dict, Optional

from relive_recorder import quick
from relive_recorder.calls import next_reading
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.kinds.callers import is_machinery, verdicts
from relive_recorder.recorder import RECORD, REPLAY, recorder
from relive_recorder.values import NotKept, pack, unpack

__all__ = ["install"]

_SEED = 32  # [bytes]
_LONGEST = 4096  # [bytes, or indexes] of one draw that is kept
_PLAIN = (
    "random uniform triangular randint randrange getrandbits randbytes gauss normalvariate expovariate "
    "betavariate gammavariate lognormvariate vonmisesvariate paretovariate weibullvariate binomialvariate"
).split()
_get_frame = sys._getframe


def install() -> None:
    """Replace ``os.urandom``, also where ``random`` has it under a name of its own; wait for ``random`` and ``uuid``."""
    os.urandom = _in_c(_urandom, _real_urandom, "os.urandom", _MACHINERY_OF_UUID, others=True)
    when_imported("random", _change_random)
    when_imported("uuid", _change_uuid)


_real_urandom = os.urandom


def _again(source: str) -> Any:
    """In a replay: the recorded value; None when there is none (no draw gives None)."""
    kept = next_reading("random", source)
    try:
        return None if kept is None else unpack(kept[0])
    except NotKept:
        return None


def _emit(source: str, value: Any, is_played: bool = False) -> None:
    played = ',"played":true' if is_played else ""
    if type(value) is int or (type(value) is float and -1e300 < value < 1e300):
        recorder.emit_json("random", '{"source":"%s","value":%r%s}' % (source, value, played))
    elif type(value) is bytes:
        text = b2a_base64(value, newline=False).decode("ascii")
        recorder.emit_json(
            "random", '{"source":"%s","value":{"$":["bytes","%s"]}%s}' % (source, text, played)
        )
    else:
        _emit_packed(source, pack(value), is_played)


def _emit_packed(source: str, value: Any, is_played: bool) -> None:
    fields = {"source": source, "value": value}
    if is_played:
        fields["played"] = True
    recorder.emit("random", fields)


def _urandom(size: int) -> bytes:
    """os.urandom"""
    mode = recorder.mode()
    if mode not in (RECORD, REPLAY) or _is_nobody_s(_get_frame().f_back):
        return _real_urandom(size)
    kept = attempt(_again, "os.urandom") if mode == REPLAY else None
    if type(kept) is bytes and len(kept) == size:
        value, is_played = kept, True
    else:
        value, is_played = _real_urandom(size), False
    if size <= _LONGEST:
        attempt(_emit, "os.urandom", value, is_played)
    return value


def _is_nobody_s(frame: Any) -> bool:
    """A thread or a callback of C asks, or ``uuid``, whose functions are recorded as a whole."""
    return frame is None or frame.f_globals.get("__name__") == "uuid"


_MACHINERY_OF_UUID = {"uuid": True}
_urandom.__name__ = _urandom.__qualname__ = "urandom"
_urandom.__module__ = "os"  # where pickle finds it


def _as(function: Any, real: Any) -> Any:
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__text_signature__"):
        value = getattr(real, name, None)
        if value is not None:
            setattr(function, name, value)
    function.__wrapped__ = real
    return function


def _in_c(
    wrapper: Callable[..., Any],
    real: Callable[..., Any],
    source: str,
    known: Dict[str, bool],
    others: bool = False,
    uuid: Optional[type] = None,
) -> Callable[..., Any]:
    """The same as ``wrapper``, done by the part in C where it can. ``known``: the modules for which nothing is recorded (True), or
    it is (False); ``others``: it is for all that are not in there; ``uuid``: the class of what it gives, where that is one.
    """
    if quick.module is None:
        return wrapper
    tell = functools.partial(attempt, _emit if uuid is None else _emit_uuid, source)
    parts = b'{"source":"%b","value":' % source.encode("ascii"), real, wrapper, tell, recorder, known
    return _as(_draw_kind()(parts, others, uuid), wrapper)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=None)
def _draw_kind() -> Any:
    class Draw(quick.module.Draw):  # type: ignore[misc]
        """As a function, of which nobody's class makes a method; and as the one that was there before, which was none either."""

        def __repr__(self) -> str:
            return repr(self.__wrapped__)

        def __reduce__(self) -> str:
            return str(self.__name__)

    return Draw


# -- random -----------------------------------------------------------------------------------------------------------


def _change_random(module: Any) -> None:
    if getattr(module, "_urandom", None) is _real_urandom:
        module._urandom = os.urandom
    for name in _PLAIN:
        real = getattr(module, name, None)
        if real is not None:
            _put(module, name, _drawing(f"random.{name}", real))
    one = _choosing("random.choice", module.choice, lambda population, index: population[index])
    _put(module, "choice", one)
    for name in ("choices", "sample"):
        several = _choosing(
            f"random.{name}",
            getattr(module, name),
            lambda population, indexes: [population[index] for index in indexes],
        )
        _put(module, name, several)
    _put(module, "shuffle", _shuffling(module.shuffle))
    module.Random.seed = _seeding(module.Random.seed)
    module.seed = module._inst.seed


def _put(module: Any, name: str, function: Any) -> None:
    """Into the place of a method of the module's own generator, but under the name by which pickle finds it (multiprocessing)."""
    function.__module__, function.__qualname__ = module.__name__, name
    setattr(module, name, function)


def _seeding(real: Callable[..., None]) -> Callable[..., None]:
    def seed(self: Any, a: Any = None, version: int = 2) -> None:
        if (
            a is None
            and recorder.mode() in (RECORD, REPLAY)
            and not _is_begun_by_machinery(_get_frame().f_back)
        ):
            a = attempt(_begin)
        real(self, a, version)

    return _as(seed, real)  # type: ignore[no-any-return]


def _is_begun_by_machinery(frame: Any) -> bool:
    while frame is not None and frame.f_globals.get("__name__") == "random":  # a generator that is made
        frame = frame.f_back
    return frame is None or is_machinery(frame)


def _begin() -> int:
    kept = attempt(_again, "random.seed") if recorder.mode() == REPLAY else None
    if type(kept) is bytes and len(kept) == _SEED:
        value, is_played = kept, True
    else:
        value, is_played = _real_urandom(_SEED), False
    _emit("random.seed", value, is_played)
    return int.from_bytes(value, "big")


def _drawing(source: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*given: Any, **named: Any) -> Any:
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY) or is_machinery(_get_frame().f_back):
            return real(*given, **named)
        # Drawn in a replay too, so that the generator's state goes on as it did.
        value, is_played = real(*given, **named), False
        if mode == REPLAY:
            kept = attempt(_again, source)
            is_played = type(kept) is type(value)
            value = kept if is_played else value
        attempt(_emit, source, value, is_played)
        return value

    return _in_c(_as(draw, real), real, source, verdicts)


def _choosing(source: str, real: Callable[..., Any], take: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """For what draws from its first argument: drawn from as many numbers, which takes the same from the generator."""

    def choose(*given: Any, **named: Any) -> Any:
        mode = recorder.mode()
        population = given[0] if given else None
        if (
            mode not in (RECORD, REPLAY)
            or type(population) not in (list, tuple, str, range)
            or not population
            or "counts" in named
            or is_machinery(_get_frame().f_back)
        ):
            return real(*given, **named)
        drawn, is_played = real(range(len(population)), *given[1:], **named), False
        if mode == REPLAY:
            kept = attempt(_again, source)
            is_played = _fits(kept, drawn, len(population))
            drawn = kept if is_played else drawn
        if type(drawn) is int or len(drawn) <= _LONGEST:
            attempt(_emit, source, drawn, is_played)
        return take(population, drawn)

    return _as(choose, real)  # type: ignore[no-any-return]


def _fits(kept: Any, drawn: Any, count: int) -> bool:
    if type(kept) is not type(drawn):
        return False
    indexes = kept if isinstance(kept, list) else [kept]
    if isinstance(drawn, list) and len(kept) != len(drawn):
        return False
    return all(type(index) is int and 0 <= index < count for index in indexes)


def _shuffling(real: Callable[..., Any]) -> Callable[..., Any]:
    def shuffle(x: Any, *given: Any, **named: Any) -> None:
        mode = recorder.mode()
        if (
            mode not in (RECORD, REPLAY)
            or type(x) is not list
            or len(x) > _LONGEST
            or is_machinery(_get_frame().f_back)
        ):
            return real(x, *given, **named)  # type: ignore[no-any-return]
        order = list(range(len(x)))
        real(order, *given, **named)
        is_played = False
        if mode == REPLAY:
            kept = attempt(_again, "random.shuffle")
            if isinstance(kept, list) and sorted(kept) == list(range(len(x))):
                order, is_played = kept, True
        attempt(_emit, "random.shuffle", order, is_played)
        x[:] = [x[index] for index in order]
        return None

    return _as(shuffle, real)  # type: ignore[no-any-return]


# -- uuid -------------------------------------------------------------------------------------------------------------


def _change_uuid(module: Any) -> None:
    for name in ("uuid1", "uuid4"):
        setattr(module, name, _naming(f"uuid.{name}", getattr(module, name), module.UUID))
    if quick.module is not None:
        module.uuid4 = _naming_in_c(module.uuid4, module.uuid4.__wrapped__, module.UUID)


def _naming_in_c(wrapper: Callable[[], Any], real: Callable[[], Any], kind: type) -> Callable[[], Any]:
    """A function of Python's, as the one before: Django writes the names of such into migrations, and of no others."""
    draw = _in_c(wrapper, real, "uuid.uuid4", {}, others=True, uuid=kind)

    def name() -> Any:
        return draw()

    return _as(name, real)  # type: ignore[no-any-return]


def _emit_uuid(source: str, value: Any, is_played: bool = False) -> None:
    _emit_packed(source, {"$": ["uuid", str(value)]}, is_played)


def _naming(source: str, real: Callable[..., Any], kind: type) -> Callable[..., Any]:
    def name(*given: Any, **named: Any) -> Any:
        mode = recorder.mode()
        # For libraries too: they mark with it what they send (redis-py its locks).
        if mode not in (
            RECORD,
            REPLAY,
        ):
            return real(*given, **named)
        value = attempt(_again, source) if mode == REPLAY else None
        is_played = type(value) is kind
        if not is_played:
            value = real(*given, **named)
        attempt(_emit_uuid, source, value, is_played)
        return value

    return _as(name, real)  # type: ignore[no-any-return]
