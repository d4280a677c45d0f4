"""What looks at a Python process from within, in a branch: stacks with locals, an expression's value, the service's own globals.

Its text is compiled in that process (``inspection.python.asking``), so it uses the standard library only and runs on CPython 3.8
to 3.14. ``answer`` takes and gives JSON. Everything is bounded: ``most`` leaves, ``depth`` levels, some characters of each text.
"""

import binascii
import collections
import gc
import itertools
import json
import sys
import threading
import time
import traceback
import types

_TEXT = 200  # characters of a value
_WHOLE = 20000  # of the value that was asked for
_SKIPPED = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range)
_PLAIN_TYPES, _HASHED_ONCE = frozenset(_PLAIN), frozenset((str, bytes))


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps(_KINDS[wanted["kind"]](wanted)).encode()
    except BaseException as error:  # SystemExit, too: whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _evaluate(wanted):
    names = _names(wanted.get("module"))
    if names is None:
        return {"failed": "there is no module {!r} in the process".format(wanted["module"])}
    try:
        value = eval(compile(wanted["expression"], "<expression>", "eval"), names)
        leaves = _leaves(value, "", wanted["depth"], wanted["most"]) if wanted["depth"] else ([], False)
        return {
            "type": _type(value),
            "text": _text(value, _WHOLE),
            "length": _length(value),
            "parts": leaves[0],
            "cut": leaves[1],
        }
    except BaseException as error:
        within = error.__traceback__ and error.__traceback__.tb_next  # without this function's own frame
        lines = traceback.format_exception(type(error), error, within)
        return {
            "raised": {
                "type": type(error).__name__,
                "message": _message(error),
                "traceback": "".join(lines)[-_WHOLE:],
            }
        }


def _message(error):
    try:
        return str(error)[:_WHOLE]
    except Exception:
        return ""


def _names(module):
    """The names that an expression may use: those of a module; else of the program, and all modules by their names."""
    if module is not None:
        found = sys.modules.get(module)
        return dict(vars(found)) if found is not None else None
    names = {name: one for name, one in list(sys.modules.items()) if "." not in name}
    names.update(vars(sys.modules["__main__"]))
    return names


def _stacks(wanted):
    own = threading.get_ident()
    threads = {one.ident: one for one in list(threading._active.values())}
    found = []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        found.append(
            {
                "name": thread.name if thread is not None else str(ident),
                "native": getattr(thread, "native_id", None),
                "frames": _frames(_without_ours(frame) if ident == own else frame, wanted["most"]),
            }
        )
    return {"threads": found, "tasks": _tasks(), "globals": _globals(wanted["most"])}


def _without_ours(frame):
    """Without this program's own frames, and that of the pending call in which it runs."""
    while frame is not None and frame.f_code.co_filename == "<relive>":
        frame = frame.f_back
    if (
        frame is not None
        and frame.f_code.co_filename == "<string>"
        and "raise_signal" in frame.f_code.co_names
    ):
        frame = frame.f_back
    return frame


def _frames(frame, most):
    found = []
    while frame is not None and len(found) < most:
        found.append(
            {
                "file": frame.f_code.co_filename,
                "line": frame.f_lineno,
                "function": getattr(frame.f_code, "co_qualname", frame.f_code.co_name),
                "locals": {
                    str(name): _text(value, _TEXT)
                    for name, value in list(frame.f_locals.items())[:100]
                    if not (frame.f_locals is frame.f_globals and _is_dull(name, value))
                },
            }
        )
        frame = frame.f_back
    return found


def _tasks():
    """The tasks of asyncio that have not ended: their coroutines from the outermost in, and what the innermost waits for."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    import gc

    found = []
    for task in gc.get_objects():
        if not isinstance(task, asyncio.Task) or task.done():
            continue
        coroutines, one = [], task.get_coro()
        while one is not None and len(coroutines) < 100:
            frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None)
            if frame is None:
                break
            coroutines.append("{} {}:{}".format(one.__name__, frame.f_code.co_filename, frame.f_lineno))
            one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None)
        waits = getattr(task, "_fut_waiter", None)
        is_task = isinstance(waits, asyncio.Task)
        found.append(
            {
                "name": task.get_name(),
                "coroutines": coroutines,
                "waits_for": waits.get_name() if is_task else _type(waits) if waits is not None else None,
            }
        )
    return sorted(found, key=lambda one: one["name"])


def _globals(most):
    found = {}
    for name, module in _own_modules():
        values = {
            str(key): _text(value, _TEXT)
            for key, value in list(vars(module).items())
            if not _is_dull(key, value)
        }
        if values:
            found[name] = dict(list(values.items())[:most])
    return found


def _modules(_wanted):
    """How many of the service's own modules have anything in them that could be told."""
    own = (vars(module) for _, module in _own_modules())
    return {"count": sum(any(not _is_dull(*item) for item in list(names.items())) for names in own)}


