"""A debugger on one request: at which lines it stops, and what the host says meanwhile.

The thread that works for the request stops by reading a pipe, so everything else in the process goes on. Two locks: ``counting``
is held for the few steps that number a line; ``standing`` by the thread that stands, for as long as it stands. No expression of
the service's is evaluated with ``counting`` held: it may wait for a lock of the service's that another thread has, and that thread
may want to count a line.
"""

import json
import linecache
import os
import threading

from .commands import COMMANDS, TRAIL_MOST
from .expressions import compiled, outside_requests
from .places import FRAMES_MOST, is_named
from .records import os_write
from .refusal import Refused, message_of
from .values import TEXT_MOST
from .watch import WatchedExpression


class FrameTrace:
    """A frame of the service's own code: its number, how many such frames are above it, and the position of its latest line."""

    __slots__ = ("depth", "follower", "position", "serial")

    def __init__(self, follower, frame):
        self.follower = follower
        self.serial = follower.session.next_frame()
        self.position = 0
        caller, left, self.depth = frame.f_back, FRAMES_MOST, 0
        while caller is not None and left:
            known = getattr(caller.f_trace, "__self__", None)
            if isinstance(known, FrameTrace):
                self.depth = known.depth + 1
                break
            caller, left = caller.f_back, left - 1

    def on_line(self, frame, event, argument):
        """As ``sys.settrace`` wants it."""
        follower = self.follower
        if event == "line":
            if follower.session.is_for(follower.here()):
                follower.session.at_line(follower, frame, self)
        elif event == "exception" and follower.session.is_for(follower.here()):
            follower.session.at_exception(follower, argument, self.position)
        return self.on_line


class Session:
    """A debugger on one request: a thread that works for it stops in a line, and asks what is to be done.

    While one stands, others that work for the request stop at their next line, and wait.

    A *target* is {"how"}: "position" (with "position"), "step", "next", "out", "continue", or "end". With "scan" a target notes on
    its way the last position before it at which "continue" would have stopped.
    """

    def __init__(self, wanted, out):
        self.pid, self.request, self.out = wanted["pid"], wanted["request"], out
        self.commands, self.replies, self.rest = os.pipe(), os.pipe(), b""
        self.frames = 0
        self.files = []  # their names
        self.trail = []  # of each position (number of file, line, frame, depth, checksum)
        self.numbers = {}
        self.sum = 0
        self.standing, self.counting = threading.Lock(), threading.Lock()
        self.position = self.position_now = 0
        self.frame_now = self.depth_now = 0
        self.set(wanted)

    def set(self, wanted):
        self.target = wanted["target"]
        self.breakpoints = [
            (one["file"], one["line"], compiled(one["when"]) if one["when"] else None)
            for one in wanted["breakpoints"]
        ]
        self.lines = {line for _, line, _ in self.breakpoints}
        self.watches = [WatchedExpression({"expression": one, "module": None}) for one in wanted["watches"]]
        self.last_hit = self.watched_at = None

    def is_for(self, request):
        """It is the one that is debugged: numbers are a process's own, another worker has others under the same."""
        return request.number == self.request and self.pid in (0, os.getpid())

    def next_frame(self):
        self.frames += 1
        return self.frames

    def at_exception(self, follower, argument, position):
        """``position``: of the frame's line that raised, which may have called own functions since."""
        kind, _, traceback = argument
        if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
            return
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
            if follower.traced(traceback.tb_frame.f_code.co_filename) is not None:
                return  # a frame below has told it
        self.out.raised_at(position or self.position)

    def at_line(self, follower, frame, trace):
        serial, depth = trace.serial, trace.depth
        with self.standing:
            pass
        file, line = frame.f_code.co_filename, frame.f_lineno
        with self.counting:
            number = self.numbers.get(file)
            if number is None:
                number = self.numbers[file] = len(self.files)
                self.files.append(file)
            self.sum = hash((self.sum, file, line))
            self.position += 1
            position = trace.position = self.position
            if position <= TRAIL_MOST:
                self.trail.append((number, line, serial, depth, self.sum))
            self.out.came_to(position)
        # Not with a lock held: what is evaluated may wait for one that another thread has.
        target, why = self.target, self.why_stop(follower, frame, position, serial, depth)
        if why is None:
            return
        with self.standing:
            if self.target is not target:  # another thread stood meanwhile, and was given another order
                why = self.why_stop(follower, frame, position, serial, depth)
            if why is not None:
                self.stop(follower, frame, position, serial, depth, why)

    def why_stop(self, follower, frame, position, serial, depth):
        target = self.target
        how = target["how"]
        if how == "position":
            if target.get("scan") and position < target["position"] and self.hit(follower, frame) is not None:
                self.last_hit = position if self.watched_at is None else self.watched_at
            return "position" if position == target["position"] else None
        if how == "end":
            return None
        found = self.hit(follower, frame)
        if found is not None:
            return found
        is_out = depth < self.depth_now
        if (
            how == "step"
            or (how == "next" and (is_out or serial == self.frame_now))
            or (how == "out" and is_out)
        ):
            return "step"
        return None

    def hit(self, follower, frame):
        """Which breakpoint or watch wants to stop before this line; ``watched_at``: the position of the line that wrote."""
        self.watched_at = None
        for watch in self.watches:
            before, watch.last = watch.last, watch.read()
            if watch.last != before and self.position > 1:  # else it was a request before this one
                self.watched_at = max(1, self.position - 1)
                return "watch"
        if frame.f_lineno in self.lines:
            for file, line, when in self.breakpoints:
                if line == frame.f_lineno and is_named(frame.f_code.co_filename, file):
                    if when is None:
                        return "breakpoint"
                    names = dict(frame.f_globals)
                    names.update(frame.f_locals)
                    holds, raised = follower.evaluate(when, names, bool)
                    if holds or raised is not None:
                        return "breakpoint"
        return None

    def stop(self, follower, frame, position, serial, depth, why):
        self.frame_now, self.depth_now, self.position_now = serial, depth, position
        code = frame.f_code
        checksum = self.trail[position - 1][4] if position <= len(self.trail) else 0
        stop = {"stopped": why, "position": position, "sum": checksum, "file": code.co_filename}
        stop["line"], stop["function"] = frame.f_lineno, getattr(code, "co_qualname", code.co_name)
        stop["source"] = outside_requests(
            lambda: linecache.getline(code.co_filename, frame.f_lineno).strip()[:TEXT_MOST]
        )
        stop["last_hit"] = self.last_hit
        self.say(stop)
        while True:
            while b"\n" not in self.rest:
                data = os.read(self.commands[0], 1 << 16)
                if not data:
                    self.target = {"how": "end"}
                    return
                self.rest += data
            command, _, self.rest = self.rest.partition(b"\n")
            wanted = json.loads(command)
            if wanted["do"] == "go":
                try:
                    self.set(wanted)
                except Refused as error:
                    self.say({"refused": error.refusal})
                    continue
                return
            try:
                self.say(COMMANDS[wanted["do"]](self, follower, frame, wanted))
            except Refused as error:
                self.say({"refused": error.refusal})
            except BaseException as error:
                self.say({"failed": message_of(error)})

    def say(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os_write(self.replies[1], data) :]
