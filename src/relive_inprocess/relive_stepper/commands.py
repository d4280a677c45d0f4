"""What a debugger asks while a request stands: the stack, source, locals, expressions, and where a step back leads.

A frame is named by its distance from the one that stands, 0. Nothing here changes the session: what is found is only said, and the
host decides what to do with it.
"""

import linecache

from .expressions import compiled, outside_requests
from .places import Point, codes_by_file, is_named
from .refusal import Refused
from .values import TEXT_MOST, described_whole, text_of, type_name
from .watch import WatchedExpression

TRAIL_MOST = 2000000  # positions that can be gone back to


def _stack(session, follower, frame, wanted):
    found = []
    while frame is not None and len(found) < wanted["most"]:
        code = frame.f_code
        found.append(
            {
                "file": code.co_filename,
                "line": frame.f_lineno,
                "function": getattr(code, "co_qualname", code.co_name),
                "own": follower.traced(code.co_filename) is not None,
            }
        )
        frame = frame.f_back
    return {"frames": found}


def _source(session, follower, frame, wanted):
    chosen = _frame_at(frame, wanted["frame"])
    lines = outside_requests(lambda: linecache.getlines(chosen.f_code.co_filename))
    first = max(1, chosen.f_lineno - wanted["around"])
    shown = lines[first - 1 : chosen.f_lineno + wanted["around"]]
    return {"first": first, "line": chosen.f_lineno, "lines": [one.rstrip("\n")[:TEXT_MOST] for one in shown]}


def _locals(session, follower, frame, wanted):
    chosen = _frame_at(frame, wanted["frame"])
    names = list(chosen.f_locals.items())[: wanted["most"]]
    values = outside_requests(lambda: [(str(name), type_name(one), text_of(one)) for name, one in names])
    return {"values": values}


def _evaluate(session, follower, frame, wanted):
    chosen = _frame_at(frame, wanted["frame"])
    names = dict(chosen.f_globals)
    names.update(chosen.f_locals)
    value, raised = follower.evaluate(compiled(wanted["expression"]), names, described_whole)
    type_, text = value if raised is None else ("", raised)
    return {"type": type_, "text": text, "raised": raised is not None}


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


def _frame_at(frame, index):
    while index and frame is not None:
        frame, index = frame.f_back, index - 1
    if frame is None:
        raise Refused("there is no such frame", None, "the stack tells which there are")
    return frame


# Each is called with the session, the follower, the frame that stands and the command.
COMMANDS = {
    "stack": _stack,
    "source": _source,
    "locals": _locals,
    "evaluate": _evaluate,
    "check": _check,
    "place": _place,
    "find": _find_back,
}