def _own_modules():
    """The service's own: no part of Python, none that was installed."""
    import sysconfig

    paths = sysconfig.get_paths()
    foreign = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths)
    found = []
    for name, module in sorted(dict(sys.modules).items(), key=_name_first):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or path.startswith(foreign) or name.startswith("relive_"):
            continue
        if "/site-packages/" in path or "/dist-packages/" in path or name == "sitecustomize":
            continue
        if name != "__main__" and module is sys.modules.get("__main__"):
            continue
        found.append((name, module))
    return found


def _name_first(item):
    return str(item[0])


def _dump(wanted):
    """All values that the service's own modules lead to, by their path."""
    found, cut, seen = {}, False, {}
    for name, value in _roots():
        part, is_cut = _leaves(value, name, wanted["depth"], wanted["most"] - len(found), seen)
        found.update(part)
        cut = cut or is_cut
    return {"values": found, "cut": cut}


def _roots():
    """(name, value) of the globals of the service's own modules."""
    for name, module in _own_modules():
        prefix = "" if name == "__main__" else name + "."
        for key, value in sorted(dict(vars(module)).items(), key=_name_first):
            if not _is_dull(key, value):
                yield prefix + key, value


def _sums(wanted):
    """Sums over the values of ``_dump``, parted by their paths: equal in two commits of one life where these values are."""
    sums, count, cut, until = [0] * wanted["buckets"], 0, False, time.monotonic() + wanted["seconds"]
    for _trail, mark, kind, value in _walk(wanted["depth"]):
        if count >= wanted["most"] or (count % 1024 == 0 and time.monotonic() > until):
            return {"sums": sums, "count": count, "cut": True}
        count += 1
        cut = cut or kind == _DEEPER
        sums[mark % len(sums)] += hash((mark, kind, type(value).__name__, _essence(value))) % _MODULUS
    return {"sums": sums, "count": count, "cut": cut}


def _changed(wanted):
    """As ``_dump``, of the values whose sums are in ``among``; as many are looked at as were summed."""
    among, found, cut = set(wanted["among"]), {}, False
    for trail, mark, kind, value in itertools.islice(_walk(wanted["depth"]), wanted["summed"]):
        cut = cut or kind == _DEEPER
        if mark % wanted["buckets"] not in among:
            continue
        if len(found) >= wanted["most"]:
            return {"values": found, "cut": True}
        found[_path(trail)] = _whole(value) if kind == _PLAIN_VALUE else value
    return {"values": found, "cut": cut}


def _walk(depth):
    """(trail, mark, kind, value) of what ``_leaves`` tells, in its order: ``value`` is its text but where it is a plain one.

    A trail is the last step of a path, and the trail before it; a mark says the same in a number, which takes no text to be made.
    """
    seen = {}
    gc.disable()  # it would look at all objects again and again, and nothing that is made here is garbage before the end
    for name, root in _roots():
        queue = collections.deque([((None, name), hash(name), root, depth)])
        while queue:
            trail, mark, value, left = queue.popleft()
            if type(value) in _PLAIN_TYPES or isinstance(value, _PLAIN):
                yield trail, mark, _PLAIN_VALUE, value
                continue
            if id(value) in seen:
                yield trail, mark, _TEXT_OF_IT, "the same as {}".format(_path(seen[id(value)]))
                continue
            seen[id(value)] = trail
            parts = _parts(value) if left else None
            if parts is None:
                text = _text(value, _TEXT) if _has_own_text(value) else _type(value)
                yield trail, mark, _TEXT_OF_IT if left else _DEEPER, text
                continue
            yield trail, mark, _TEXT_OF_IT, _summary(value)
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


def _is_dull(name, value):
    return (str(name).startswith("__") and str(name).endswith("__")) or isinstance(value, _SKIPPED)


def _leaves(root, path, depth, most, seen=None):
    """([(path, text)], whether something was left out): containers and attributes, breadth first; each object once."""
    found, cut = [], False
    seen = {} if seen is None else seen
    queue = collections.deque([(path, root, depth)])
    while queue:
        at, value, left = queue.popleft()
        if len(found) >= most:
            return found, True
        if isinstance(value, _PLAIN):
            found.append((at, _whole(value)))
            continue
        if id(value) in seen:
            found.append((at, "the same as {}".format(seen[id(value)] or "the value")))
            continue
        seen[id(value)] = at
        parts = _parts(value) if left else None
        if parts is None:
            cut = cut or not left
            found.append((at, _text(value, _TEXT) if _has_own_text(value) else _type(value)))
            continue
        found.append((at, _summary(value)))
        queue.extend((at + step, part, left - 1) for step, part in parts[:most])
        cut = cut or len(parts) > most
    return found, cut


