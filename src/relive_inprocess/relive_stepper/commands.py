"""What a debugger asks while a request stands: the stack, source, locals, expressions, and where a step back leads.

A frame is named by its distance from the one that stands, 0; those of Relive's recorder are not counted. Nothing here changes the
session: what is found is only said, and the host decides what to do with it.
"""

import itertools
import linecache
import types

from .expressions import compiled, outside_requests
from .places import Point, codes_by_file, is_named, is_relives
from .refusal import Refused
from .values import TEXT_MOST, described_whole, held_by, holds, text_of, type_name
from .watch import WatchedExpression

TRAIL_MOST = 2000000  # positions that can be gone back to


def _stack(session, follower, frame, wanted):
    found = []
    for one in itertools.islice(_frames(frame), wanted["most"]):
        code = one.f_code
        found.append(
            {
                "file": code.co_filename,
                "line": one.f_lineno,
                "function": getattr(code, "co_qualname", code.co_name),
                "own": follower.traced(code.co_filename) is not None,
            }
        )
    return {"frames": found}


def _source(session, follower, frame, wanted):
    chosen = _frame_at(frame, wanted["frame"])
    lines = outside_requests(lambda: linecache.getlines(chosen.f_code.co_filename))
    first = max(1, chosen.f_lineno - wanted["around"])
    shown = lines[first - 1 : chosen.f_lineno + wanted["around"]]
    return {"first": first, "line": chosen.f_lineno, "lines": [one.rstrip("\n")[:TEXT_MOST] for one in shown]}


def _children(session, follower, frame, wanted):
    """What a scope of a frame, "locals" or "globals", or else the value of an expression holds."""
    chosen = _frame_at(frame, wanted["frame"])
    if wanted["scope"] == "locals":
        found = [(str(name), value, str(name)) for name, value in list(chosen.f_locals.items())]
    elif wanted["scope"] == "globals":
        found = [
            (name, value, name)
            for name, value in list(chosen.f_globals.items())
            if not name.startswith("__") and not isinstance(value, types.ModuleType)
        ]
    else:
        found, raised = follower.evaluate(
            compiled(wanted["expression"]), _names(chosen), lambda value: held_by(value, wanted["expression"])
        )
        if raised is not None:
            raise Refused("{} cannot be looked into".format(wanted["expression"]), raised, None)
    values = outside_requests(
        lambda: [
            (name, type_name(value), text_of(value), expression, holds(value))
            for name, value, expression in found[: wanted["most"]]
        ]
    )
    return {"values": values, "module": str(chosen.f_globals.get("__name__"))}


def _evaluate(session, follower, frame, wanted):
    chosen = _frame_at(frame, wanted["frame"])

    def use(value):
        return (*described_whole(value), holds(value))

    value, raised = follower.evaluate(compiled(wanted["expression"]), _names(chosen), use)
    type_, text, has_more = value if raised is None else ("", raised, False)
    return {"type": type_, "text": text, "raised": raised is not None, "holds": has_more}


def _names(frame):
    names = dict(frame.f_globals)
    names.update(frame.f_locals)
    return names


def _check(session, follower, frame, wanted):
    """That an expression is one, and can be watched, before anything depends on it."""
    if wanted["is_watched"]:
        WatchedExpression({"expression": wanted["expression"], "module": None})
    else:
        compiled(wanted["expression"])
    return {}


def _place(session, follower, frame, wanted):
    """That there is code in a line of a file, before anything waits for it."""
    place = Point(
        0, {"file": wanted["file"], "line": wanted["line"], "expressions": [], "when": None}, codes_by_file()
    )
    return {"file": place.file, "line": place.line}


def _find_back(session, follower, frame, wanted):
    """The last position before this one that a step back, or a breakpoint without a condition, leads to."""
    now = session.position_now - 1
    if now >= len(session.trail):
        raise Refused(
            "there is no way back from here by steps",
            "more than {} lines ran before it".format(TRAIL_MOST),
            "`goto POSITION` goes to one of the first",
        )
    _, _, serial, depth, _ = session.trail[now]
    how, found = wanted["how"], None
    places = [
        (number, line)
        for file, line in wanted["breakpoints"]
        for number, name in enumerate(session.files)
        if is_named(name, file)
    ]
    for at in range(now - 1, -1, -1):
        number, line, other, other_depth, _ = session.trail[at]
        if (
            how == "step"
            or (how == "next" and (other == serial or other_depth < depth))
            or (how == "out" and other_depth < depth)
            or (how == "continue" and (number, line) in places)
        ):
            found = at
            break
    if found is None:
        return {"position": None, "sum": None}
    return {"position": found + 1, "sum": session.trail[found][4]}


def _frames(frame):
    """Those of the service and its libraries, innermost first."""
    while frame is not None:
        if not is_relives(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _frame_at(frame, index):
    found = next(itertools.islice(_frames(frame), index, None), None)
    if found is None:
        raise Refused("there is no such frame", None, "the stack tells which there are")
    return found


# Each is called with the session, the follower, the frame that stands and the command.
COMMANDS = {
    "stack": _stack,
    "source": _source,
    "children": _children,
    "evaluate": _evaluate,
    "check": _check,
    "place": _place,
    "find": _find_back,
}
