"""What tools did, in the audit log of the server: over HTTP every call is a POST to one address, which says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from mcp.server.mcpserver import Context

from relive.operations.operation import named_target
from relive.server.audit import Audit
from relive.server.authentication import Caller

__all__ = ["acting"]


@contextmanager
def acting(context: Context[Any], tool: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Around what a tool does: on the disk before it is begun, and how it ended. Nothing over standard input and output.

    Raises:
        DiskFull, AuditBroken: it cannot be written down; nothing was done.
    """
    scope = getattr(context.request_context.request, "scope", None)
    if scope is None:
        yield
        return
    audit: Audit = scope["app"].state.audit
    caller: Caller = scope["relive.caller"]
    record = partial(
        audit.record,
        who=caller.who,
        address=caller.address,
        what=f"MCP {tool}",
        target=named_target(given),
    )
    record(outcome="asked", is_durable=True)
    try:
        yield
    except BaseException:
        record(outcome="failed", is_durable=True)
        raise
    record(outcome="done", is_durable=True)