def _parts(value):
    """[(step of the path, value)]; None where it is no container and has no attributes."""
    if isinstance(value, dict):
        return [("[{}]".format(_text(key, _TEXT)), one) for key, one in list(dict.items(value))]
    if isinstance(value, (list, tuple)):
        return [("[{}]".format(number), one) for number, one in enumerate(list(value))]
    if isinstance(value, (set, frozenset)):
        return [("{{{}}}".format(_text(one, _TEXT)), True) for one in sorted(set(value), key=repr)]
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
    kept = [(name, one) for name, one in attributes.items() if not isinstance(one, _SKIPPED)]
    return [
        ("." + str(name), one) for name, one in kept if str(name) not in ("__dict__", "__weakref__")
    ] or None


def _summary(value):
    length = _length(value)
    return _type(value) if length is None else "{} of {}".format(_type(value), length)


def _length(value):
    try:
        return (
            len(value)
            if isinstance(value, (dict, list, tuple, set, frozenset, str, bytes, bytearray))
            else None
        )
    except Exception:
        return None


def _type(value):
    return _named(type(value))


def _has_own_text(value):
    """Its representation is no address, which would differ from process to process."""
    return type(value).__repr__ is not object.__repr__ and " at 0x" not in _text(value, _TEXT)


def _whole(value):
    """A plain value so that two are told apart: a long one with its length and a checksum of all of it."""
    text = _text(value, _TEXT)
    if not isinstance(value, (str, bytes, bytearray)) or len(value) <= _TEXT:
        return text
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return "{} (length {}, crc32 {:08x})".format(text, len(value), binascii.crc32(data))


def _text(value, most):
    try:
        if isinstance(value, (str, bytes, bytearray)) and len(value) > most:
            value, dots = value[:most], "..."
        else:
            dots = ""
        text = repr(value) + dots
    except BaseException as error:
        return "<{} whose representation raises {}>".format(_type(value), type(error).__name__)
    return text if len(text) <= most + 8 else text[:most] + "..."


def _census(wanted):
    """Objects and bytes by type, and the collections that the service's own modules lead to, by their path."""
    sizes = {path: [_type(one), _count(one), _size(one)] for path, one in _collections(wanted["most"])}
    return {"types": _types(_objects()), "collections": sizes}


def _largest(wanted):
    """Objects and bytes by type, and the objects that take most bytes themselves, with who holds them."""
    import gc
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
        fields = [_type(one), size, _count(one), _text(one, _TEXT), _holder(one, gc, set(ours))]
        objects.append(dict(zip(("type", "size", "count", "text", "held_by"), fields)))
    return {"types": kinds, "objects": objects}


def _objects():
    """All objects, each once, but for modules, functions and classes that nobody tracks.

    What is no longer in use is collected first. Of what the collector does not track (texts, numbers, tuples of them) there is
    what tracked objects hold.
    """
    import gc

    gc.collect()
    gc.disable()  # no use while nothing is let go, and the branch ends anyway
    met, is_tracked, referents = set(), gc.is_tracked, gc.get_referents
    queue = [
        one
        for one in gc.get_objects()
        if one is not met and (type(one) not in _LIKE_OURS or not _is_ours(one))
    ]
    while queue:
        one = queue.pop()
        yield one
        for held in referents(one):
            if not is_tracked(held) and id(held) not in met and not isinstance(held, _SKIPPED):
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
        counted = named.setdefault(_named(kind), [0, 0])
        counted[0] += count
        counted[1] += size
    return named


def _size(value):
    try:
        return sys.getsizeof(value)
    except Exception:
        return 0


def _is_ours(value):
    """Of this program, which is in the process for the question only: its frames, and its names."""
    if isinstance(value, types.FrameType):
        return value.f_code.co_filename == "<relive>"
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename == "<relive>"
    return value is globals()


def _collections(most):
    """(path, collection) breadth first; of one with many entries only some are looked into for others."""
    queue, seen, found = collections.deque(), set(), 0
    for name, module in _own_modules():
        prefix = "" if name == "__main__" else name + "."
        for key, value in sorted(dict(vars(module)).items(), key=_name_first):
            if not _is_dull(key, value):
                queue.append((prefix + key, value, 8))
    while queue and found < most:
        at, value, left = queue.popleft()
        if isinstance(value, _PLAIN) or id(value) in seen:
            continue
        seen.add(id(value))
        if _count(value) is not None:
            found += 1
            yield at, value
        if left and not isinstance(value, (set, frozenset)):
            queue.extend(
                (at + step, part, left - 1) for step, part in (_parts_of(value) or ())[:_LOOKED_INTO]
            )


