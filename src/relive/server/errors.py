"""What an error is as an answer: a status of HTTP, and ``{"error": {code, message, cause, remedy}}`` whatever went wrong.

The statuses by code stand in ``STATUSES``; a code that does not stand there has the status of its family. The table is part of
docs/api-security.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from relive.errors import MethodNotAllowed, NotFound, ReliveError, RequestInvalid, reason_of

__all__ = [
    "ERROR_RESPONSES",
    "JSON_ERROR_RESPONSES",
    "STATUSES",
    "ErrorAnswer",
    "ErrorParts",
    "answer_to",
    "install",
    "refuse_unwritable",
    "status_of",
]

_SHOWN = 200  # [characters] of a path, [bytes] are as many at most
_TOLD = 3  # wrong fields that the cause names

# By code. Codes of tasks, and "cancelled", belong to the server's own work.
STATUSES: Final[Mapping[str, int]] = {
    "error": 500,  # also a bug
    "usage": 422,
    "not-found": 404,
    "ref-ambiguous": 409,
    "host-incapable": 501,
    "permission-missing": 500,  # of the server's process, not of the caller
    "disk-full": 507,
    "exports-full": 507,
    "commit-failed": 500,
    "target-undumpable": 422,
    "restore-failed": 500,
    "restore-timed-out": 504,
    "commit-timed-out": 504,
    "restore-unsupported": 422,
    "store-error": 500,
    "store-busy": 503,
    "key-missing": 409,
    "key-wrong": 409,
    "recording-error": 500,
    "request-unknown": 404,
    "request-truncated": 409,
    "tls-refused": 409,
    "package-missing": 409,
    "capsule-error": 500,
    "capsule-exists": 409,
    "agent-unreachable": 502,
    "exchange-error": 502,
    "remote-unknown": 422,
    "archive-invalid": 422,
    "request-refused": 400,
    "credentials-missing": 401,
    "scope-missing": 403,
    "origin-refused": 403,
    "url-refused": 403,
    "request-invalid": 422,
    "method-not-allowed": 405,
    "range-unsatisfiable": 416,
    "request-too-large": 413,
    "headers-too-large": 431,
    "request-too-slow": 408,
    "too-many-requests": 429,
    "server-busy": 503,
    "task-error": 500,
    "key-reused": 422,
    "tasks-full": 503,
    "task-cancelled": 409,
    "cancelled": 409,
}
# What goes with a status beside the body, unless the place that answers says it better.
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": 'Bearer realm="relive"'},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}


class ErrorParts(BaseModel):
    """What happened, to what, why, what to do next; ``code`` is stable (docs/errors.md)."""

    code: str = Field(examples=["ref-unknown"])
    message: str = Field(examples=["no commit or tag is called 'paymets'"])
    cause: str | None = Field(examples=[None])
    remedy: str | None = Field(examples=["`relive log` lists them"])


class ErrorAnswer(BaseModel):
    """The body of every answer from status 400 on."""

    error: ErrorParts


# For ``FastAPI(responses=...)``: with it no operation is given FastAPI's own shape of a 422.
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request was refused"},
    "5XX": {"model": ErrorAnswer, "description": "It was not done"},
}
# The same for an operation whose answers are no JSON: FastAPI would write that of errors too.
JSON_ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": response["description"],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}},
    }
    for status, response in ERROR_RESPONSES.items()
}


def status_of(error: ReliveError) -> int:
    """The status: that of the error's code, else of the nearest class above that has one."""
    codes = (kind.code for kind in type(error).__mro__ if issubclass(kind, ReliveError))
    return next(STATUSES[code] for code in codes if code in STATUSES)


def answer_to(
    error: ReliveError, *, headers: Mapping[str, str] | None = None, status: int | None = None
) -> JSONResponse:
    """The answer; an ASGI application, so that middleware can give it as well."""
    number = status_of(error) if status is None else status
    return JSONResponse(
        {"error": error.as_json()},
        number,
        headers={**_HEADERS.get(number, {}), "Cache-Control": "no-store", **(headers or {})},
    )


def install(app: FastAPI) -> None:
    """Make the application answer every error in the one shape; a bug's text goes to the server's log only."""
    app.add_exception_handler(ReliveError, _relive)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


async def _relive(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ReliveError)
    return answer_to(error)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return answer_to(invalid_fields(error.errors()))


def invalid_fields(errors: Iterable[Mapping[str, Any]]) -> RequestInvalid:
    """The error for what pydantic found; values are not shown, since one may be a secret in a wrong place."""
    found = [(".".join(map(str, one["loc"])) or "the request", reason_of(str(one["msg"]))) for one in errors]
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return RequestInvalid(
        f"{found[0][0][:_SHOWN]} cannot be what it is" if found else "the request cannot be read",
        cause="; ".join(f"{where[:_SHOWN]}: {what[:_SHOWN]}" for where, what in found[:_TOLD]) + more,
        remedy="/openapi.json says what is expected",
    )


async def refuse_unwritable(request: Request) -> None:
    """A dependency of all routes: refuses bodies with half a pair of surrogates, which no answer and no file could hold.

    Raises:
        RequestInvalid: there is one; JSON can write it as an escape, and Python's parser lets it through.
    """
    body = await request.body()
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise RequestInvalid(
            "the body of the request holds what is no text",
            cause="half a pair of UTF-16 surrogates, in one of its strings",
            remedy="send UTF-8, or escapes of whole characters",
        ) from None
    except (ValueError, RecursionError):  # no JSON: who wants some says so better
        return


def _methods_of(request: Request) -> list[str]:
    """Which methods the path has: Starlette's own 405 names those of one route only."""
    paths = request.app.openapi()["paths"] if isinstance(request.app, FastAPI) else {}
    found = {
        method.upper()
        for path, methods in paths.items()
        if compile_path(path)[0].match(request.url.path)
        for method in methods
    }
    return sorted(found)


async def _http(request: Request, error: Exception) -> JSONResponse:
    """What Starlette and FastAPI raise themselves."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:_SHOWN]
    refusal: ReliveError
    allowed: str | None = None
    if error.status_code == 404:
        refusal = NotFound(f"there is no {path}", remedy="/docs lists the paths")
    elif error.status_code == 405:
        allowed = ", ".join(_methods_of(request)) or (error.headers or {}).get("Allow")
        refusal = MethodNotAllowed(
            f"{path} has no method {request.method[:_SHOWN]}",
            cause=f"it has {allowed}" if allowed else None,
            remedy="/docs lists the paths",
        )
    else:
        refusal = RequestInvalid(
            "the request cannot be answered", cause=str(error.detail)[:_SHOWN], remedy="/docs says how to ask"
        )
    headers = dict(error.headers or {}) | ({"Allow": allowed} if allowed else {})
    return answer_to(refusal, headers=headers, status=error.status_code)


async def _bug(_request: Request, _error: Exception) -> JSONResponse:
    # Starlette raises it again after the answer, so that the traceback is in uvicorn's log.
    return answer_to(
        ReliveError(
            "the server failed at this request",
            cause="a mistake in Relive; its traceback is in the log of `relive serve`",
            remedy="report it with the traceback; the server goes on",
        )
    )
