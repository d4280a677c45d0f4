"""Lines of the service's own code: which there are, and which one ``FILE:LINE`` means.

Code is found by its functions, with the garbage collector's list of all objects: a file that was loaded and is not there any more,
or has changed since, still has the lines that run.
"""

import dis
import gc
import linecache
import os
import sys
import sysconfig
import types

from .expressions import compiled, outside_requests
from .refusal import Refused
from .values import TEXT_MOST

FRAMES_MOST = 500  # frames that are looked through for the caller in the service's own code
_SUSPENDED = (
    (types.CoroutineType, "cr_code"),
    (types.GeneratorType, "gi_code"),
    (types.AsyncGeneratorType, "ag_code"),
)
# What a function begins with stands in the line of its ``def``.
_AT_ENTRY = {"RESUME", "RETURN_GENERATOR", "POP_TOP", "COPY_FREE_VARS", "MAKE_CELL", "GEN_START", "NOP"}


def codes_by_file():
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
            # By their types alone: the class of a proxy (celery's, Django's) is another object's, or is not there
            # outside of requests.
            if type(value) is types.FunctionType:
                pending.append(value.__code__)
            elif issubclass(type(value), type):
                pending += [one.__code__ for one in vars(value).values() if type(one) is types.FunctionType]
    pending += [frame.f_code for frame in standing_frames()]
    found, seen = {}, set()
    while pending:
        code = pending.pop()
        if code in seen or code.co_filename == "<relive>":
            continue
        seen.add(code)
        found.setdefault(code.co_filename, []).append(code)
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return found


def standing_frames():
    """Of all threads."""
    for innermost in sys._current_frames().values():
        frame = innermost
        while frame is not None:
            yield frame
            frame = frame.f_back


def _lines_of(code):
    """Lines of which the interpreter tells before it runs them; that of a ``def`` or its decorator is none of them."""
    found, line = set(), 0
    for one in dis.get_instructions(code):
        # From 3.13 on ``starts_line`` says whether, not which.
        starts = one.line_number if hasattr(one, "line_number") else one.starts_line
        line = starts or line
        if line and one.opname not in _AT_ENTRY:
            found.add(line)
    return found


def is_named(file, wanted):
    return file == wanted or file.endswith("/" + wanted.lstrip("/"))


class Point:
    """Expressions at a line."""

    def __init__(self, number, wanted, codes):
        self.number = number
        self.file = _file_named(wanted["file"], codes)
        self.line = wanted["line"]
        self._check_line({line for code in codes[self.file] for line in _lines_of(code)})
        self.expressions = [(text, compiled(text)) for text in wanted["expressions"]]
        self.when = compiled(wanted["when"]) if wanted["when"] is not None else None

    @property
    def source(self):
        return outside_requests(lambda: linecache.getline(self.file, self.line).strip()[:TEXT_MOST])

    def _far(self, line):
        return abs(line - self.line), line

    def _check_line(self, lines):
        if self.line in lines:
            return
        near = sorted(sorted(lines, key=self._far)[:4])
        raise Refused(
            "no function of the service has code in line {} of {}".format(self.line, self.file),
            "lines near it that have are {}".format(", ".join(map(str, near))),
            "name one of these; what stands outside of functions ran when the module was imported",
            is_near=True,
        )


def _file_named(wanted, codes):
    found = sorted(one for one in codes if is_named(one, wanted) or is_named(os.path.realpath(one), wanted))
    # Of a library and the service it is the service's; the library's needs more of its path.
    found = [one for one in found if is_own(one)] or [one for one in found if not is_relives(one)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Refused(
            "{} may be one of {} files".format(wanted, len(found)),
            ", ".join(found[:10]),
            "give more of its path",
        )
    own = sorted(one for one in codes if is_own(one))
    raise Refused(
        "no code of the service's process is of a file {}".format(wanted),
        "its own files are {}".format(", ".join(own[:20]) or "none"),
        "name one of these as FILE:LINE",
    )


def _foreign():
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(paths[name] + "/" for name in names if name in paths)


_FOREIGN = _foreign()


def is_own(file):
    """The service's own: no part of Python, none that was installed, nothing made from a text."""
    if file.startswith(("<", *_FOREIGN)):
        return False
    if any(part in file for part in ("/site-packages/", "/dist-packages/")):
        return False
    return not (is_relives(file) or _is_launcher(file))


def _is_launcher(file):
    """A script that an installation made to begin an installed program, such as ``bin/uvicorn``: it defines nothing of its own."""
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) != file or os.path.splitext(file)[1] or "/bin/" not in file:
        return False
    return not any(getattr(value, "__module__", None) == "__main__" for value in list(vars(main).values()))


def is_relives(file):
    """Of what Relive has put into the process."""
    return any(part in file for part in ("/relive_recorder/", "/relive_inprocess/", "/run/relive/inprocess/"))
