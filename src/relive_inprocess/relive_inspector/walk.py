"""All values that the service's own modules lead to, and sums over them."""

import collections
import gc
import itertools
import time

from .names import roots
from .parts_of_values import leaves_of, parts_in, stands_for_itself
from .texts import PLAIN, TEXT_LENGTH, has_own_text, summary_of, text_of, type_of, whole_text

_PLAIN_TYPES, _HASHED_ONCE = frozenset(PLAIN), frozenset((str, bytes))
_PLAIN_VALUE, _TEXT_OF_IT, _DEEPER = range(3)  # what a value is that was walked by
_MODULUS = (1 << 61) - 1


def dump(wanted):
    """All values that the service's own modules lead to, by their path."""
    found, cut, seen = {}, False, {}
    for name, value in roots():
        part, is_cut = leaves_of(value, name, wanted["depth"], wanted["most"] - len(found), seen)
        found.update(part)
        cut = cut or is_cut
    return {"values": found, "cut": cut}


def sum_up(wanted):
    """Sums over the values of ``dump``, parted by their paths: equal in two commits of one life where these values are."""
    sums, count, cut, until = [0] * wanted["buckets"], 0, False, time.monotonic() + wanted["seconds"]
    for _trail, mark, kind, value in _walk(wanted["depth"]):
        if count >= wanted["most"] or (count % 1024 == 0 and time.monotonic() > until):
            return {"sums": sums, "count": count, "cut": True}
        count += 1
        cut = cut or kind == _DEEPER
        sums[mark % len(sums)] += hash((mark, kind, type(value).__name__, _essence(value))) % _MODULUS
    return {"sums": sums, "count": count, "cut": cut}


def tell_changed(wanted):
    """As ``dump``, of the values whose sums are in ``among``; as many are looked at as were summed."""
    among, found, cut = set(wanted["among"]), {}, False
    for trail, mark, kind, value in itertools.islice(_walk(wanted["depth"]), wanted["summed"]):
        cut = cut or kind == _DEEPER
        if mark % wanted["buckets"] not in among:
            continue
        if len(found) >= wanted["most"]:
            return {"values": found, "cut": True}
        found[_path(trail)] = whole_text(value) if kind == _PLAIN_VALUE else value
    return {"values": found, "cut": cut}


def _walk(depth):
    """(trail, mark, kind, value) of what ``leaves_of`` tells, in its order: ``value`` is its text but where it is a plain one.

    A trail is the last step of a path, and the trail before it; a mark says the same in a number, which takes no text to be made.
    """
    seen = {}
    gc.disable()  # it would look at all objects again and again, and nothing that is made here is garbage before the end
    for name, root in roots():
        queue = collections.deque([((None, name), hash(name), root, depth)])
        while queue:
            trail, mark, value, left = queue.popleft()
            if type(value) in _PLAIN_TYPES or isinstance(value, PLAIN):
                yield trail, mark, _PLAIN_VALUE, value
                continue
            if stands_for_itself(value):
                yield trail, mark, _TEXT_OF_IT, text_of(value, TEXT_LENGTH)
                continue
            if id(value) in seen:
                yield trail, mark, _TEXT_OF_IT, "the same as {}".format(_path(seen[id(value)]))
                continue
            seen[id(value)] = trail
            parts = parts_in(value) if left else None
            if parts is None:
                text = text_of(value, TEXT_LENGTH) if has_own_text(value) else type_of(value)
                yield trail, mark, _TEXT_OF_IT if left else _DEEPER, text
                continue
            yield trail, mark, _TEXT_OF_IT, summary_of(value)
            queue.extend(((trail, step), hash((mark, step)), part, left - 1) for step, part in parts)


def _path(trail):
    steps = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return "".join(reversed(steps))


def _essence(value):
    """What is equal in two plain values where their texts are; a long one is not spelled."""
    if type(value) in _HASHED_ONCE or isinstance(value, (str, bytes)):
        return value
    return bytes(value) if isinstance(value, bytearray) else repr(value)
