"""What looks at a Python process from within, in a branch: stacks with locals, an expression's value, the service's own globals.

It is compiled in that process (``inspection.python.asking``) as one text: the modules of ``PARTS`` in that order, without their
imports of each other, so no two of them define the same name. It uses the standard library only, and runs on CPython 3.8 to 3.14.
``answer`` takes and gives JSON. Everything is bounded: ``most`` leaves, ``depth`` levels, some characters of each text.
"""

from .answering import answer

__all__ = ["PARTS", "answer"]

PARTS = (
    "texts",
    "names",
    "parts_of_values",
    "stacks",
    "tasks",
    "waits",
    "holders",
    "evaluation",
    "walk",
    "heap",
    "answering",
)
