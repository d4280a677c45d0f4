"""All values that the service's own modules lead to, and sums over them."""

import collections
import gc
import itertools
import time

from .names import roots
from .parts_of_values import leaves_of, stands_for_itself, steps_in
from .texts import PLAIN, TEXT_LENGTH, length_of, summary_of, text_of, text_of_opaque, type_of, whole_text

_PLAIN_VALUE, _TEXT_OF_IT, _DEEPER, _SUMMARY = range(4)  # what a value is that was walked by
_TAGS = {kind: number for number, kind in enumerate(PLAIN)}
_HASHED_AS_THEY_ARE = frozenset((_TAGS[str], _TAGS[bytes]))
_NUMBER = _TAGS[int]
_MANY = 64  # entries of a container, each of which has a bucket with all that is in it
_MODULUS = (1 << 61) - 1  # of Python's hashes of numbers


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
    most = wanted["most"]
    for _trail, _spelled, _step, mark, bucket, kind, value in _walk(wanted["depth"], len(sums)):
        if count >= most or (count % 1024 == 0 and time.monotonic() > until):
            return {"sums": sums, "count": count, "cut": True, "is_whole": False}
        count += 1
        if kind == _DEEPER:
            cut = True
        tag = _TAGS.get(type(value)) if kind == _PLAIN_VALUE else None
        # Most are equal where their texts are, so none is made. Hashes are equal of -1 and -2, and of numbers modulo 2**61 - 1.
        if tag in _HASHED_AS_THEY_ARE or (tag == _NUMBER and 0 <= value < _MODULUS):
            sums[bucket] += hash((mark, tag, value)) & _MODULUS
        else:
            sums[bucket] += hash((mark, kind, _essence(kind, value))) & _MODULUS
    return {"sums": sums, "count": count, "cut": cut, "is_whole": True}


def tell_changed(wanted):
    """As ``dump``, of the values whose sums are in ``among``; ``summed``: how many were, where that was not all."""
    among, summed, found, cut = set(wanted["among"]), wanted["summed"], {}, False
    walked = _walk(wanted["depth"], wanted["buckets"], among if summed is None else None)
    for trail, spelled, step, _mark, bucket, kind, value in itertools.islice(walked, summed):
        if kind == _DEEPER:
            cut = True
        if bucket not in among:
            continue
        if len(found) >= wanted["most"]:
            return {"values": found, "cut": True}
        found[_path((trail, spelled, step))] = _TEXTS[kind](value)
    return {"values": found, "cut": cut}


def _walk(depth, buckets, among=None):
    """(trail, spelled, step, mark, bucket, kind, value) of what ``leaves_of`` tells, plain values before what is deeper.

    The first three name a path: the trail of what it is in, what spells the step from there, and the step; together they are a
    trail. A mark says the same in a number, which takes no text to be made. ``value`` is the value, or its text (``_TEXT_OF_IT``,
    ``_DEEPER``).

    Whatever is in an entry of a large container has the entry's bucket. With ``among`` an entry whose bucket is not there is left
    out with all that is in it: of a million values, of which a few differ, few are looked at. What such an entry holds, too, is
    told where it is met next, which is so in both commits.
    """
    seen = {}
    gc.disable()  # it would look at all objects again and again, and nothing that is made here is garbage before the end
    for name, root in roots():
        mark = hash(name)
        if _is_plain(root):
            yield None, str, name, mark, mark % buckets, _PLAIN_VALUE, root
            continue
        queue = collections.deque([(None, str, name, mark, None, root, depth)])
        while queue:
            above, spells, at, mark, entry, value, left = queue.popleft()
            bucket = mark % buckets if entry is None else entry
            if stands_for_itself(value):
                yield above, spells, at, mark, bucket, _TEXT_OF_IT, text_of(value, TEXT_LENGTH)
                continue
            if id(value) in seen:
                same = "the same as {}".format(_path(seen[id(value)]))
                yield above, spells, at, mark, bucket, _TEXT_OF_IT, same
                continue
            trail = seen[id(value)] = (above, spells, at)
            parts = steps_in(value) if left else None
            if parts is None:
                kind = _TEXT_OF_IT if left else _DEEPER
                yield above, spells, at, mark, bucket, kind, text_of_opaque(value)
                continue
            yield above, spells, at, mark, bucket, _SUMMARY, value
            spelled, steps = parts
            begins = entry is None and len(steps) > _MANY
            for step, part in steps:
                mark_there = hash((mark, step))
                here = mark_there % buckets if begins else entry
                if begins and among is not None and here not in among:
                    continue
                if _is_plain(part):
                    bucket = mark_there % buckets if here is None else here
                    yield trail, spelled, step, mark_there, bucket, _PLAIN_VALUE, part
                else:
                    queue.append((trail, spelled, step, mark_there, here, part, left - 1))


def _is_plain(value):
    return type(value) in _TAGS or isinstance(value, PLAIN)


def _path(trail):
    steps = []
    while trail is not None:
        trail, spelled, step = trail
        steps.append(spelled(step))
    return "".join(reversed(steps))


def _essence(kind, value):
    """What is equal in two values where their texts are; a long one is not spelled."""
    if kind == _SUMMARY:
        return type_of(value), length_of(value)
    if kind != _PLAIN_VALUE or isinstance(value, (str, bytes)):
        return type(value).__name__, value
    return type(value).__name__, bytes(value) if isinstance(value, bytearray) else repr(value)


_TEXTS = {_PLAIN_VALUE: whole_text, _TEXT_OF_IT: str, _DEEPER: str, _SUMMARY: summary_of}
