"""What is in a value: entries of containers, attributes of objects."""

import collections
import enum
import sys

from .names import SKIPPED
from .texts import PLAIN, TEXT_LENGTH, summary_of, text_of, text_of_opaque, whole_text

_ATOMS, _SLOTS = {}, {}  # by type
_PLAIN_TYPES = frozenset(PLAIN)
_MODULES_OF_ATOMS = (
    "datetime",
    "decimal",
    "fractions",
    "ipaddress",
    "pathlib",
    "pathlib._local",
    "uuid",
    "zoneinfo",
)


def leaves_of(root, path, depth, most, seen=None):
    """([(path, text)], whether something was left out): containers and attributes, breadth first; each object once."""
    found, cut = [], False
    seen = {} if seen is None else seen
    queue = collections.deque([(path, root, depth)])
    while queue:
        at, value, left = queue.popleft()
        if len(found) >= most:
            return found, True
        if isinstance(value, PLAIN):
            found.append((at, whole_text(value)))
            continue
        if stands_for_itself(value):
            found.append((at, text_of(value, TEXT_LENGTH)))
            continue
        if id(value) in seen:
            found.append((at, "the same as {}".format(seen[id(value)] or "the value")))
            continue
        seen[id(value)] = at
        parts = parts_in(value) if left else None
        if parts is None:
            cut = cut or not left
            found.append((at, text_of_opaque(value)))
            continue
        found.append((at, summary_of(value)))
        queue.extend((at + step, part, left - 1) for step, part in parts[:most])
        cut = cut or len(parts) > most
    return found, cut


def stands_for_itself(value):
    """It is told by its text, wherever it is met: what is in it is nobody's affair, and it never changes."""
    kind = type(value)
    known = _ATOMS.get(kind)
    if known is None:
        known = _ATOMS[kind] = issubclass(kind, enum.Enum) or kind.__module__ in _MODULES_OF_ATOMS
    return known


def parts_in(value):
    """[(step of the path, value)]; None where it is no container and has no attributes, or is an event loop."""
    found = steps_in(value)
    if found is None:
        return None
    spelled, steps = found
    return [(spelled(step), part) for step, part in steps]


def steps_in(value):
    """(what spells a step, [(step, value)]); None as of ``parts_in``. A step is a number or a text."""
    if isinstance(value, dict):
        return _spelled_key, [
            (key if type(key) is str else _SpelledKey(text_of(key, TEXT_LENGTH)), one)
            for key, one in list(dict.items(value))
        ]
    if isinstance(value, (list, tuple)):
        return "[{}]".format, list(enumerate(list(value)))
    if isinstance(value, (set, frozenset)):
        return "{{{}}}".format, [(text_of(one, TEXT_LENGTH), True) for one in sorted(set(value), key=repr)]
    loops = sys.modules.get("asyncio.base_events")
    if loops is not None and isinstance(value, loops.BaseEventLoop):
        return None
    kept = [
        (name, one)
        for name, one in _attributes_of(value)
        if (type(one) in _PLAIN_TYPES or not isinstance(one, SKIPPED))
        and type(name) is str
        and not name.startswith("_relive_")
    ]
    return (".{}".format, kept) if kept else None


class _SpelledKey(str):
    """The text of a key that is no text itself."""

    __slots__ = ()


def _spelled_key(key):
    return "[{}]".format(key if type(key) is _SpelledKey else text_of(key, TEXT_LENGTH))


def _attributes_of(value):
    """[(name, value)]; what the recorder noted on objects of libraries is among them."""
    try:
        found = list(vars(value).items())
    except Exception:  # it has none, or is a proxy (as Flask's request) that stands for nothing now
        found = []
    kind = type(value)
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = _slots_of(kind)
    if slots:
        known = {name for name, _ in found}
        for name in slots:
            try:
                if name not in known:
                    found.append((name, object.__getattribute__(value, name)))
            except AttributeError:
                pass
    return found


def _slots_of(kind):
    found = {}
    for one in kind.__mro__:
        slots = vars(one).get("__slots__", ())
        found.update(dict.fromkeys((slots,) if isinstance(slots, str) else map(str, slots)))
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def entries_in(value):
    if isinstance(value, collections.deque):
        return parts_in(list(value))
    return parts_in(value)
