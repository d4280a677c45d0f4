"""Loading numpy without its threads: only what asks for pages needs it, and that in a process that may fork."""

from __future__ import annotations

import os

__all__ = ["load_numpy"]

_VARIABLE = "OPENBLAS_NUM_THREADS"


def load_numpy() -> None:
    """Import numpy; to be called before any module that does.

    The linear algebra library within it starts a thread for each further core when it is loaded. Nothing here uses it,
    and callers fork and change namespaces, which is best done by a process of one thread.
    """
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = "1"
    try:
        import numpy  # noqa: F401, PLC0415 - now, while the variable is there
    finally:
        del os.environ[_VARIABLE]  # not for the services that are started from here
