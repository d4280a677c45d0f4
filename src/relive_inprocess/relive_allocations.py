"""What counts the bytes that a Python process allocates by line, in a branch: by what ``tracemalloc`` stands on.

Unlike that it reads no files when it is imported. Its text is compiled in that process (``inspection.python.asking``), so it uses
the standard library only and runs on CPython 3.8 to 3.14. ``answer`` takes and gives JSON.
"""

import _tracemalloc
import json


def answer(question):
    """Begin to count, or tell what was counted since and end that; bytes of JSON; it never raises."""
    try:
        wanted = json.loads(question)
        return json.dumps({"lines": _end(wanted["most"])} if wanted["end"] else _begin()).encode()
    except BaseException as error:  # whoever asks wants to know
        return json.dumps({"failed": "{}: {}".format(type(error).__name__, error)}).encode()


def _begin():
    _tracemalloc.start(1)
    return {}


def _end(most):
    """[file, line, bytes] that are still held, most bytes first."""
    traces, found = _tracemalloc._get_traces(), {}
    _tracemalloc.stop()
    for trace in traces:
        place = trace[2][0]
        found[place] = found.get(place, 0) + trace[1]
    told = [[file, line, size] for (file, line), size in found.items() if not file.startswith("<")]
    return sorted(told, key=lambda one: -one[2])[:most]
