"""Who wrote a value: an expression is evaluated before each own line, and compared with what it was.

A change belongs to the line that the looking thread runs: it is looked again before that thread's next line, and where a
function returns. Another thread may have written in between; so the lines that all other threads run then are noted as well.
A line runs until the next one, calls of other functions included. A function that a library called leaves no line behind: a
server's loop waits in the line that started it, and runs nothing of it.
"""

import linecache
import os
import sys
import threading

from .expressions import compiled, names_in, outside_requests
from .places import is_own
from .refusal import Refused, message_of
from .values import TEXT_MOST, compared

_ident = threading.get_ident


class WatchedExpression:
    """An expression that is evaluated before each own line, and where a function of the service returns.

    What it is compared by: plain values by what they are; others by their identity and representation. A collection of more
    than ``_COMPARED`` elements is compared by its identity and length.
    """

    def __init__(self, wanted):
        self.code = compiled(wanted["expression"])
        self.module = wanted["module"]
        self.names = names_in(self.code)
        if self.module is not None and self.module not in sys.modules:
            raise Refused(
                "there is no module {!r} in the process".format(self.module),
                None,
                "`relive eval REF sys.modules` lists them",
            )
        self.lines = {}  # thread -> the own line that it runs: (file, line, function, request, position)
        self.calls = {}  # thread -> the lines (or None) that its own functions were called from, outermost first
        self.last = self.read()
        if self.module is None and self.last[0] == "raised" and self.last[2] == "NameError":
            raise Refused(
                "{!r} cannot be evaluated in the process".format(wanted["expression"]),
                self.last[1],
                self._where_it_is()
                or "names are those of the program, and modules by their names (app.cache); --module NAME uses those of a module",
            )

    def _where_it_is(self):
        """The service's modules that have a name which is not there, as a remedy."""
        main = vars(sys.modules["__main__"])
        for name in sorted(self.names):
            if name in main or name in sys.modules:
                continue
            found = sorted(
                str(key)
                for key, one in list(sys.modules.items())
                if name in getattr(one, "__dict__", {}) and is_own(str(getattr(one, "__file__", "<")))
            )
            if found:
                return "write {}; there is a {} in: {}".format(
                    found[0] + "." + name, name, ", ".join(found[:5])
                )
        return None

    def read(self):
        """(how it is compared, its text, ...)."""
        main = vars(sys.modules["__main__"]) if self.module is None else vars(sys.modules[self.module])
        names = {}
        for name in self.names:
            if name in main:
                names[name] = main[name]
            elif self.module is None and name in sys.modules:
                names[name] = sys.modules[name]
        try:
            return outside_requests(lambda: compared(eval(self.code, names)))
        except BaseException as error:
            return "raised", "raises " + message_of(error), type(error).__name__

    def at_line(self, follower, frame, number, position):
        thread = _ident()
        self.look(follower, thread)
        self.lines[thread] = _line_of(frame, number, position)

    def at_call(self):
        """A function of the service's begins, or a generator of it goes on."""
        thread = _ident()
        self.calls.setdefault(thread, []).append(self.lines.get(thread))

    def at_return(self, follower, frame):
        """The line goes on that called it; nobody's where a library called."""
        thread = _ident()
        self.look(follower, thread)
        calls = self.calls.get(thread)
        place = calls.pop() if calls else None  # empty: it began before anybody followed
        caller = frame.f_back
        if place is None and caller is not None and follower.traced(caller.f_code.co_filename) is not None:
            # That one began before as well, and so did the line that it is in.
            number = follower.here().number
            course = follower.courses.get(number)
            position = course.position if course is not None else 0
            place = _line_of(caller, number, position)
        if place is None:
            self.lines.pop(thread, None)
        else:
            self.lines[thread] = place

    def look(self, follower, thread):
        """Has it changed since anybody looked? Then the line that this thread ran did it, or one that another thread runs."""
        follower.out.busy(1)
        try:
            now = self.read()
        finally:
            follower.out.busy(0)
        before = self.last
        if now == before:
            return
        self.last = now
        place = self.lines.get(thread)
        others = [one for other, one in list(self.lines.items()) if other != thread]
        record = {"kind": "write", "pid": os.getpid(), "before": before[1], "after": now[1], "place": None}
        record["others"] = [_place_fields(one) for one in others[:20]]
        if place is not None:
            record["place"] = _place_fields(place)
        follower.out.put(record)


def _line_of(frame, number, position):
    code = frame.f_code
    return code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name), number, position


def _place_fields(place):
    file, line, function, request, position = place
    source = outside_requests(lambda: linecache.getline(file, line).strip()[:TEXT_MOST])
    return {
        "file": file,
        "line": line,
        "function": function,
        "request": request,
        "position": position,
        "source": source,
    }
