"""Asking a Python process that lives again in a branch: values of expressions, stacks with locals, all its own globals.

Why not from the commit's memory: the layout of every object differs from CPython 3.9 to 3.14 and by build (``_Py_DebugOffsets``
come with 3.13 only, and do not tell how dictionaries keep their items), while the interpreter itself can say all of it. So a
sealed branch is restored, one of its threads calls the interpreter's own functions (stable ABI), and the branch is thrown away,
whatever the expression did. Nothing needs to be in the process beforehand: no recorder, no debugger, no debug symbols.
"""
