"""What takes the memory of the process: objects by type, the largest ones, and the collections that grow."""

import collections
import gc
import sys
import types

from .holders import LOOKED_INTO, holder_of, is_ours
from .names import SKIPPED, by_name, is_dull, own_modules
from .parts_of_values import entries_in
from .texts import PLAIN, TEXT_LENGTH, name_of_type, text_of, type_of, whole_text

_GROWING = (dict, list, set, frozenset, tuple, collections.deque, bytearray)
_LIKE_OURS = (types.FrameType, types.FunctionType, dict)


def census(wanted):
    """Objects and bytes by type, and the collections that the service's own modules lead to, by their path."""
    sizes = {path: [type_of(one), _count(one), _size(one)] for path, one in _collections(wanted["most"])}
    return {"types": _types(_objects()), "collections": sizes}


def largest(wanted):
    """Objects and bytes by type, and the objects that take most bytes themselves, with who holds them."""
    import heapq

    chosen, most = [], wanted["most"]  # (bytes, a number that differs, object), the smallest first

    def looked_at():
        for number, one in enumerate(_objects()):
            size = _size(one)
            if len(chosen) < most:
                heapq.heappush(chosen, (size, number, one))
            elif size > chosen[0][0]:
                heapq.heapreplace(chosen, (size, number, one))
            yield one

    kinds = _types(looked_at())
    found, objects = sorted(chosen, key=lambda one: one[:2], reverse=True), []
    # A collector's look at who holds what sees the lists and tuples that hold them here.
    ours = {id(chosen), id(found)}.union(map(id, found))
    for size, _, one in found:
        fields = [type_of(one), size, _count(one), text_of(one, TEXT_LENGTH), holder_of(one, set(ours))]
        objects.append(dict(zip(("type", "size", "count", "text", "held_by"), fields)))
    return {"types": kinds, "objects": objects}


def _objects():
    """All objects, each once, but for modules, functions and classes that nobody tracks.

    What is no longer in use is collected first. Of what the collector does not track (texts, numbers, tuples of them) there is
    what tracked objects hold.
    """
    gc.collect()
    gc.disable()  # no use while nothing is let go, and the branch ends anyway
    met, is_tracked, referents = set(), gc.is_tracked, gc.get_referents
    queue = [
        one
        for one in gc.get_objects()
        if one is not met and (type(one) not in _LIKE_OURS or not is_ours(one))
    ]
    while queue:
        one = queue.pop()
        yield one
        for held in referents(one):
            if not is_tracked(held) and id(held) not in met and not isinstance(held, SKIPPED):
                met.add(id(held))
                queue.append(held)


def _types(objects):
    """Number and bytes by the name of the type."""
    kinds = {}
    for one in objects:
        kind = kinds.get(type(one))
        if kind is None:
            kind = kinds[type(one)] = [0, 0]
        kind[0] += 1
        kind[1] += _size(one)
    named = {}
    for kind, (count, size) in kinds.items():
        counted = named.setdefault(name_of_type(kind), [0, 0])
        counted[0] += count
        counted[1] += size
    return named


def _size(value):
    try:
        return sys.getsizeof(value)
    except Exception:
        return 0


def _collections(most):
    """(path, collection) breadth first; of one with many entries only some are looked into for others."""
    queue, seen, found = collections.deque(), set(), 0
    for name, module in own_modules():
        prefix = "" if name == "__main__" else name + "."
        for key, value in sorted(dict(vars(module)).items(), key=by_name):
            if not is_dull(key, value):
                queue.append((prefix + key, value, 8))
    while queue and found < most:
        at, value, left = queue.popleft()
        if isinstance(value, PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if _count(value) is not None:
            found += 1
            yield at, value
        if left and not isinstance(value, (set, frozenset)):
            queue.extend(
                (at + step, part, left - 1) for step, part in (entries_in(value) or ())[:LOOKED_INTO]
            )


def _count(value):
    """Entries; None where it is no collection."""
    if isinstance(value, _GROWING):
        return len(value)
    if type(value).__name__ == "_lru_cache_wrapper":
        return value.cache_info().currsize
    return None


def newest_entries(wanted):
    """The newest keys or elements of collections, as texts, by the collection's path."""
    paths, found = set(wanted["paths"]), {}
    for path, one in _collections(wanted["collections"]):
        if path in paths and isinstance(one, _GROWING):
            entries = list(one)[-wanted["most"] :]
            found[path] = [
                whole_text(entry) if isinstance(entry, PLAIN) else text_of(entry, TEXT_LENGTH)
                for entry in entries
            ]
    return found
