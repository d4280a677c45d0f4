"""Trace functions for ``sys.settrace``: they number the lines of own files, and note what points and watches want."""

import os
import sys

from .expressions import outside_requests
from .places import is_own
from .refusal import message_of
from .session import FrameTrace
from .values import described


class _NoRequest:
    number = 0


class _Course:
    """How far a request has come: how many own lines ran for it."""

    __slots__ = ("position",)

    def __init__(self):
        self.position = 0


class Follower:
    """Told of all lines of own files, and of those with points, in all threads."""

    def __init__(self, out, points, watch, session=None):
        self.out, self.watch, self.session = out, watch, session
        self.points = {}  # file -> line -> points
        for one in points:
            self.points.setdefault(one.file, {}).setdefault(one.line, []).append(one)
        self.files = {}  # name of a file -> its points, {} if it is own, None if it is neither
        self.courses = {}
        self.lines = 0
        context = sys.modules.get("relive_recorder.context")
        self.here = context.here if context is not None else _NoRequest

    def traced(self, file):
        """The points of a file by line; None where its lines are not followed."""
        try:
            return self.files[file]
        except KeyError:
            found = self.points.get(file)
            if found is None and is_own(file):
                found = {}
            self.files[file] = found
            return found

    def on_call(self, frame, event, argument):
        """As ``sys.settrace`` wants it: what is told of the lines of a frame that begins, or goes on."""
        told = self.of_frame(frame)
        if told is not None and self.watch is not None:
            self.watch.at_call()
        return told

    def of_frame(self, frame):
        """What is told of the lines of a frame, which may stand already; None: nothing is."""
        if self.traced(frame.f_code.co_filename) is None:
            return None
        if self.session is None:
            return self.on_line
        return frame.f_trace or FrameTrace(self, frame).on_line  # one that goes on is the frame it was

    def on_line(self, frame, event, argument):
        """As ``on_call``, of a frame."""
        if event == "line":
            file, line = frame.f_code.co_filename, frame.f_lineno
            number = self.here().number
            course = self.courses.get(number)
            if course is None:
                course = self.courses[number] = _Course()
            course.position += 1
            self.lines += 1
            self.out.passed(self.lines)
            if self.watch is not None:
                self.watch.at_line(self, frame, number, course.position)
            for point in self.files.get(file, {}).get(line, ()):
                self.reached(point, frame, number, course.position)
        elif event == "return" and self.watch is not None:
            self.watch.at_return(self, frame)
        return self.on_line

    def reached(self, point, frame, number, position):
        """A line with expressions is about to run."""
        names = dict(frame.f_globals)
        names.update(frame.f_locals)
        values = []
        if point.when is not None:
            holds, raised = self.evaluate(point.when, names, bool)
            if raised is None and not holds:
                return
            if raised is not None:
                values.append({"expression": None, "type": "", "text": raised, "raised": True})
        if not values:
            for text, code in point.expressions:
                value, raised = self.evaluate(code, names, described)
                type_, shown = value if raised is None else ("", raised)
                values.append(
                    {"expression": text, "type": type_, "text": shown, "raised": raised is not None}
                )
        record = {"kind": "hit", "point": point.number, "pid": os.getpid(), "request": number}
        record["position"] = position
        record["function"] = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        record["values"] = values
        self.out.put(record)

    def evaluate(self, code, names, use):
        """(what ``use`` makes of the value, None), or (None, what was raised)."""
        self.out.busy(1)
        try:
            return outside_requests(lambda: use(eval(code, names))), None
        except BaseException as error:  # SystemExit, too: it is no request of the service's
            return None, message_of(error)
        finally:
            self.out.busy(0)
