"""Values as short texts for people, made without running any code of the service.

No ``__repr__``, ``__str__``, ``__len__``, property or ``__getattr__`` of a foreign type is called: any of them could hang, fail,
or change the state that is to be looked at. Built-in types are shown as Python shows them; subclasses of containers by the
base's own methods; any other object by its type's name and what lies in its ``__dict__`` and ``__slots__``, read past all
descriptors.

Bounded in depth, items, length, and over all values of one failure in number and time. Secrets are scrubbed.
"""

import time
import types
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from relive_recorder.scrub import Scrubber
from relive_recorder.values import pack

__all__ = ["MARK", "Representer", "own_dict", "type_name"]

DEPTH = 4
ITEMS = 24
TEXT = 400  # [characters] of one text within a value
WHOLE = 2000  # [characters] of one value
NODES = 20_000  # values of one failure, those within others counted
MARK = "_relive_seen"  # in the ``__dict__`` of exceptions that were seen; never shown
_SCRUBBED = 4096  # [characters] that are searched for secrets before a text is cut

_spent = time.thread_time_ns
_type_name: Callable[[type], Any] = type.__dict__["__qualname__"].__get__
_type_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_type_mro: Callable[[type], Tuple[type, ...]] = type.__dict__["__mro__"].__get__
_type_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
# Shown by Python's own text: C code that calls nothing.
_PLAIN = (type(None), bool, float, complex, range, slice, type(Ellipsis), type(NotImplemented))
_CONTAINERS: Tuple[Tuple[type, str, str, Callable[[Any], Iterator[Any]], Callable[[Any], int]], ...] = (
    (list, "[", "]", list.__iter__, list.__len__),
    (tuple, "(", ")", tuple.__iter__, tuple.__len__),
    (set, "{", "}", set.__iter__, set.__len__),
    (frozenset, "frozenset({", "})", frozenset.__iter__, frozenset.__len__),
)
# Of subclasses, such as enumerations of integers, the plain value, made by the base's own methods.
_PLAIN_BASES: Tuple[Tuple[type, Callable[[Any], Any]], ...] = (
    (str, lambda value: str.__getitem__(value, slice(0, _SCRUBBED))),
    (bytes, lambda value: bytes.__getitem__(value, slice(0, _SCRUBBED))),
    (int, int.__pos__),
    (float, float.__pos__),
)
# What ``values`` knows to keep without foreign code, and shows as text there: datetimes, decimals, paths, ...
_TOLD = frozenset({"datetime", "decimal", "uuid", "fractions", "ipaddress", "pathlib"})


def type_name(kind: type) -> str:
    """``module.Class``; built-in ones without a module. No code of a metaclass is run."""
    module, name = _type_module(kind), _type_name(kind)
    if type(module) is not str or type(name) is not str:
        return "?"
    return name if module == "builtins" else f"{module}.{name}"


