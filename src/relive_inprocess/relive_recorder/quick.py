"""The recorder's quick part in C, where it can be loaded: ``native/quick_abi3.c`` tells what it does.

``make setup`` compiles it. Without it, with another Python than CPython, in a second interpreter of a process, or where it cannot
be loaded, the Python code does the same: the records are equal to the byte.
"""

import os
import sys
from typing import Any, Optional

__all__ = ["load", "module", "why_not"]

_NAME = "relive_recorder._quick"
_FILE = "_quick.abi3.so"

why_not = "nobody asked for it"  # a sentence; empty where it was loaded
module: Any = None  # where it was loaded


def load() -> Optional[Any]:
    """Load the module; None where it cannot be had, and then ``why_not`` says why. Never raises."""
    global why_not, module
    try:
        why_not = _unfit()
        if not why_not:
            module = _loaded()
            return module
    except Exception as fault:
        why_not = f"{type(fault).__name__}: {fault}"
    return None


def _unfit() -> str:
    if sys.implementation.name != "cpython":
        return f"it is for CPython, not for {sys.implementation.name}"
    if "t" in getattr(sys, "abiflags", ""):
        return "it relies on the interpreter's lock, which a free-threaded build has not"
    if hasattr(sys, "getobjects"):
        return "this build keeps lists of all objects (Py_TRACE_REFS), so its objects look differently"
    return ""


def _loaded() -> Any:
    # The frozen parts of importlib, which are there already: importlib.util would take milliseconds.
    import _frozen_importlib
    import _frozen_importlib_external

    with open(f"{__file__.rpartition('/')[0]}/{_FILE}", "rb") as file:
        code = file.read()
    # From memory: a process maps what it has loaded, and a commit of it must come back where that file is another one by now.
    fd = os.memfd_create("relive-quick")
    try:
        os.write(fd, code)
        # Twice a slash: the loader must not take another library for this one, which was loaded from the same descriptor.
        path = f"/proc/self//fd/{fd}"
        loader = _frozen_importlib_external.ExtensionFileLoader(_NAME, path)
        spec = _frozen_importlib.ModuleSpec(_NAME, loader, origin=path)
        loaded = _frozen_importlib.module_from_spec(spec)
        loader.exec_module(loaded)
        if not loaded.is_own():
            raise ImportError("it serves another interpreter of this process")
    finally:
        os.close(fd)
    # The descriptor's number is the service's from now on: who reads the files of all modules would read its pipe or socket.
    loaded.__file__ = spec.origin = loader.path = file.name
    return loaded
