"""Versions of the packages that are loaded."""

import sys
import time
from typing import Dict, Optional

__all__ = ["of_packages"]

_MOST = 300
_known: Dict[str, Optional[str]] = {}
_mono = time.monotonic_ns


def of_packages(until: int) -> Dict[str, str]:
    """By the name of the top-level module, of those that came from site-packages. What is known stays known.

    Args:
        until: CLOCK_MONOTONIC in nanoseconds; those not looked up by then are so at the next failure.
    """
    for name, module in list(sys.modules.items()):
        if name in _known or "." in name or name.startswith("_"):
            continue
        if _mono() > until or len(_known) >= _MOST:
            break
        _known[name] = _version(name, module)
    return {name: version for name, version in sorted(_known.items()) if version is not None}


def _version(name: str, module: object) -> Optional[str]:
    held = getattr(module, "__dict__", None)
    file = held.get("__file__") if type(held) is dict else None
    if type(file) is not str or not ("/site-packages/" in file or "/dist-packages/" in file):
        return None
    declared = held.get("__version__") if type(held) is dict else None
    if type(declared) is str:
        return declared[:100]
    try:
        from importlib.metadata import version

        return version(name)[:100]
    except Exception:  # no distribution of that name, or one whose metadata are broken
        return None
