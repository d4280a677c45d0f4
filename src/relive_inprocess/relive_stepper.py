"""What follows a Python process line by line, in a branch: values at a line, writes of a value, stops of a debugger.

Its text is compiled in that process (``inspection.python.asking``), so it uses the standard library only. It runs on CPython 3.9
to 3.14. ``answer`` takes and gives JSON; what is seen later goes into an unnamed file (memfd_create(2)) that the host reads by its
descriptor: it outlives the process.

Terms: an *own* line is of the service's own code, neither of Python nor of what was installed. The *position* of a line in a
request is its number among the own lines that ran for that request, from 1; the recorder's context tells which request the running
code works for (0: none, or there is no recorder). An expression is evaluated outside of any request, so that it takes no recorded
answer of one (a reading of the clock, say).
"""

import contextvars
import dis
import gc
import json
import linecache
import mmap
import os
import sys
import sysconfig
import threading
import types

_TEXT = 400  # characters of a value
_COMPARED = 10000  # elements of a collection that are compared one by one
_MESSAGE = 400  # characters
# [bytes] of 8 each: whether an expression is being evaluated, own lines that ran; of the request that is debugged: its lines, and
# the one that raised what was raised last.
_HEADER = 32
_TRAIL = 2000000  # positions that can be gone back to
_DEEP = 500  # frames that are looked through for the caller in the service's own code
_SUSPENDED = (
    (types.CoroutineType, "cr_code"),
    (types.GeneratorType, "gi_code"),
    (types.AsyncGeneratorType, "ag_code"),
)
# What a function begins with stands in the line of its ``def``.
_AT_ENTRY = {"RESUME", "RETURN_GENERATOR", "POP_TOP", "COPY_FREE_VARS", "MAKE_CELL", "GEN_START", "NOP"}
_write = os.write
_ident = threading.get_ident
_KEPT = []  # what C calls must live


class _Refused(Exception):
    """What is asked for cannot be meant: what happened, why, and what to do.

    ``is_near``: this process has what is meant, but for a part of it, so it knows more than one that has nothing of it.
    """

    def __init__(self, what, why, remedy, is_near=False):
        Exception.__init__(self, what)
        self.told = {"what": what, "why": why, "remedy": remedy, "is_near": is_near}