def _count(value):
    """Entries; None where it is no collection."""
    if isinstance(value, _GROWING):
        return len(value)
    if type(value).__name__ == "_lru_cache_wrapper":
        return value.cache_info().currsize
    return None


def _parts_of(value):
    if isinstance(value, collections.deque):
        return _parts(list(value))
    return _parts(value)


def _entries(wanted):
    """The newest keys or elements of collections, as texts, by the collection's path."""
    paths, found = set(wanted["paths"]), {}
    for path, one in _collections(wanted["collections"]):
        if path in paths and isinstance(one, _GROWING):
            entries = list(one)[-wanted["most"] :]
            found[path] = [
                _whole(entry) if isinstance(entry, _PLAIN) else _text(entry, _TEXT) for entry in entries
            ]
    return found


def _holders(wanted):
    """Who holds an object of each type: the path from a module, or from a function that runs."""
    import gc

    examples = {}
    for one in gc.get_objects():
        name = _named(type(one))
        if name in wanted["types"]:
            examples.setdefault(name, []).append(one)
    ours = {id(examples)}.union(map(id, examples.values()))
    # The middle one: neither what was made at the start nor what is just in use.
    return {name: _holder(ones[len(ones) // 2], gc, set(ours)) for name, ones in examples.items()}


def _holder(value, gc, ours):
    """Referrers of referrers, level by level, until a module, or a function that runs, is among them.

    ``ours``: identities of what this program itself holds objects by.
    """
    modules = {
        id(vars(one)): name for name, one in list(sys.modules.items()) if isinstance(one, types.ModuleType)
    }
    running, steps, level = _running(), {id(value): ()}, {id(value): value}
    for _ in range(_LEVELS):
        for number, one in level.items():
            if number in running:
                return _spelled(running[number], one, steps)
        ours.update((id(level), id(steps)))
        above = {}
        for holder in gc.get_referrers(*level.values()):
            if id(holder) in steps or id(holder) in ours or holder is above or _is_ours(holder):
                continue
            if isinstance(holder, types.FrameType):
                continue
            held = next((level[id(part)] for part in gc.get_referents(holder) if id(part) in level), None)
            if held is None:
                continue
            steps[id(holder)] = step = (_step(holder, held), held)
            ours.add(id(step))
            if id(holder) in modules:
                name = modules[id(holder)]
                return _spelled(("" if name == "__main__" else name + ".") + _as_name(step[0]), held, steps)
            above[id(holder)] = holder
            if len(above) >= _LOOKED_INTO:
                break
        level = above
    return None


def _running():
    """Where each local of the functions that run stands, by its identity. No collector knows of them from 3.11 on."""
    found, own = {}, threading.get_ident()
    for ident, innermost in sys._current_frames().items():
        for frame in _stack(_without_ours(innermost) if ident == own else innermost):
            code = frame.f_code
            if frame.f_locals is not frame.f_globals:
                for name, value in list(frame.f_locals.items()):
                    where = "{}() {}:{}: {}".format(code.co_name, code.co_filename, frame.f_lineno, name)
                    found.setdefault(id(value), where)
    return found


def _stack(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back


def _step(holder, held):
    if isinstance(held, dict) and _own_names(holder) is held:
        return _ATTRIBUTES
    parts = _parts_of(holder) if not isinstance(holder, (set, frozenset)) else None
    return next((step for step, one in parts or () if one is held), " ({})".format(_type(holder)))


def _own_names(value):
    try:
        return vars(value)
    except TypeError:
        return None


def _spelled(text, one, steps):
    """The path from a root on: ``one`` is what the root names."""
    is_attribute = False
    while steps[id(one)]:
        step, one = steps[id(one)]
        if step is not _ATTRIBUTES:
            text += "." + _as_name(step) if is_attribute else step
        is_attribute = step is _ATTRIBUTES
    return text


def _as_name(step):
    return step[2:-2] if step.startswith("['") else step


def _named(kind):
    name = getattr(kind, "__qualname__", kind.__name__)
    return name if kind.__module__ in ("builtins", "__main__") else "{}.{}".format(kind.__module__, name)


_GROWING = (dict, list, set, frozenset, tuple, collections.deque, bytearray)
_LIKE_OURS = (types.FrameType, types.FunctionType, dict)
_LOOKED_INTO = 100  # entries of a collection
_LEVELS = 12  # of holders
_ATTRIBUTES = ".__dict__"

_PLAIN_VALUE, _TEXT_OF_IT, _DEEPER = range(3)  # what a value is that was walked by
_MODULUS = (1 << 61) - 1

_KINDS = {
    "evaluate": _evaluate,
    "stacks": _stacks,
    "modules": _modules,
    "dump": _dump,
    "sums": _sums,
    "changed": _changed,
    "census": _census,
    "entries": _entries,
    "holders": _holders,
    "largest": _largest,
}
