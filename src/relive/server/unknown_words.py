"""Words of a request that nothing reads: one that is left unread, who asks takes for obeyed.

The fields of a body are checked by its model (``operations.operation.Params``), and so is a query that is one model. Parameters
that are declared one by one, and bodies where none is expected, are checked here against what the route declares: the API's page,
which says the same, takes half a second to make, and whoever asked first would wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from fastapi import Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import ParamTypes
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams

from relive.errors import ReliveError, RequestInvalid
from relive.server.authentication import Authenticator

__all__ = ["refuse_unknown_words"]

_SHOWN = 100  # [characters] of a word


async def refuse_unknown_words(request: Request) -> None:
    """A dependency of all routes; who has no token is told that first, by the route.

    Raises:
        RequestInvalid: the query or the body says what the route does not read.
    """
    route: Any = request.scope.get("route")
    gate: Authenticator = request.app.state.gate
    if not isinstance(route, APIRoute) or isinstance(await gate.ask(request.scope), ReliveError):
        return
    known = _words_of_query(route)
    unknown = next((word for word in QueryParams(request.scope["query_string"]) if word not in known), None)
    if unknown is not None:
        raise _refused(f"query.{unknown[:_SHOWN]}", known)
    if route.body_field is None:
        word = _first_word(await request.body())
        if word is not None:
            raise _refused(f"body.{word[:_SHOWN]}", ())


def _words_of_query(route: APIRoute) -> set[str]:
    """Fields of a model do not say where they are: models are of queries only."""
    declared = {
        one.alias
        for one in get_flat_params(route.dependant)
        if getattr(one.field_info, "in_", ParamTypes.query) is ParamTypes.query
    }
    read_by_itself = (route.openapi_extra or {}).get("parameters", ())
    return declared | {one["name"] for one in read_by_itself if one["in"] == "query"}


def _first_word(body: bytes) -> str | None:
    """Of a JSON object; anything else says nothing that could be taken for parameters."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return next(iter(said), None) if isinstance(said, dict) else None


def _refused(where: str, known: Collection[str]) -> RequestInvalid:
    names = ", ".join(sorted(known))
    return RequestInvalid(
        f"{where} is not known here",
        cause=f"this route reads {names}" if names else "this route reads none",
        remedy="/openapi.json says what is expected",
    )
