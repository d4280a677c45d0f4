"""Expressions of the service's Python: compiled, and evaluated outside of any request."""

import contextvars
import sys
import types

from .refusal import Refused, message_of
from .values import TEXT_MOST


def compiled(expression):
    try:
        # Without the future features of this program.
        return compile(expression, "<expression>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: too deep
        raise Refused(
            "{!r} is no expression of the service's Python".format(expression[:TEXT_MOST]),
            message_of(error),
            "one that `eval` takes: names, attributes, items, calls; no statement",
        ) from error


def outside_requests(function):
    """Call it in a copy of this context that works for no request."""

    def run():
        context = sys.modules.get("relive_recorder.context")
        if context is not None:
            context.begin(context.OUTSIDE)
        return function()

    return contextvars.copy_context().run(run)


def names_in(code):
    """All that an expression may look up, what stands within it included."""
    found = set(code.co_names) | set(code.co_freevars)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found |= names_in(one)
    return found