class Representer:
    """Makes texts of values until its time or number is used up; then it only says so. For one failure, one thread.

    Args:
        until: CLOCK_THREAD_CPUTIME_ID in nanoseconds at which it stops: what others do to the machine does not count.
    """

    def __init__(self, scrubber: Scrubber, until: int) -> None:
        self._scrubber = scrubber
        self._until = until
        self._nodes = NODES
        self._open: Set[int] = set()  # ids of the containers we are in
        self.is_exhausted = False

    def named(self, name: str, value: Any) -> str:
        """The text of a variable; a placeholder when its name says that it is secret."""
        text = self._text(value, DEPTH, self._is_secret(name))
        return text if len(text) <= WHOLE else f"{text[:WHOLE]}… (+{len(text) - WHOLE} characters)"

    def message(self, text: str) -> str:
        """A text for people as it is, without quotes."""
        shown = self._scrubber.text(text[:_SCRUBBED])
        return shown if len(text) <= WHOLE else f"{shown[:WHOLE]}… (+{len(text) - WHOLE} characters)"

    def _is_secret(self, name: Any) -> bool:
        return type(name) is str and self._scrubber.is_secret_name(name)

    def _text(self, value: Any, depth: int, secret: bool) -> str:
        self._nodes -= 1
        if self._nodes < 0 or _spent() > self._until:
            self.is_exhausted = True
            return "<not looked at: too much else>"
        kind = type(value)
        if kind is str:
            return self._of_text(value, secret)
        if kind in (bytes, bytearray):
            return self._of_bytes(bytes(value[:_SCRUBBED]), len(value), kind, secret)
        if kind is int:
            return self._of_integer(value, secret)
        if kind in _PLAIN:
            return repr(value) if kind is not range and kind is not slice else f"<{kind.__name__}>"
        if isinstance_exactly(kind, types.FunctionType, types.BuiltinFunctionType):
            return f"<function {value.__qualname__}>"
        if kind is types.ModuleType:
            return f"<module {types.ModuleType.__getattribute__(value, '__dict__').get('__name__')!s:.80}>"
        if type in _type_mro(kind):
            return f"<class {type_name(value)}>"
        return self._of_compound(value, kind, depth, secret)

    def _of_text(self, value: str, secret: bool) -> str:
        if secret and value:
            return self._scrubber.learn(value)
        shown = self._scrubber.text(value[:_SCRUBBED])
        cut = len(value) - TEXT
        return repr(shown) if cut <= 0 else f"{shown[:TEXT]!r}… (+{cut} characters)"

    def _of_bytes(self, value: bytes, length: int, kind: type, secret: bool) -> str:
        if secret and value:
            return self._scrubber.learn(value.decode("latin-1"))
        shown = repr(self._scrubber.data(value)[:TEXT])
        text = shown if length <= TEXT else f"{shown}… (+{length - TEXT} bytes)"
        return text if kind is bytes else f"bytearray({text})"

    def _of_integer(self, value: int, secret: bool) -> str:
        bits = value.bit_length()
        if bits > 4096:  # thousands of digits take long
            return f"<int of {bits} bits>"
        return self._scrubber.learn(repr(value)) if secret else self._scrubber.text(repr(value))

    def _of_compound(self, value: Any, kind: type, depth: int, secret: bool) -> str:
        if id(value) in self._open:
            return "<itself>"
        if depth <= 0:
            return f"<{type_name(kind)}>"
        self._open.add(id(value))
        try:
            return self._inside(value, kind, depth - 1, secret)
        except RuntimeError:  # "changed size during iteration": another thread is at work on it
            return f"<{type_name(kind)}, changing>"
        finally:
            self._open.discard(id(value))

    def _inside(self, value: Any, kind: type, depth: int, secret: bool) -> str:
        mro = _type_mro(kind)
        if dict in mro:
            return self._of_dict(value, kind, depth, secret)
        for base, begin, end, iterate, length in _CONTAINERS:
            if base in mro:
                texts = [self._text(item, depth, secret) for item in islice(iterate(value), ITEMS)]
                more = length(value) - len(texts)
                texts += [f"… (+{more})"] if more > 0 else []
                comma = "," if base is tuple and len(texts) == 1 else ""
                return self._labelled(kind, base, f"{begin}{', '.join(texts)}{comma}{end}")
        for plain, make in _PLAIN_BASES:
            if plain in mro:
                return f"{type_name(kind)}({self._text(make(value), depth, secret)})"
        if _type_module(kind) in _TOLD:
            packed = pack(value, 1)
            if type(packed) is dict and packed["$"][0] != "opaque":
                return f"{type_name(kind)}({', '.join(self._text(part, 1, secret) for part in packed['$'][1:2])})"
        return self._of_object(value, kind, mro, depth, secret)

    def _of_dict(self, value: Any, kind: type, depth: int, secret: bool) -> str:
        texts = []
        for key, item in islice(dict.items(value), ITEMS):
            shown = self._text(key, depth, False)
            texts.append(f"{shown}: {self._text(item, depth, secret or self._is_secret(key))}")
        more = dict.__len__(value) - len(texts)
        texts += [f"… (+{more})"] if more > 0 else []
        return self._labelled(kind, dict, f"{{{', '.join(texts)}}}")

    def _of_object(self, value: Any, kind: type, mro: Tuple[type, ...], depth: int, secret: bool) -> str:
        texts: List[str] = []
        more = 0
        module = _type_module(kind)
        is_own = type(module) is str and module.startswith("relive_recorder.")
        for name, item in _attributes(value, mro):
            if is_own and name == "__wrapped__":  # what the service would have without the recorder
                return self._text(item, depth, secret)
            if len(texts) == ITEMS:
                more += 1
                continue
            texts.append(f"{name}={self._text(item, depth, secret or self._is_secret(name))}")
        texts += [f"… (+{more})"] if more else []
        return f"<{type_name(kind)}{' ' if texts else ''}{', '.join(texts)}>"

    @staticmethod
    def _labelled(kind: type, base: type, text: str) -> str:
        return text if kind is base else f"{type_name(kind)}({text})"


def isinstance_exactly(kind: type, *wanted: type) -> bool:
    """A type is one of these, not a subclass of one; ``__eq__`` of a metaclass is not asked."""
    return any(kind is one for one in wanted)


def _attributes(value: Any, mro: Tuple[type, ...]) -> Iterator[Tuple[str, Any]]:
    """What an object holds by itself: of its ``__dict__`` and its slots, past everything its class defines over them."""
    own = own_dict(value)
    if own is not None:
        for name, item in islice(dict.items(own), 1000):
            if type(name) is str and name != MARK:
                yield name, item
    for base in mro:
        for name, member in list(_type_dict(base).items()):
            if type(member) is types.MemberDescriptorType and type(name) is str:
                try:
                    yield name, member.__get__(value)
                except AttributeError:  # an empty slot
                    pass


def own_dict(value: Any) -> Optional[Dict[str, Any]]:
    """An object's ``__dict__`` itself, whatever its class shows in its place; None if it has none."""
    for base in _type_mro(type(value)):
        found = _type_dict(base).get("__dict__")
        if type(found) is types.GetSetDescriptorType:
            held = found.__get__(value)
            return held if type(held) is dict else None
    return None
