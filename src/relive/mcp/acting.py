"""Operations as tools: arguments are the fields of the params, what comes back is the result, progress is told on the way."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from relive.config import Settings
from relive.mcp.trail import acting
from relive.operations.operation import Operation
from relive.operations.subprocess_runner import perform_apart

__all__ = ["tool_of"]


class _ClientProgress:
    """A ``Progress`` in a thread of anyio, which tells the client of the call."""

    def __init__(self, context: Context[Any]) -> None:
        self._context = context

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        self._report_progress(0, total, what)
        yield lambda done: self._report_progress(done, total, what)

    @contextmanager
    def transfer(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self._report_progress(done, total, what)

        self._report_progress(0, total, what)
        yield advance

    def status(self, text: str) -> None:
        self._report_progress(0, None, text)

    def _report_progress(self, done: int, total: int | None, what: str) -> None:
        anyio.from_thread.run(self._context.report_progress, done, total, what)


def tool_of(
    operation: Operation[Any, Any],
    settings: Settings,
    at_once: anyio.CapacityLimiter,
    left_out: Collection[str] = (),
) -> Callable[..., Awaitable[BaseModel]]:
    """The function of a tool.

    Args:
        at_once: the threads for all that act, apart from those that answer requests.
        left_out: fields of the params that it does not take.
    """

    async def tool(**given: Any) -> BaseModel:
        context = given.pop("context")
        shown = _ClientProgress(context)
        cancel = threading.Event()

        def perform() -> BaseModel:
            params = operation.params(**given)
            with acting(context, operation.tool_name, given):
                result: BaseModel = perform_apart(operation, settings, params, shown, cancel=cancel)
            return result

        try:
            return await anyio.to_thread.run_sync(perform, abandon_on_cancel=True, limiter=at_once)
        finally:
            cancel.set()  # a client that gave up wants nothing of it

    parameters = [
        _parameter(name, field)
        for name, field in operation.params.model_fields.items()
        if name not in left_out
    ]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    tool.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*parameters, context], return_annotation=operation.result
    )
    tool.__annotations__ = {one.name: one.annotation for one in [*parameters, context]} | {
        "return": operation.result
    }
    tool.__name__ = operation.tool_name
    return tool


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.is_required() else field.default
    bounded: Any = field.annotation
    for bound in field.metadata:
        bounded = Annotated[bounded, bound]
    described = Annotated[bounded, FieldInfo(description=field.description)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)
