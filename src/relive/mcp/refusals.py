"""Errors as an agent can act on them: whatever a tool fails with is told in the four parts that every face has."""

from __future__ import annotations

import json

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from pydantic import ValidationError

from relive.errors import ReliveError, UsageError
from relive.operations.unforeseen import unforeseen

__all__ = ["refusal"]


def refusal(name: str, raised: BaseException) -> ToolError:
    """What the tool of this name answers with when this was raised: the parts in JSON, behind a few words.

    A defect is of the kind whose traceback the SDK writes to the server's log, and what its exception says is only there.
    """
    error = _error_of(raised)
    kind = ToolError if error is raised or isinstance(raised, ValidationError) else UnexpectedToolError
    return kind(f"Error executing tool {name}: {json.dumps(error.as_json(), ensure_ascii=False)}")


def _error_of(raised: BaseException) -> ReliveError:
    if isinstance(raised, ReliveError):
        return raised
    if isinstance(raised, ValidationError):
        first = raised.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        what = f"{name} cannot be {first['input']!r}" if first["type"] != "missing" else f"{name} is missing"
        return UsageError(what, cause=first["msg"], remedy="the tool's input schema says what it takes")
    return unforeseen(raised, has_text=False)
