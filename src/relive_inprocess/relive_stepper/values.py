"""Values in words: their type and text, and what two are compared by."""

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
