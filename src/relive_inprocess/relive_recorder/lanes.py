"""Threads and tasks that work for the request of whoever started them, in a lane that is known when they are started.

``threading.Thread.start``, ``ThreadPoolExecutor.submit`` (so ``asyncio.to_thread`` and ``run_in_executor``), ``anyio.to_thread``,
the making of tasks by the loops of asyncio and uvloop, and gevent's greenlets. Were lanes numbered when their threads first do
something, two threads would race for their numbers, and a replay would mix up what they read.
"""

from __future__ import annotations

import functools
import importlib
import threading
from contextvars import Context
from typing import Any, Callable, Optional

from relive_recorder import context
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import recorder

__all__ = ["install"]

_WORKERS = ("concurrent.futures.", "anyio.")


def install() -> None:
    """Change ``threading`` now, the others when they are imported."""
    _change_threads(threading)
    when_imported("concurrent.futures.thread", _change_executor)
    when_imported("asyncio.base_events", lambda module: _change_loop(module.BaseEventLoop))
    when_imported("uvloop", lambda module: _change_loop(module.Loop))
    when_imported("anyio.to_thread", _change_anyio)
    when_imported("gevent.greenlet", _gevent)


def _change_threads(module: Any) -> None:
    start, bootstrap = module.Thread.start, module.Thread._bootstrap_inner

    def start_in_lane(self: Any) -> None:
        if recorder.mode() and not _is_worker(self):
            self.__dict__["_relive_birth"] = attempt(context.bear)
        start(self)

    def bootstrap_in_lane(self: Any) -> None:
        birth = self.__dict__.pop("_relive_birth", None)
        if birth is not None:
            # From 3.14 on a thread runs in a context of its own, which the starting thread has made.
            own = getattr(self, "_context", None)
            if own is None:
                context.enter(birth)
            else:
                attempt(own.run, context.enter, birth)
        bootstrap(self)

    _wrap(start, start_in_lane)
    _wrap(bootstrap, bootstrap_in_lane)
    module.Thread.start, module.Thread._bootstrap_inner = start_in_lane, bootstrap_in_lane


def _is_worker(thread: Any) -> bool:
    """It works for whoever has work; and whether a new one is needed is a matter of time."""
    modules = type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None)
    return any(type(one) is str and one.startswith(_WORKERS) for one in modules)


def _change_executor(module: Any) -> None:
    submit = module.ThreadPoolExecutor.submit

    def submit_in_lane(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if recorder.mode():
            fn = _in_lane(fn, attempt(context.bear))
        return submit(self, fn, *args, **kwargs)

    _wrap(submit, submit_in_lane)
    module.ThreadPoolExecutor.submit = submit_in_lane


def _in_lane(fn: Callable[..., Any], birth: Optional[context.Birth]) -> Callable[..., Any]:
    if birth is None:
        return fn

    def work(*args: Any, **kwargs: Any) -> Any:
        before = context.enter(birth)
        try:
            return fn(*args, **kwargs)
        finally:
            context.leave(before)

    return work


def _change_anyio(module: Any) -> None:
    run_sync = module.run_sync
    # From 4.1 on every worker runs in a copy of the context of who waits for it, whichever loop that is.
    in_copies = "abandon_on_cancel" in (run_sync.__kwdefaults__ or ())

    async def run_sync_in_lane(func: Callable[..., Any], *args: Any, **named: Any) -> Any:
        quick = recorder.quick
        work = quick.in_lane(func) if quick is not None and in_copies else None
        if work is None:
            work = _in_lane(func, attempt(context.bear)) if recorder.mode() else func
        return await run_sync(work, *args, **named)

    _wrap(run_sync, run_sync_in_lane)
    module.run_sync = run_sync_in_lane


def _gevent(module: Any) -> None:
    context.know_greenlets(module.getcurrent, importlib.import_module("gevent.local").local)
    module.Greenlet.add_spawn_callback(_spawned)


def _spawned(greenlet: Any) -> None:
    """It has a context of its own, in which nothing is yet: the service will find nothing in it either."""
    birth = attempt(context.bear) if recorder.mode() else None
    if birth is not None:
        attempt(_begin_in, greenlet, birth)


def _begin_in(greenlet: Any, birth: context.Birth) -> None:
    own = greenlet.gr_context
    if own is None:
        own = greenlet.gr_context = Context()
    own.run(context.begin_born, birth)


def _change_loop(kind: Any) -> None:
    create_task = kind.create_task

    def create_task_in_lane(self: Any, coro: Any, **named: Any) -> Any:
        quick = recorder.quick
        token = None if quick is None else quick.born()
        if token is None:
            birth = attempt(context.bear) if recorder.mode() else None
            if birth is None:
                return create_task(self, coro, **named)
            token = context.task_of(birth)
        try:
            return create_task(self, coro, **named)
        finally:
            context.made(token)

    _wrap(create_task, create_task_in_lane)
    kind.create_task = create_task_in_lane


def _wrap(original: Any, ours: Any) -> None:
    functools.update_wrapper(ours, original)
