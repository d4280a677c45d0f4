"""Changing a module when it has just been imported, whoever imports it and whenever."""

import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

from relive_recorder.guard import attempt

__all__ = ["before_import", "when_imported"]

_changes: Dict[str, List[Callable[[Any], None]]] = {}
_before: Dict[str, List[Callable[[], None]]] = {}


def when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Call ``change`` with the module: now if it is loaded already, else right after its code has run.

    A change that fails switches the recorder off; the import succeeds all the same.
    """
    module = sys.modules.get(name)
    if module is not None:
        attempt(change, module)
        return
    _listen()
    _changes.setdefault(name, []).append(change)


def before_import(name: str, change: Callable[[], None]) -> None:
    """Call ``change`` when the module is first looked for, before any of its code runs; never where it is loaded already."""
    if name not in sys.modules:
        _listen()
        _before.setdefault(name, []).append(change)


def _listen() -> None:
    if not _changes and not _before and not any(type(finder) is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds nothing itself: asks the other finders and puts its hand on the loader.

    Not a ``MetaPathFinder`` by inheritance: ``importlib.abc`` takes up to 20 ms to import.
    """

    def find_spec(self, name: str, path: Optional[Sequence[str]], target: Any = None) -> Optional[Any]:
        for change in _before.pop(name, ()):
            attempt(change)
        if name not in _changes:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                loader = spec.loader
                if loader is not None and hasattr(loader, "exec_module"):
                    _change_after(loader, name)
                return spec
        return None


def _change_after(loader: Any, name: str) -> None:
    """Replace ``exec_module`` of this one loader object, which is made anew for each module."""
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        for change in _changes.pop(name, []):
            attempt(change, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:
        # A built-in or frozen module's loader is a class: those are loaded before anybody else.
        pass
