"""How a value is told: its text, cut off where it is long, its type, its length."""

import _thread
import binascii

TEXT_LENGTH = 200  # characters of a value
WHOLE_LENGTH = 20000  # of the value that was asked for
_LOCKS = (_thread.LockType, _thread.RLock)
PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range)


def summary_of(value):
    length = length_of(value)
    return type_of(value) if length is None else "{} of {}".format(type_of(value), length)


def length_of(value):
    try:
        return (
            len(value)
            if isinstance(value, (dict, list, tuple, set, frozenset, str, bytes, bytearray))
            else None
        )
    except Exception:
        return None


def type_of(value):
    return name_of_type(type(value))


def has_own_text(value):
    """Its representation is no address, which would differ from process to process."""
    return type(value).__repr__ is not object.__repr__ and " at 0x" not in text_of(value, TEXT_LENGTH)


def text_of_opaque(value):
    """Of a value that is not looked into: its own text, or its type, of a lock with whether somebody holds it."""
    if has_own_text(value):
        return text_of(value, TEXT_LENGTH)
    if isinstance(value, _LOCKS):
        held = "locked" if text_of(value, TEXT_LENGTH).startswith("<locked ") else "unlocked"
        return "{} {}".format(held, type_of(value))
    return type_of(value)


def whole_text(value):
    """A plain value so that two are told apart: a long one with its length and a checksum of all of it."""
    text = text_of(value, TEXT_LENGTH)
    if not isinstance(value, (str, bytes, bytearray)) or len(value) <= TEXT_LENGTH:
        return text
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return "{} (length {}, crc32 {:08x})".format(text, len(value), binascii.crc32(data))


def text_of(value, most):
    try:
        if isinstance(value, (str, bytes, bytearray)) and len(value) > most:
            value, dots = value[:most], "..."
        else:
            dots = ""
        text = repr(value) + dots
    except BaseException as error:
        return "<{} whose representation raises {}>".format(type_of(value), type(error).__name__)
    return text if len(text) <= most + 8 else text[:most] + "..."


def name_of_type(kind):
    name = getattr(kind, "__qualname__", kind.__name__)
    return name if kind.__module__ in ("builtins", "__main__") else "{}.{}".format(kind.__module__, name)
