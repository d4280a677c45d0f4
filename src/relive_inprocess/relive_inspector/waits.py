"""Who waits for whom within the process: threads and tasks that wait for a lock or a thread, and who has it.

Python notes of no lock but a reentrant one who has it. So the source of what runs is read: who is inside of a ``with`` has its
lock, and who stands at a ``with``, an ``acquire`` or a ``join`` waits for it. A lock that was acquired otherwise has no known
holder.
"""

import ast
import gc
import linecache
import re
import sys
import textwrap
import threading

from .stacks import stack_of, without_ours
from .tasks import coroutine_frames
from .texts import TEXT_LENGTH, text_of

_LIBRARIES = ("/threading.py", "/queue.py", "/asyncio/locks.py", "/concurrent/futures/_base.py")
_WAYS = ("acquire", "wait", "join")
_MOST_LINES = 3000  # of a function
_TREES = {}  # by what is executed


def waits():
    """[{who, expression, what, holders}] of all that wait for a lock that is held, or for a thread's end."""
    had, wanted = {}, []
    for who, frames in _runners():
        at = next((number for number, one in enumerate(frames) if not _is_library(one)), None)
        if at is None:
            continue
        for number, frame in enumerate(frames[at:]):
            for one in _inside(frame):
                had.setdefault(id(one), []).append(who)
            if number == 0:
                wanted += [(who, text, one) for text, one in _entered(frame)]
    return [_told(who, text, one, had) for who, text, one in wanted if _is_held(one, who, had)]


def _runners():
    """(name, frames from the innermost out) of each thread and each task."""
    own = threading.get_ident()
    names = {one.ident: one.name for one in list(threading._active.values())}
    for ident, innermost in sys._current_frames().items():
        frame = without_ours(innermost) if ident == own else innermost
        yield "thread {}".format(names.get(ident, ident)), list(stack_of(frame))
    asyncio = sys.modules.get("asyncio")
    for task in gc.get_objects() if asyncio is not None else ():
        if isinstance(task, asyncio.Task) and not task.done() and task._fut_waiter is not None:
            yield "task {}".format(task.get_name()), [frame for _, frame in reversed(coroutine_frames(task))]


def _is_library(frame):
    return frame.f_code.co_filename.endswith(_LIBRARIES)


def _inside(frame):
    """The locks of all ``with`` in whose body a frame is."""
    for node, first in _withs(frame):
        if node.body[0].lineno + first <= frame.f_lineno <= node.end_lineno + first:
            for item in node.items:
                yield from (lock for _, lock in _valued(item.context_expr, frame))


def _entered(frame):
    """(text, lock or thread) that a frame is about to enter, acquire or join."""
    for node, first in _withs(frame):
        if node.lineno + first <= frame.f_lineno < node.body[0].lineno + first:
            for item in node.items:
                yield from _valued(item.context_expr, frame)
    tree, first = _tree(frame)
    for node in ast.walk(tree) if tree is not None else ():
        is_way = isinstance(node, ast.Call) and getattr(node.func, "attr", None) in _WAYS
        if is_way and node.lineno + first <= frame.f_lineno <= node.end_lineno + first:
            yield from _valued(node.func.value, frame)


def _withs(frame):
    tree, first = _tree(frame)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.With, ast.AsyncWith)):
            yield node, first


def _tree(frame):
    """(syntax tree of the function that runs, what to add to its line numbers); (None, 0) where there is no source to be read."""
    code = frame.f_code
    if code not in _TREES:
        _TREES[code] = _parsed(code, frame.f_globals)
    return _TREES[code]


def _parsed(code, names):
    lines = linecache.getlines(code.co_filename, names)
    block = _block(lines, code.co_firstlineno - 1) if code.co_name != "<module>" else lines
    first = code.co_firstlineno - 1 if code.co_name != "<module>" else 0
    if len(block) > _MOST_LINES or not any(way in line for line in block for way in ("with ", *_WAYS)):
        return None, 0
    try:
        return ast.parse(textwrap.dedent("".join(block))), first
    except (SyntaxError, ValueError):
        return None, 0


def _block(lines, start):
    """The lines of a function: those from its first that stand deeper than that one, and blank ones; decorators too."""
    found, depth, is_begun = [], None, False
    for line in lines[start:]:
        bare = line.lstrip()
        indent = len(line) - len(bare)
        depth = indent if depth is None else depth
        if bare and is_begun and indent <= depth and not bare.startswith((")", "]", "}", "#")):
            break
        is_begun = is_begun or bare.startswith(("def ", "async def ", "class "))
        found.append(line)
    return found


def _valued(node, frame):
    """(text, value) of an expression of names, attributes and constant items, where it is a lock or a thread."""
    if isinstance(node, ast.Call):  # as in `with lock.acquire_timeout(1)`: nobody knows what it gives
        return
    kinds = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context, ast.UnaryOp, ast.USub)
    if not all(isinstance(one, kinds) for one in ast.walk(node)):
        return
    try:
        value = eval(compile(ast.Expression(node), "<waits>", "eval"), frame.f_globals, frame.f_locals)
    except Exception:
        return
    if isinstance(value, threading.Condition):
        value = value._lock
    if isinstance(value, threading.Thread) or (hasattr(value, "acquire") and hasattr(value, "release")):
        yield _spelling(node), value


def _spelling(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return "{}.{}".format(_spelling(node.value), node.attr)
    return "{}[...]".format(_spelling(node.value)) if isinstance(node, ast.Subscript) else "..."


def _is_held(one, who, had):
    """Somebody else has it: else who stands there only passes."""
    if isinstance(one, threading.Thread):
        return one.is_alive()
    text = text_of(one, TEXT_LENGTH)
    if "unlocked" in text:
        return False
    owner = _owner(text)
    return owner != who if owner is not None else True


def _told(who, text, one, had):
    if isinstance(one, threading.Thread):
        holders = ["thread {}".format(one.name)]
    else:
        owner = _owner(text_of(one, TEXT_LENGTH))
        holders = [owner] if owner is not None else [name for name in had.get(id(one), ()) if name != who]
    return {"who": who, "expression": text, "what": text_of(one, TEXT_LENGTH), "holders": holders}


def _owner(text):
    """The thread that has a reentrant lock, by the lock's text."""
    found = re.search(r"RLock object owner=(\d+)", text)
    if found is None or found.group(1) == "0":
        return None
    names = {one.ident: one.name for one in list(threading._active.values())}
    return "thread {}".format(names.get(int(found.group(1)), found.group(1)))
