"""Errors as an agent can act on them: whatever a tool fails with is told in the four parts that every face has."""

from __future__ import annotations

import json

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from pydantic import ValidationError

from relive.errors import ReliveError, UsageError, reason_of
from relive.operations.unforeseen import unforeseen

__all__ = ["refusal"]

_TOLD = 3  # wrong arguments that the cause names


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
        return _of_arguments(raised)
    return unforeseen(raised, has_text=False)


def _of_arguments(raised: ValidationError) -> UsageError:
    """Those that there are not come first: of what else is wrong they may be the reason."""
    errors = sorted(raised.errors(), key=lambda one: one["type"] != "extra_forbidden")
    found = [(".".join(str(part) for part in one["loc"]), one) for one in errors[:_TOLD]]
    name, first = found[0]
    what = f"{name} is missing" if first["type"] == "missing" else f"{name} cannot be {first['input']!r}"
    more = f"; and {len(errors) - _TOLD} more" if len(errors) > _TOLD else ""
    return UsageError(
        what,
        cause="; ".join(f"{name}: {reason_of(one['msg'])}" for name, one in found) + more,
        remedy="the tool's input schema says what it takes",
    )
