"""What is in a value: entries of containers, attributes of objects."""

import collections
import enum
import sys

from .names import SKIPPED
from .texts import PLAIN, TEXT_LENGTH, has_own_text, summary_of, text_of, type_of, whole_text

_ATOMS = {}  # by type
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
            found.append((at, text_of(value, TEXT_LENGTH) if has_own_text(value) else type_of(value)))
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
    loops = sys.modules.get("asyncio.base_events")
    if loops is not None and isinstance(value, loops.BaseEventLoop):
        return None
    if isinstance(value, dict):
        return [("[{}]".format(text_of(key, TEXT_LENGTH)), one) for key, one in list(dict.items(value))]
    if isinstance(value, (list, tuple)):
        return [("[{}]".format(number), one) for number, one in enumerate(list(value))]
    if isinstance(value, (set, frozenset)):
        return [("{{{}}}".format(text_of(one, TEXT_LENGTH)), True) for one in sorted(set(value), key=repr)]
    try:
        attributes = dict(vars(value))
    except Exception:  # it has none, or is a proxy (as Flask's request) that stands for nothing now
        attributes = {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                attributes.setdefault(name, object.__getattribute__(value, name))
            except AttributeError:
                pass
    kept = [(name, one) for name, one in attributes.items() if not isinstance(one, SKIPPED)]
    return [
        ("." + str(name), one) for name, one in kept if str(name) not in ("__dict__", "__weakref__")
    ] or None


def entries_in(value):
    if isinstance(value, collections.deque):
        return parts_in(list(value))
    return parts_in(value)