def answer(question):
    """The answer to a question, bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps(_follow(wanted)).encode()
    except _Refused as error:
        return json.dumps({"refused": error.told}).encode()
    except BaseException as error:  # whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _follow(wanted):
    """Follow all threads from now on.

    ``points`` are {"file", "line", "expressions", "when" (or None)}; ``watch`` is {"expression", "module" (or None)} or None;
    ``most`` is how many records are kept, and ``bytes`` how much room they may take. ``session`` is that of a debugger, or None:
    {"request", "pid", "goal", "breakpoints", "watches"}: the request is number ``request`` of process ``pid`` (0: of any).
    """
    out = _Out(wanted["most"], wanted["bytes"])
    codes = _codes() if wanted["points"] else {}
    points = [_Point(number, one, codes) for number, one in enumerate(wanted["points"])]
    watch = _Watch(wanted["watch"]) if wanted["watch"] is not None else None
    session = _Session(wanted["session"], out) if wanted.get("session") is not None else None
    follower = _Follower(out, points, watch, session)
    _install(follower)
    return {
        "out": out.fd,
        "commands": session.commands[0] if session is not None else None,
        "replies": session.replies[1] if session is not None else None,
        "pid": os.getpid(),
        "points": [{"file": one.file, "line": one.line, "source": one.source} for one in points],
        "first": watch.last[1] if watch is not None else None,
    }


# -- what is told ------------------------------------------------------------------------------------------------------


class _Out:
    """Records, one JSON object a line, behind a header that says what is being done. Bounded."""

    def __init__(self, most, room):
        self.fd = os.memfd_create("relive-steps", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, _HEADER)
        os.lseek(self.fd, 0, os.SEEK_END)
        self._header = mmap.mmap(self.fd, _HEADER)
        self.left, self.room, self.is_full = most, room, False

    def busy(self, number):
        """An expression is being evaluated, counted from 1; 0: none is."""
        self._header[:8] = number.to_bytes(8, "little")

    def passed(self, lines):
        self._header[8:16] = lines.to_bytes(8, "little")

    def came_to(self, position):
        self._header[16:24] = position.to_bytes(8, "little")

    def raised_at(self, position):
        self._header[24:32] = position.to_bytes(8, "little")

    def put(self, record):
        """Where there is no room any more, that is told instead, once."""
        data = json.dumps(record).encode() + b"\n"
        if self.is_full:
            return
        if self.left <= 0 or len(data) > self.room:
            self.is_full, data = True, b'{"kind": "full"}\n'
        self.left -= 1
        self.room -= len(data)
        _write(self.fd, data)


def _type(value):
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else "{}.{}".format(module, kind.__qualname__)


def _text(value, most=_TEXT):
    try:
        is_cut = isinstance(value, (str, bytes, bytearray)) and len(value) > most
        text = repr(value[:most]) + "..." if is_cut else repr(value)
    except BaseException as error:
        return "<{} whose representation raises {}>".format(_type(value), type(error).__name__)
    return text if len(text) <= most + 8 else text[:most] + "..."


def _message(error):
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return ("{}: {}".format(name, text) if text else name)[:_MESSAGE]


# -- expressions -------------------------------------------------------------------------------------------------------


def _compiled(expression):
    try:
        # Without the future features of this program.
        return compile(expression, "<expression>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: too deep
        raise _Refused(
            "{!r} is no expression of the service's Python".format(expression[:_TEXT]),
            _message(error),
            "one that `eval` takes: names, attributes, items, calls; no statement",
        ) from error


def _outside(function):
    """Call it in a copy of this context that works for no request."""

    def run():
        context = sys.modules.get("relive_recorder.context")
        if context is not None:
            context.begin(context.OUTSIDE)
        return function()

    return contextvars.copy_context().run(run)


def _names_of(code):
    """All that an expression may look up, what stands within it included."""
    found = set(code.co_names) | set(code.co_freevars)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= _names_of(one)
    return found


# -- places ------------------------------------------------------------------------------------------------------------


def _codes():
    """The code of all functions that live, by file."""
    pending = []
    for one in gc.get_objects():
        kind = type(one)
        if kind is types.FunctionType:
            pending.append(one.__code__)
        else:
            pending += [getattr(one, name) for type_, name in _SUSPENDED if kind is type_]
    # What ``gc.freeze`` has put aside is not among the objects.
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            if isinstance(value, types.FunctionType):
                pending.append(value.__code__)
            elif isinstance(value, type):
                pending += [one.__code__ for one in vars(value).values() if type(one) is types.FunctionType]
    pending += [frame.f_code for frame in _standing_frames()]
    found, seen = {}, set()
    while pending:
        code = pending.pop()
        if code in seen or code.co_filename == "<relive>":
            continue
        seen.add(code)
        found.setdefault(code.co_filename, []).append(code)
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return found


def _standing_frames():
    """Of all threads."""
    for innermost in sys._current_frames().values():
        frame = innermost
        while frame is not None:
            yield frame
            frame = frame.f_back


def _lines(code):
    """Lines of which the interpreter tells before it runs them; that of a ``def`` or its decorator is none of them."""
    found, line = set(), 0
    for one in dis.get_instructions(code):
        # From 3.13 on ``starts_line`` says whether, not which.
        starts = one.line_number if hasattr(one, "line_number") else one.starts_line
        line = starts or line
        if line and one.opname not in _AT_ENTRY:
            found.add(line)
    return found


def _is_named(file, wanted):
    return file == wanted or file.endswith("/" + wanted.lstrip("/"))


class _Point:
    """Expressions at a line."""

    def __init__(self, number, wanted, codes):
        self.number = number
        self.file = _file_named(wanted["file"], codes)
        self.line = wanted["line"]
        self._check_line({line for code in codes[self.file] for line in _lines(code)})
        self.expressions = [(text, _compiled(text)) for text in wanted["expressions"]]
        self.when = _compiled(wanted["when"]) if wanted["when"] is not None else None

    @property
    def source(self):
        return _outside(lambda: linecache.getline(self.file, self.line).strip()[:_TEXT])

    def _far(self, line):
        return abs(line - self.line), line

    def _check_line(self, lines):
        if self.line in lines:
            return
        near = sorted(sorted(lines, key=self._far)[:4])
        raise _Refused(
            "no function of the service has code in line {} of {}".format(self.line, self.file),
            "lines near it that have are {}".format(", ".join(map(str, near))),
            "name one of these; what stands outside of functions ran when the module was imported",
            is_near=True,
        )


def _file_named(wanted, codes):
    found = sorted(one for one in codes if _is_named(one, wanted) or _is_named(os.path.realpath(one), wanted))
    if len(found) == 1:
        return found[0]
    if found:
        raise _Refused(
            "{} may be one of {} files".format(wanted, len(found)),
            ", ".join(found[:10]),
            "give more of its path",
        )
    own = sorted(one for one in codes if _is_own(one))
    raise _Refused(
        "no code of the service's process is of a file {}".format(wanted),
        "its own files are {}".format(", ".join(own[:20]) or "none"),
        "name one of these as FILE:LINE",
    )


def _foreign():
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(paths[name] + "/" for name in names if name in paths)


_FOREIGN = _foreign()


def _is_own(file):
    """The service's own: no part of Python, none that was installed, nothing made from a text."""
    if file.startswith(("<", *_FOREIGN)):
        return False
    parts = ("/site-packages/", "/dist-packages/", "/relive_recorder/", "/relive_inprocess/")
    return not any(part in file for part in parts)


