"""Reads of environment variables: ``os.environ``, ``os.getenv``.

Event ``environment-read``: ``name``, ``value`` (scrubbed; absent when it is not set). Each name once for each request, and once
for all that happens outside of requests; not what Python's own library and installed packages read for themselves (some do at
each call), nor lists of all of it. The environment is in memory, and so in the commit: in a replay nothing is answered.
"""

import os
import sys
from _collections_abc import ItemsView, ValuesView
from typing import Any

from relive_recorder import context, quick
from relive_recorder.guard import attempt
from relive_recorder.kinds.callers import installed, is_installed
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_MOST = 1000  # names of one request
_PASSING = frozenset(("os", "_collections_abc", "collections.abc"))
_get_frame = sys._getframe
# ``requests`` goes through all of the environment several times for each call.
_ITEMS, _VALUES = ItemsView.__iter__.__code__, ValuesView.__iter__.__code__


def install() -> None:
    """Replace the one method that all reads of ``os.environ`` go through."""
    environ = type(os.environ)
    real = environ.__getitem__

    def __getitem__(self: Any, key: Any) -> Any:
        caller = _get_frame().f_back
        code = caller.f_code if caller is not None else _ITEMS  # a thread or a callback of C asks
        if code is _ITEMS or code is _VALUES or self is not os.environ or type(key) is not str:
            return real(self, key)
        if is_installed(caller, _PASSING) or recorder.mode() not in (RECORD, REPLAY):
            return real(self, key)
        try:
            value = real(self, key)
        except KeyError:
            attempt(_emit, key, None)
            raise
        attempt(_emit, key, value)
        return value

    wrapper: Any = __getitem__
    if quick.module is not None:  # it lets the reads of libraries through
        parts = real, wrapper, os.environ, _ITEMS, _VALUES, _PASSING, installed
        wrapper = quick.module.environment(environ, *parts)
    environ.__getitem__ = wrapper  # type: ignore[method-assign]


def _emit(name: str, value: Any) -> None:
    seen = context.here().store.setdefault("environment-read", set())
    if name in seen or len(seen) >= _MOST:
        return
    seen.add(name)
    fields = {"name": name}
    if value is not None:
        fields["value"] = recorder.scrubber.named(name, value)
    recorder.emit("environment-read", fields)
