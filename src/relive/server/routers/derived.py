"""Routes that follow from operations: body, answer, scopes and summary are those of the operation's ``Route``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel

from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Operation, Route, named_target
from relive.server.audit import note_for_audit
from relive.server.authentication import Caller, needs
from relive.server.routers.provided import TASK_ANSWER, Configured, Submitted, performed
from relive.server.task import Task

__all__ = ["router"]

router = APIRouter()


def _add(operation: Operation[Any, Any], route: Route) -> None:
    router.add_api_route(
        route.path,
        _task(operation, route) if route.is_task else _at_once(operation, route),
        methods=[route.method],
        operation_id=operation.identifier,
        status_code=202 if route.is_task else 200,
        responses=TASK_ANSWER if route.is_task else None,
        summary=route.summary,
        description=route.summary,
        tags=[route.path.split("/")[1]],
    )


def _task(operation: Operation[Any, Any], route: Route) -> Callable[..., Task]:
    def endpoint(params: Any, submitted: Submitted, **callers: Caller) -> Task:
        target = named_target(dict(params)) or operation.name
        return submitted(operation.name, params, next(iter(callers.values())), target)

    submitted = _parameter("submitted", Annotated[Submitted, Depends()])
    return _typed(endpoint, operation, route, [submitted], Task)


def _at_once(operation: Operation[Any, Any], route: Route) -> Callable[..., BaseModel]:
    def endpoint(params: Any, settings: Any, request: Request, **_callers: Caller) -> BaseModel:
        note_for_audit(request.scope, target=named_target(dict(params)))
        result: BaseModel = performed(operation, settings, params)
        return result

    own = [_parameter("settings", Configured), _parameter("request", Request)]
    return _typed(endpoint, operation, route, own, operation.result)


def _typed(
    endpoint: Callable[..., Any],
    operation: Operation[Any, Any],
    route: Route,
    own: Iterable[inspect.Parameter],
    result: type[BaseModel],
) -> Callable[..., Any]:
    """With the signature from which FastAPI takes what the route is given."""
    place = Query() if route.method == "GET" else Body()
    callers = [
        _parameter(f"{scope.value}_caller", Annotated[Caller, Depends(needs(scope))])
        for scope in sorted(route.scopes)
    ]
    parameters = [_parameter("params", Annotated[operation.params, place]), *own, *callers]
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=result
    )
    endpoint.__name__ = operation.identifier
    return endpoint


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


for _operation in OPERATIONS.values():
    if isinstance(_operation.faces.rest, Route):
        _add(_operation, _operation.faces.rest)