# -- following -----------------------------------------------------------------------------------------------------------


class _NoRequest:
    number = 0


class _Course:
    """How far a request has come: how many own lines ran for it."""

    __slots__ = ("position",)

    def __init__(self):
        self.position = 0


class _Follower:
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
            if found is None and _is_own(file):
                found = {}
            self.files[file] = found
            return found

    def on_call(self, frame, event, argument):
        """As ``sys.settrace`` wants it: what is told of the lines of a frame that begins, or goes on."""
        if self.traced(frame.f_code.co_filename) is None:
            return None
        if self.session is None:
            return self.on_line
        return frame.f_trace or _FrameTrace(self, frame).on_line  # one that goes on is the frame it was

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
                told, raised = self.evaluate(code, names, _described)
                type_, shown = told if raised is None else ("", raised)
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
            return _outside(lambda: use(eval(code, names))), None
        except BaseException as error:  # SystemExit, too: it is no request of the service's
            return None, _message(error)
        finally:
            self.out.busy(0)


def _described(value):
    return _type(value), _text(value)


# -- who wrote a value -----------------------------------------------------------------------------------------------------


class _Watch:
    """An expression that is evaluated before each own line, and where a function of the service returns.

    What it is compared by: plain values by what they are; others by their identity and representation. A collection of more
    than ``_COMPARED`` elements is compared by its identity and length.
    """

    def __init__(self, wanted):
        self.code = _compiled(wanted["expression"])
        self.module = wanted["module"]
        self.names = _names_of(self.code)
        if self.module is not None and self.module not in sys.modules:
            raise _Refused(
                "there is no module {!r} in the process".format(self.module),
                None,
                "`relive eval REF sys.modules` lists them",
            )
        self.lines = {}  # thread -> the own line that it runs: (file, line, function, request, position)
        self.last = self.read()
        if self.module is None and self.last[0] == "raised" and self.last[2] == "NameError":
            raise _Refused(
                "{!r} cannot be evaluated in the process".format(wanted["expression"]),
                self.last[1],
                "names are those of the program, and modules by their names (app.cache); --module NAME uses those of a module",
            )

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
            return _outside(lambda: _compared(eval(self.code, names)))
        except BaseException as error:
            return "raised", "raises " + _message(error), type(error).__name__

    def at_line(self, follower, frame, number, position):
        thread = _ident()
        self.look(follower, thread)
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        self.lines[thread] = code.co_filename, frame.f_lineno, name, number, position

    def at_return(self, follower, frame):
        """The caller's line goes on, if that is an own one; else nobody's."""
        thread = _ident()
        self.look(follower, thread)
        number = follower.here().number
        course = follower.courses.get(number)
        frame, left = frame.f_back, _DEEP
        while frame is not None and left and follower.traced(frame.f_code.co_filename) is None:
            frame, left = frame.f_back, left - 1
        if frame is None or not left:
            self.lines.pop(thread, None)
            return
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        position = course.position if course is not None else 0
        self.lines[thread] = code.co_filename, frame.f_lineno, name, number, position

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


