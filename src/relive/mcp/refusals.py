"""Errors as an agent can act on them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from relive.errors import ReliveError, UsageError

__all__ = ["refusal", "refusing"]

P = ParamSpec("P")
T = TypeVar("T")


def refusal(error: ReliveError) -> ToolError:
    """The four parts in JSON; anything but a ToolError would be masked by the SDK."""
    return ToolError(json.dumps(error.as_json(), ensure_ascii=False))


def refusing(function: Callable[P, T]) -> Callable[P, T]:
    """The function, its ReliveErrors as ToolErrors."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ReliveError as error:
            raise refusal(error) from error
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise refusal(UsageError(f"{name} cannot be {first['input']!r}", cause=first["msg"])) from error

    return called
