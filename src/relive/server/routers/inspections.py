"""Looking into commits: their state and memory, what their runtimes say in throw-away branches, how two of them differ."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import Field

from relive.inspection.evaluated import Evaluated
from relive.inspection.python.values import PythonObjects, PythonStacks
from relive.inspection.runtime_state import RuntimeState
from relive.inspection.search import MemoryMatches
from relive.inspection.state import CommitState
from relive.operations.differences import DIFF, CommitDifference, DiffParams
from relive.operations.inspections import (
    EVALUATE,
    FIND,
    INSPECT,
    OBJECTS,
    RUNTIME,
    RUNTIME_PROCESS,
    STACKS,
    EvaluateParams,
    FindParams,
    InspectParams,
    ObjectsParams,
    RuntimeParams,
    StacksParams,
)
from relive.operations.operation import Params
from relive.server.audit import note_for_audit
from relive.server.routers.provided import Configured, MemoryReader, Operator, performed

__all__ = ["router"]

router = APIRouter(prefix="/commits/{ref}", tags=["commits"])
Ref = Annotated[
    str, Path(description="Id or a beginning of it, tag, NAME, or NAME@{2 minutes ago}", max_length=400)
]
Process = Annotated[
    int | None,
    Query(
        ge=1,
        le=1 << 22,
        description="Its number inside; without: the Python process that has loaded most of the service",
    ),
]


@router.get("/state", operation_id="inspect_commit")
def state(ref: Ref, settings: Configured, _caller: MemoryReader) -> CommitState:
    """Processes, threads, descriptors, sockets, memory and locks, read from the store; secrets are masked"""
    return performed(INSPECT, settings, InspectParams(ref=ref))


@router.get("/memory", operation_id="find_in_memory")
def memory(
    ref: Ref,
    settings: Configured,
    _caller: MemoryReader,
    pattern: Annotated[
        str, Query(min_length=1, max_length=4096, description="A text, hex:0011ff, or re:EXPRESSION")
    ],
    most: Annotated[int, Query(ge=1, le=1000, description="At most so many matches")] = 100,
) -> MemoryMatches:
    """Where a pattern stands in the memory of its processes; secrets around it are masked"""
    return performed(FIND, settings, FindParams(ref=ref, pattern=pattern, most=most))


@router.post("/stacks", operation_id="python_stacks")
def stacks(
    ref: Ref,
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
    process: Process = None,
) -> PythonStacks:
    """Stacks of its Python threads with locals, asked in a sealed branch that is removed at once"""
    note_for_audit(request.scope, target=ref)
    return performed(STACKS, settings, StacksParams(ref=ref, process=process))


@router.post("/objects", operation_id="python_objects")
def objects(
    ref: Ref,
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
    process: Process = None,
    most: Annotated[int, Query(ge=1, le=1000, description="At most so many types, and so many objects")] = 20,
) -> PythonObjects:
    """The types and objects of a Python process that take most memory, asked in a sealed branch that is removed at once"""
    note_for_audit(request.scope, target=ref)
    return performed(OBJECTS, settings, ObjectsParams(ref=ref, process=process, most=most))


@router.post("/runtime", operation_id="runtime_state")
def runtime(
    ref: Ref,
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
    process: Annotated[int | None, Query(ge=1, le=1 << 22, description=RUNTIME_PROCESS)] = None,
    most: Annotated[int, Query(ge=1, le=1000, description="Of Java: at most so many classes")] = 20,
) -> RuntimeState:
    """What the runtime of a process says of itself, Python, Node.js or Java, asked in a sealed branch that is removed at once"""
    note_for_audit(request.scope, target=ref)
    return performed(RUNTIME, settings, RuntimeParams(ref=ref, process=process, most=most))


class ExpressionParams(Params):
    """What is evaluated."""

    expression: str = Field(
        min_length=1, max_length=64 << 10, description="An expression of Python, or of JavaScript for Node.js"
    )
    module: str | None = Field(default=None, max_length=400, description="Use the names of this module")
    process: int | None = Field(
        default=None, ge=1, le=1 << 22, description="The process of this number inside"
    )
    depth: int = Field(
        default=0, ge=0, le=20, description="Levels of what is in the value that are told, too"
    )
    most: int = Field(default=1000, ge=1, le=10_000, description="At most so many parts of the value")
    referrers: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Of Python: so many of those who refer to the value are told, too",
    )
    limit: float = Field(default=10.0, gt=0, le=60, description="Seconds after which it is given up")


@router.post("/evaluations", operation_id="evaluate")
def evaluated(
    ref: Ref,
    params: Annotated[ExpressionParams, Body(examples=[{"expression": "len(app.cache)"}])],
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
) -> Evaluated:
    """Evaluate an expression in the process as it was, in a sealed branch that is removed in any case"""
    note_for_audit(request.scope, target=f"{ref}: {params.expression}")
    return performed(EVALUATE, settings, EvaluateParams(ref=ref, **dict(params)))


@router.get("/differences", operation_id="diff_commits")
def differences(
    ref: Ref,
    settings: Configured,
    _caller: MemoryReader,
    before: Annotated[str, Query(max_length=400, description="The commit that it is compared with")],
) -> CommitDifference:
    """What is other than in another commit of the service: files, processes, descriptors, memory"""
    return performed(DIFF, settings, DiffParams(before=before, after=ref))


class ValuesParams(Params):
    """With which commit values are compared."""

    before: str = Field(max_length=400, description="The commit that it is compared with")
    process: int | None = Field(
        default=None, ge=1, le=1 << 22, description="The process of this number inside"
    )
    limit: float = Field(default=30.0, gt=0, le=60, description="Seconds for the values of each")


@router.post("/differences", operation_id="diff_values")
def value_differences(
    ref: Ref,
    params: Annotated[ValuesParams, Body(examples=[{"before": "payments@{2 minutes ago}"}])],
    settings: Configured,
    _operator: Operator,
    _reader: MemoryReader,
    request: Request,
) -> CommitDifference:
    """The same, with the values of the service's own Python modules, asked in a branch of each"""
    note_for_audit(request.scope, target=f"{params.before} {ref}")
    return performed(DIFF, settings, DiffParams(after=ref, python=True, **dict(params)))