def _place_fields(place):
    file, line, function, request, position = place
    source = _outside(lambda: linecache.getline(file, line).strip()[:_TEXT])
    return {
        "file": file,
        "line": line,
        "function": function,
        "request": request,
        "position": position,
        "source": source,
    }


def _compared(value):
    """(how it is compared, its text)."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (type(value), value), _text(value)
    text = _text(value)
    try:
        length = len(value)
    except Exception:
        length = None
    if length is not None and length > _COMPARED:
        return (id(value), length), "{} of {}".format(_type(value), length)
    whole = _text(value, 1 << 20)
    if " at 0x" in whole:  # a representation that says nothing: what it holds may
        whole += _text(getattr(value, "__dict__", None), 1 << 20)
    return (id(value), length, hash(whole)), text


# -- a debugger ------------------------------------------------------------------------------------------------------------


class _FrameTrace:
    """A frame of the service's own code: its number, and how many such frames are above it."""

    __slots__ = ("depth", "follower", "serial")

    def __init__(self, follower, frame):
        self.follower = follower
        self.serial = follower.session.next_frame()
        caller, left, self.depth = frame.f_back, _DEEP, 0
        while caller is not None and left:
            known = getattr(caller.f_trace, "__self__", None)
            if isinstance(known, _FrameTrace):
                self.depth = known.depth + 1
                break
            caller, left = caller.f_back, left - 1

    def on_line(self, frame, event, argument):
        """As ``sys.settrace`` wants it."""
        follower = self.follower
        if event == "line":
            if follower.session.is_for(follower.here()):
                follower.session.at_line(follower, frame, self.serial, self.depth)
        elif event == "exception" and follower.session.is_for(follower.here()):
            follower.session.at_exception(follower, argument)
        return self.on_line


