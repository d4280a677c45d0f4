"""All operations that act, by name."""

from __future__ import annotations

from typing import Any

from relive.operations.branches import EXEC
from relive.operations.checking import CHECK
from relive.operations.committing import COMMIT
from relive.operations.containers import RESTORE_AS_PODMAN
from relive.operations.differences import DIFF
from relive.operations.exports import EXPORT
from relive.operations.fixtures import FIXTURE
from relive.operations.health import DOCTOR
from relive.operations.inspections import EVALUATE, FIND, INSPECT, STACKS
from relive.operations.operation import Operation
from relive.operations.replays import REPLAY
from relive.operations.reproductions import REPRODUCE
from relive.operations.restoring import RESTORE
from relive.operations.storage import STATS, VERIFY

__all__ = ["OPERATIONS"]

OPERATIONS: dict[str, Operation[Any, Any]] = {
    one.name: one
    for one in (
        CHECK,
        COMMIT,
        INSPECT,
        FIND,
        STACKS,
        EVALUATE,
        DIFF,
        RESTORE,
        RESTORE_AS_PODMAN,
        EXEC,
        REPLAY,
        REPRODUCE,
        FIXTURE,
        EXPORT,
        STATS,
        VERIFY,
        DOCTOR,
    )
}
