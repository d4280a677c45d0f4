"""Who holds an object: the path to it from a module, or from a function that runs."""

import array
import base64
import gc
import sys
import threading
import types

from .parts_of_values import entries_in
from .stacks import stack_of, without_ours
from .texts import name_of_type, summary_of, type_of

_LEVELS = 12  # of holders
_ATTRIBUTES = ".__dict__"
LOOKED_INTO = 100  # entries of a collection


def addresses(wanted):
    """The addresses of the objects of each type, as ``holders`` takes them; None of one that has more than ``most``."""
    found = {name: array.array("Q") for name in wanted["types"]}
    for one in gc.get_objects():
        name = name_of_type(type(one))
        if name in found and len(found[name]) <= wanted["most"]:
            found[name].append(id(one))
    return {
        name: base64.b64encode(some.tobytes()).decode() if len(some) <= wanted["most"] else None
        for name, some in found.items()
    }


def holders(wanted):
    """Who holds an object of each type: the path from a module, or from a function that runs.

    ``known``: by type, addresses of objects that are not meant, as ``addresses`` told them at another time.
    """
    examples, known = {}, {}
    for name, told in wanted["known"].items():
        known[name] = frozenset(array.array("Q", base64.b64decode(told)))
    for one in gc.get_objects():
        name = name_of_type(type(one))
        if name in wanted["types"] and id(one) not in known.get(name, ()):
            examples.setdefault(name, []).append(one)
    ours = {id(examples), id(known)}.union(map(id, examples.values()))
    # The middle one: neither what was made at the start nor what is just in use.
    return {name: holder_of(ones[len(ones) // 2], set(ours)) for name, ones in examples.items()}


def referrers_of(value, most, ours):
    """(who refers to an object: the path through each, or the kind of one that nothing known holds; how many more there are).

    ``ours``: as of ``holder_of``.
    """
    found, running = [], _running().get(id(value))
    if running is not None:
        found.append(running)
    known = gc.get_referrers(value)
    ours = {id(known), *ours}
    known = [
        one
        for one in known
        if id(one) not in ours and not isinstance(one, types.FrameType) and not is_ours(one)
    ]
    ours.add(id(known))
    for holder in known[:most]:
        path = holder_of(value, set(ours), through=holder)
        found.append(path if path is not None else "{} that nothing known holds".format(summary_of(holder)))
    return found, max(0, len(known) - most)


def holder_of(value, ours, through=None):
    """Referrers of referrers, level by level, until a module, or a function that runs, is among them.

    ``ours``: identities of what this program itself holds objects by. ``through``: one of its referrers, of which it is told.
    """
    modules = {
        id(vars(one)): name for name, one in list(sys.modules.items()) if isinstance(one, types.ModuleType)
    }
    running, steps, level = _running(), {id(value): ()}, {id(value): value}
    if through is not None:
        steps[id(through)] = (_step(through, value), value)
        level = {id(through): through}
        if id(through) in modules:
            return _of_module(modules[id(through)], steps[id(through)][0], value, steps)
    for _ in range(_LEVELS):
        for number, one in level.items():
            if number in running:
                return _spelled(running[number], one, steps)
        ours.update((id(level), id(steps)))
        above = {}
        for holder in gc.get_referrers(*level.values()):
            if id(holder) in steps or id(holder) in ours or holder is above or is_ours(holder):
                continue
            if isinstance(holder, types.FrameType):
                continue
            held = next((level[id(part)] for part in gc.get_referents(holder) if id(part) in level), None)
            if held is None:
                continue
            steps[id(holder)] = step = (_step(holder, held), held)
            ours.add(id(step))
            if id(holder) in modules:
                return _of_module(modules[id(holder)], step[0], held, steps)
            above[id(holder)] = holder
            if len(above) >= LOOKED_INTO:
                break
        level = above
    return None


def _of_module(name, step, held, steps):
    return _spelled(("" if name == "__main__" else name + ".") + _as_name(step), held, steps)


def _running():
    """Where each local of the functions that run stands, by its identity. No collector knows of them from 3.11 on."""
    found, own = {}, threading.get_ident()
    for ident, innermost in sys._current_frames().items():
        for frame in stack_of(without_ours(innermost) if ident == own else innermost):
            code = frame.f_code
            if frame.f_locals is not frame.f_globals:
                for name, value in list(frame.f_locals.items()):
                    where = "{}() {}:{}: {}".format(code.co_name, code.co_filename, frame.f_lineno, name)
                    found.setdefault(id(value), where)
    return found


def _step(holder, held):
    if isinstance(held, dict) and _own_names(holder) is held:
        return _ATTRIBUTES
    parts = entries_in(holder) if not isinstance(holder, (set, frozenset)) else None
    return next((step for step, one in parts or () if one is held), " ({})".format(type_of(holder)))


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


def is_ours(value):
    """Of this program, which is in the process for the question only: its frames, and its names."""
    if isinstance(value, types.FrameType):
        return value.f_code.co_filename == "<relive>"
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename == "<relive>"
    return value is globals()