class _Session:
    """A debugger on one request: a thread that works for it stops in a line, and asks what is to be done.

    While one stands, others that work for the request stop at their next line, and wait.

    A *goal* is {"how"}: "position" (with "position"), "step", "next", "out", "continue", or "end". With "scan" a goal notes on
    its way the last position before it at which "continue" would have stopped.
    """

    def __init__(self, wanted, out):
        self.pid, self.request, self.out = wanted["pid"], wanted["request"], out
        self.commands, self.replies, self.rest = os.pipe(), os.pipe(), b""
        self.frames = 0
        self.files, self.trail = (
            [],
            [],
        )  # names of files; of each position (number of file, line, frame, depth, checksum)
        self.numbers = {}
        self.sum = 0
        self.standing, self.counting = threading.Lock(), threading.Lock()
        self.position = self.position_now = 0
        self.frame_now = self.depth_now = 0
        self.set(wanted)

    def set(self, wanted):
        self.goal = wanted["goal"]
        self.breakpoints = [
            (one["file"], one["line"], _compiled(one["when"]) if one["when"] else None)
            for one in wanted["breakpoints"]
        ]
        self.lines = {line for _, line, _ in self.breakpoints}
        self.watches = [_Watch({"expression": one, "module": None}) for one in wanted["watches"]]
        self.last_hit = self.watched_at = None

    def is_for(self, request):
        """It is the one that is debugged: numbers are a process's own, another worker has others under the same."""
        return request.number == self.request and self.pid in (0, os.getpid())

    def next_frame(self):
        self.frames += 1
        return self.frames

    def at_exception(self, follower, argument):
        kind, _, traceback = argument
        if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
            return
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
            if follower.traced(traceback.tb_frame.f_code.co_filename) is not None:
                return  # a frame below has told it
        self.out.raised_at(self.position)

    def at_line(self, follower, frame, serial, depth):
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
            position = self.position
            if position <= _TRAIL:
                self.trail.append((number, line, serial, depth, self.sum))
            self.out.came_to(position)
        # Not with a lock held: what is evaluated may wait for one that another thread has.
        goal, why = self.goal, self.why_stop(follower, frame, position, serial, depth)
        if why is None:
            return
        with self.standing:
            if self.goal is not goal:  # another thread stood meanwhile, and was told something else
                why = self.why_stop(follower, frame, position, serial, depth)
            if why is not None:
                self.stop(follower, frame, position, serial, depth, why)

    def why_stop(self, follower, frame, position, serial, depth):
        goal = self.goal
        how = goal["how"]
        if how == "position":
            if goal.get("scan") and position < goal["position"] and self.hit(follower, frame) is not None:
                self.last_hit = position if self.watched_at is None else self.watched_at
            return "position" if position == goal["position"] else None
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
                if line == frame.f_lineno and _is_named(frame.f_code.co_filename, file):
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
        told = {"stopped": why, "position": position, "sum": checksum, "file": code.co_filename}
        told["line"], told["function"] = frame.f_lineno, getattr(code, "co_qualname", code.co_name)
        told["source"] = _outside(lambda: linecache.getline(code.co_filename, frame.f_lineno).strip()[:_TEXT])
        told["last_hit"] = self.last_hit
        self.say(told)
        while True:
            while b"\n" not in self.rest:
                data = os.read(self.commands[0], 1 << 16)
                if not data:
                    self.goal = {"how": "end"}
                    return
                self.rest += data
            command, _, self.rest = self.rest.partition(b"\n")
            wanted = json.loads(command)
            if wanted["do"] == "go":
                try:
                    self.set(wanted)
                except _Refused as error:
                    self.say({"refused": error.told})
                    continue
                return
            try:
                self.say(getattr(self, "do_" + wanted["do"])(follower, frame, wanted))
            except _Refused as error:
                self.say({"refused": error.told})
            except BaseException as error:
                self.say({"failed": _message(error)})

    def say(self, told):
        data = json.dumps(told).encode() + b"\n"
        while data:
            data = data[_write(self.replies[1], data) :]

    def do_stack(self, follower, frame, wanted):
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

    def do_source(self, follower, frame, wanted):
        chosen = _frame_at(frame, wanted["frame"])
        lines = _outside(lambda: linecache.getlines(chosen.f_code.co_filename))
        first = max(1, chosen.f_lineno - wanted["around"])
        shown = lines[first - 1 : chosen.f_lineno + wanted["around"]]
        return {"first": first, "line": chosen.f_lineno, "lines": [one.rstrip("\n")[:_TEXT] for one in shown]}

    def do_locals(self, follower, frame, wanted):
        chosen = _frame_at(frame, wanted["frame"])
        names = list(chosen.f_locals.items())[: wanted["most"]]
        values = _outside(lambda: [(str(name), _type(one), _text(one)) for name, one in names])
        return {"values": values}

    def do_evaluate(self, follower, frame, wanted):
        chosen = _frame_at(frame, wanted["frame"])
        names = dict(chosen.f_globals)
        names.update(chosen.f_locals)
        value, raised = follower.evaluate(_compiled(wanted["expression"]), names, _described_whole)
        type_, text = value if raised is None else ("", raised)
        return {"type": type_, "text": text, "raised": raised is not None}

    def do_check(self, follower, frame, wanted):
        """That an expression is one, and can be watched, before anything depends on it."""
        if wanted["is_watched"]:
            _Watch({"expression": wanted["expression"], "module": None})
        else:
            _compiled(wanted["expression"])
        return {}

    def do_find(self, follower, frame, wanted):
        """The last position before this one that a step back, or a breakpoint without a condition, leads to."""
        now = self.position_now - 1
        if now >= len(self.trail):
            raise _Refused(
                "there is no way back from here by steps",
                "more than {} lines ran before it".format(_TRAIL),
                "`goto POSITION` goes to one of the first",
            )
        _, _, serial, depth, _ = self.trail[now]
        how, found = wanted["how"], None
        places = [
            (number, line)
            for file, line in wanted["breakpoints"]
            for number, name in enumerate(self.files)
            if _is_named(name, file)
        ]
        for at in range(now - 1, -1, -1):
            number, line, other, other_depth, _ = self.trail[at]
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
        return {"position": found + 1, "sum": self.trail[found][4]}


