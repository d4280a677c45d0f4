"""Values in words: their type and text, what two are compared by, and what they hold."""

import itertools
import types

TEXT_MOST = 400  # characters of a value
_COMPARED = 10000  # elements of a collection that are compared one by one


def type_name(value):
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else "{}.{}".format(module, kind.__qualname__)


def text_of(value, most=TEXT_MOST):
    try:
        is_cut = isinstance(value, (str, bytes, bytearray)) and len(value) > most
        text = repr(value[:most]) + "..." if is_cut else repr(value)
    except BaseException as error:
        return "<{} whose representation raises {}>".format(type_name(value), type(error).__name__)
    return text if len(text) <= most + 8 else text[:most] + "..."


def described(value):
    return type_name(value), text_of(value)


def described_whole(value):
    return type_name(value), text_of(value, 20000)


def compared(value):
    """(how it is compared, its text)."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (type(value), value), text_of(value)
    text = text_of(value)
    try:
        length = len(value)
    except Exception:
        length = None
    if length is not None and length > _COMPARED:
        return (id(value), length), "{} of {}".format(type_name(value), length)
    whole = text_of(value, 1 << 20)
    if " at 0x" in whole:  # a representation that says nothing: what it holds may
        whole += text_of(getattr(value, "__dict__", None), 1 << 20)
    return (id(value), length, hash(whole)), text


_MOST = 1000  # elements that are looked at
_PLAIN = (bool, int, float, str, bytes, type(None))
# What they hold is code, not state.
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def holds(value):
    """There is something in it that an editor can unfold."""
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        return len(value) > 0
    return not isinstance(value, _CODE) and bool(getattr(value, "__dict__", None))


def held_by(value, expression):
    """(name, value, expression that gives it, or None) of what a value holds; ``expression`` gives the value."""
    if isinstance(value, dict):
        return [
            (text_of(key, 80), one, _item(expression, key))
            for key, one in itertools.islice(list(value.items()), _MOST)
        ]
    if isinstance(value, (list, tuple)):
        return [
            (str(at), one, _item(expression, at)) for at, one in enumerate(itertools.islice(value, _MOST))
        ]
    if isinstance(value, (set, frozenset)):
        return [(str(at), one, None) for at, one in enumerate(itertools.islice(list(value), _MOST))]
    found = list(getattr(value, "__dict__", {}).items())[:_MOST]
    return [
        (str(name), one, "({}).{}".format(expression, name) if str(name).isidentifier() else None)
        for name, one in found
    ]


def _item(expression, key):
    # A subclass may have any representation.
    return "({})[{!r}]".format(expression, key) if type(key) in _PLAIN else None
