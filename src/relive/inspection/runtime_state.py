"""What the runtime of a process said of itself, whichever it is, as values."""

from __future__ import annotations

from enum import StrEnum

from pydantic import model_validator

from relive.inspection.java.values import JavaState
from relive.inspection.node.values import NodeState
from relive.inspection.python.values import PythonStacks
from relive.model.value import Value

__all__ = ["Runtime", "RuntimeState"]


class Runtime(StrEnum):
    """What can be asked."""

    PYTHON = "python"
    NODE = "node"
    JAVA = "java"


class RuntimeState(Value):
    """What the runtime of a process said of itself: one of the three."""

    runtime: Runtime
    python: PythonStacks | None = None
    node: NodeState | None = None
    java: JavaState | None = None

    @model_validator(mode="after")
    def _is_one(self) -> RuntimeState:
        told = {Runtime.PYTHON: self.python, Runtime.NODE: self.node, Runtime.JAVA: self.java}
        if [name for name, one in told.items() if one is not None] != [self.runtime]:
            raise ValueError(f"only {self.runtime} is told")
        return self