def _described_whole(value):
    return _type(value), _text(value, 20000)


def _frame_at(frame, index):
    while index and frame is not None:
        frame, index = frame.f_back, index - 1
    if frame is None:
        raise _Refused("there is no such frame", None, "the stack tells which there are")
    return frame


# -- installing ------------------------------------------------------------------------------------------------------------


def _install(follower):
    """In the threads that are there, in those to come, and in the frames of the service's own code that stand already."""
    threading.settrace(follower.on_call)
    for frame in _standing_frames():
        if follower.traced(frame.f_code.co_filename) is not None:
            frame.f_trace = follower.on_call(frame, "call", None)
    if hasattr(threading, "settrace_all_threads"):  # from 3.12 on
        threading.settrace_all_threads(follower.on_call)
    else:
        _install_in_threads(follower)


def _install_in_threads(follower):
    """Each thread is given a function in C that makes it trace itself at whatever it does next.

    ``sys.settrace`` is for the calling thread alone, and the function behind it, which takes another, wants one in C.
    """
    try:
        import ctypes

        api = ctypes.pythonapi
        set_trace = api._PyEval_SetTrace
    except (ImportError, AttributeError) as error:
        raise _Refused(
            "the service's Python cannot be followed line by line",
            _message(error),
            "it takes CPython 3.9 or later, before 3.12 with ctypes",
        ) from error
    pointer = ctypes.c_void_p
    is_call = 0  # PyTrace_CALL

    def begin(_self, _frame, what, _argument):
        sys.settrace(follower.on_call)
        if what == is_call:
            frame = sys._getframe(1)
            frame.f_trace = follower.on_call(frame, "call", None)
        return 0

    hook = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_int, pointer)(begin)
    _KEPT.append(hook)
    set_trace.argtypes, set_trace.restype = [pointer, pointer, pointer], ctypes.c_int
    for name in ("PyInterpreterState_Main", "PyInterpreterState_ThreadHead", "PyThreadState_Next"):
        getattr(api, name).restype = pointer
        getattr(api, name).argtypes = [pointer] if name != "PyInterpreterState_Main" else []
    thread = api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Main())
    while thread:
        if set_trace(thread, ctypes.cast(hook, pointer), None) != 0:
            raise _Refused(
                "a thread of the service cannot be followed", None, "see the service's audit hooks"
            )
        thread = api.PyThreadState_Next(thread)
