"""What a fork server imports before it forks, and which modules it then runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

__all__ = ["ENTRIES", "entry", "preload"]

# What ``python -m NAME`` would run, and the module whose ``main`` that is. Named, not imported: all of them lie above this room.
ENTRIES = {
    "relive.agent": "relive.agent.__main__",
    "relive.watching": "relive.watching.__main__",
    "relive.proxies.ingress.proxy": "relive.proxies.ingress.proxy",
    "relive.proxies.ingress.capture": "relive.proxies.ingress.capture",
    "relive.proxies.egress.recorder": "relive.proxies.egress.recorder",
    "relive.proxies.egress.beside": "relive.proxies.egress.beside",
    "relive.signals.tracer": "relive.signals.tracer",
    "relive.cli": "relive.cli.__main__",
    "relive.operations": "relive.operations.__main__",
    "relive.forkserver.trial": "relive.forkserver.trial",
}
_FIRST = "relive.agent.control.lean"  # decides what the others leave out
# What these import late: on their way, in a thread, when something fails.
_LATER = (
    "encodings.idna",
    "uvloop",
    "relive.checkpoint.dump",
    "relive.operations.revive",
    "relive.store.image_intake",
    "relive.store.images",
)


def preload() -> None:
    """Import all of it; no module of Relive starts a thread by that."""
    for name in (_FIRST, *ENTRIES.values(), *_LATER):
        importlib.import_module(name)


def entry(module: str) -> Callable[[], int | None]:
    """What runs it in this process, as ``__main__`` would; raises KeyError for another module."""
    main: Callable[[], int | None] = sys.modules[ENTRIES[module]].main
    return main
