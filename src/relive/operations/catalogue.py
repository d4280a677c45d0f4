"""All operations that act, by name."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from relive.operations.operation import Operation

__all__ = ["OPERATIONS"]

# The module and the constant of each.
_WHERE = {
    "check": ("checking", "CHECK"),
    "run": ("running", "RUN"),
    "watch": ("watching", "WATCH"),
    "adopt": ("units", "ADOPT"),
    "release": ("units", "RELEASE"),
    "stop": ("stops", "STOP"),
    "commit": ("committing", "COMMIT"),
    "inspect": ("inspections", "INSPECT"),
    "find-in-memory": ("inspections", "FIND"),
    "python-stacks": ("inspections", "STACKS"),
    "python-objects": ("inspections", "OBJECTS"),
    "runtime-state": ("inspections", "RUNTIME"),
    "evaluate": ("inspections", "EVALUATE"),
    "diff": ("differences", "DIFF"),
    "divergence": ("diverging", "DIVERGENCE"),
    "leaks": ("leaking", "LEAKS"),
    "bisect": ("bisecting", "BISECT"),
    "restore": ("restoring", "RESTORE"),
    "restore-many": ("restoring_many", "RESTORE_MANY"),
    "rollback": ("rolling_back", "ROLLBACK"),
    "restore-as-podman": ("containers", "RESTORE_AS_PODMAN"),
    "exec": ("branches", "EXEC"),
    "replay": ("replays", "REPLAY"),
    "chaos": ("chaos", "CHAOS"),
    "reproduce": ("reproductions", "REPRODUCE"),
    "try": ("trying", "TRY"),
    "what-if": ("interventions", "WHAT_IF"),
    "why": ("explaining", "WHY"),
    "logpoint": ("logpoints", "LOGPOINT"),
    "who-wrote": ("who_wrote", "WHO_WROTE"),
    "keep": ("keeping", "KEEP"),
    "kept": ("keeping", "KEPT"),
    "debug": ("debugging", "DEBUG"),
    "fixture": ("fixtures", "FIXTURE"),
    "export": ("exports", "EXPORT"),
    "import": ("imports", "IMPORT"),
    "push": ("remotes", "PUSH"),
    "pull": ("remotes", "PULL"),
    "retain": ("retaining", "RETAIN"),
    "gc": ("storage", "GC"),
    "store-stats": ("storage", "STATS"),
    "verify": ("storage", "VERIFY"),
    "repair": ("repairing", "REPAIR"),
    "key-new": ("keys", "KEY_NEW"),
    "key-rotate": ("keys", "KEY_ROTATE"),
    "key-rotate-signing": ("keys", "KEY_ROTATE_SIGNING"),
    "key-list": ("keys", "KEY_LIST"),
    "key-trust": ("keys", "KEY_TRUST"),
    "doctor": ("health", "DOCTOR"),
}


class _Catalogue(Mapping[str, Operation[Any, Any]]):
    """Imports an operation when it is asked for: a process that does one need not wait for all."""

    def __getitem__(self, name: str) -> Operation[Any, Any]:
        module, constant = _WHERE[name]
        found: Operation[Any, Any] = getattr(importlib.import_module(f"relive.operations.{module}"), constant)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


OPERATIONS: Mapping[str, Operation[Any, Any]] = _Catalogue()
