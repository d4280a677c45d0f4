"""What follows a Python process line by line, in a branch: values at a line, writes of a value, stops of a debugger.

It uses the standard library only, and runs on CPython 3.9 to 3.14. It is sent to the process as one text: the modules of ``PARTS``
in that order, without their imports of each other (``relive.inspection.python.program_text``). So no two of them define the same
name. ``answer`` takes and gives JSON; what is seen later goes into an unnamed file (memfd_create(2)) that the host reads by its
descriptor: it outlives the process.

Terms: an *own* line is of the service's own code, neither of Python nor of what was installed. The *position* of a line in a
request is its number among the own lines that ran for that request, from 1; the recorder's context tells which request the running
code works for (0: none, or there is no recorder). An expression is evaluated outside of any request, so that it takes no recorded
answer of one (a reading of the clock, say).
"""

from .answering import answer

__all__ = ["PARTS", "answer"]

PARTS = (
    "refusal",
    "values",
    "records",
    "expressions",
    "places",
    "watch",
    "commands",
    "session",
    "follower",
    "installing",
    "answering",
)
