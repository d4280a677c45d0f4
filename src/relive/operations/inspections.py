"""Looking into a commit: its state and memory as they lie in the store; what its runtimes say, in a throw-away branch."""

from __future__ import annotations

from pydantic import Field

from relive.config import Settings
from relive.incidents.report.masking import Mask
from relive.inspection.evaluated import Evaluated
from relive.inspection.python.values import PythonObjects, PythonStacks
from relive.inspection.runtime_state import RuntimeState
from relive.inspection.search import MemoryMatches
from relive.inspection.state import CommitState
from relive.operations.named import look_up_commit
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Store

__all__ = [
    "EVALUATE",
    "FIND",
    "INSPECT",
    "OBJECTS",
    "RUNTIME",
    "RUNTIME_PROCESS",
    "STACKS",
    "EvaluateParams",
    "FindParams",
    "InspectParams",
    "ObjectsParams",
    "RuntimeParams",
    "StacksParams",
    "evaluate",
    "find_in_memory",
    "inspect",
    "python_objects",
    "python_stacks",
    "runtime_state",
]

RUNTIME_PROCESS = "Its number inside; without: the first whose runtime can be asked, of Python's that with most of the service"
_SEARCH_LIMIT = 60.0  # [s]
_WITH_A_LIMIT = (
    Only(("limit",), frozenset({Face.CLI, Face.MCP}), "a request waits no longer than the default"),
)


class InspectParams(Params):
    """Which commit is looked into."""

    ref: str = Field(max_length=400, description="A commit: id, tag, NAME, or NAME@{2 minutes ago}")


def inspect(settings: Settings, params: InspectParams, progress: Progress) -> CommitState:
    """Processes, threads, descriptors, memory and locks of a commit, without running it; secrets are masked.

    Raises:
        RefUnknown, RefAmbiguous, StoreError: the store cannot give the commit.
        UsageError: it holds no memory.
    """
    from relive.inspection.reading import read_state

    tend(settings, progress)
    store = Store(settings.store)
    commit = store.resolve(params.ref)
    manifest = store.facts(commit)
    with store.images.open_memory(manifest) as memory:
        return read_state(memory, commit, manifest, Mask.configured(settings))


INSPECT = Operation(
    "inspect",
    InspectParams,
    CommitState,
    inspect,
    Faces(
        cli=("inspect",),
        rest=("GET /commits/{ref}/state",),
        mcp=Tool(
            Effect.READS,
            "Processes, threads, descriptors, sockets, memory and locks of a commit, without running it.",
        ),
    ),
    look_up=look_up_commit,
)


class FindParams(InspectParams):
    """What is looked for in the memory of a commit."""

    pattern: str = Field(
        min_length=1,
        max_length=4096,
        description="A text, hex:0011ff, or re:EXPRESSION (Python's, over bytes)",
    )
    most: int = Field(default=100, ge=1, le=10_000, description="At most so many matches")


def find_in_memory(settings: Settings, params: FindParams, progress: Progress) -> MemoryMatches:
    """Where a pattern stands in the memory of a commit's processes, without running it; raises as ``inspect``, and UsageError."""
    from relive.inspection.patterns import parse_pattern
    from relive.inspection.reading import learn_secrets
    from relive.inspection.search import find

    pattern = parse_pattern(params.pattern)
    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    with store.images.open_memory(store.facts(store.resolve(params.ref))) as memory:
        learn_secrets(memory, mask)
        return find(memory, pattern, mask, most=params.most, limit=_SEARCH_LIMIT)


FIND = Operation(
    "find-in-memory",
    FindParams,
    MemoryMatches,
    find_in_memory,
    Faces(
        cli=("inspect",),
        rest=("GET /commits/{ref}/memory",),
        mcp=Tool(
            Effect.READS,
            "Where a text, bytes or an expression stand in the memory of a commit's processes.",
        ),
    ),
    look_up=look_up_commit,
)


class StacksParams(InspectParams):
    """Which Python process of a commit is asked."""

    process: int | None = Field(
        default=None,
        ge=1,
        le=1 << 22,
        description="Its number inside; without: the Python process that has loaded most of the service",
    )
    limit: float = Field(default=10.0, gt=0, le=300, description="Seconds after which it is given up")


def python_stacks(settings: Settings, params: StacksParams, progress: Progress) -> PythonStacks:
    """Stacks of all threads with locals, tasks of asyncio, and the service's own globals, asked in a branch that is thrown away.

    Raises:
        RefUnknown, RefAmbiguous, StoreError, RestoreFailed: the commit cannot be given back, or does not answer.
        UsageError: there is no such process, or it runs no CPython.
    """
    from relive.inspection.python.branches import asked_branch

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    with asked_branch(settings, store, store.resolve(params.ref), params.process, mask) as asked:
        return asked.stacks(params.limit)


STACKS = Operation(
    "python-stacks",
    StacksParams,
    PythonStacks,
    python_stacks,
    Faces(
        cli=("inspect",),
        rest=("POST /commits/{ref}/stacks",),
        mcp=Tool(
            Effect.READS,
            "Stacks of a commit's Python threads with locals, asyncio tasks, globals; asked in a throw-away branch.",
        ),
        only=_WITH_A_LIMIT,
    ),
    look_up=look_up_commit,
)


class ObjectsParams(StacksParams):
    """How much of what a Python process holds is told."""

    limit: float = Field(default=30.0, gt=0, le=300, description="Seconds for each question in the branch")
    most: int = Field(default=20, ge=1, le=1000, description="At most so many types, and so many objects")


def python_objects(settings: Settings, params: ObjectsParams, progress: Progress) -> PythonObjects:
    """The types and objects that take most memory, and who holds them; garbage is collected first. Raises as ``python_stacks``."""
    from relive.inspection.python.branches import asked_branch

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    with asked_branch(settings, store, store.resolve(params.ref), params.process, mask) as asked:
        return asked.largest(most=params.most, limit=params.limit)


OBJECTS = Operation(
    "python-objects",
    ObjectsParams,
    PythonObjects,
    python_objects,
    Faces(
        cli=("inspect",),
        rest=("POST /commits/{ref}/objects",),
        mcp=Tool(
            Effect.READS,
            "The types and objects of a commit's Python process that take most memory, and who holds them; asked in a "
            "throw-away branch.",
        ),
        only=_WITH_A_LIMIT,
    ),
    look_up=look_up_commit,
)


class RuntimeParams(StacksParams):
    """Which process of a commit is asked about itself."""

    process: int | None = Field(default=None, ge=1, le=1 << 22, description=RUNTIME_PROCESS)
    limit: float = Field(default=30.0, gt=0, le=300, description="Seconds after which it is given up")
    most: int = Field(default=20, ge=1, le=1000, description="Of Java: at most so many classes")


def runtime_state(settings: Settings, params: RuntimeParams, progress: Progress) -> RuntimeState:
    """What the runtime of a process says of itself, whichever it is, in a branch that is thrown away; secrets are masked.

    Of Python what ``python_stacks`` tells; of Node.js the stack with locals, heap, what the event loop waits for, and the values of
    the service's modules; of Java threads, locks, deadlocks, classes, heap, properties.

    Raises:
        RefUnknown, RefAmbiguous, StoreError, RestoreFailed: the commit cannot be given back, or does not answer.
        UsageError: there is no such process, or it cannot be asked.
    """
    from relive.inspection.branches import questioned_branch
    from relive.inspection.runtimes import state_of

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    with questioned_branch(settings, store, store.resolve(params.ref), mask) as asked:
        return state_of(asked, params.process, mask, most=params.most, limit=params.limit)


RUNTIME = Operation(
    "runtime-state",
    RuntimeParams,
    RuntimeState,
    runtime_state,
    Faces(
        cli=("inspect",),
        rest=("POST /commits/{ref}/runtime",),
        mcp=Tool(
            Effect.READS,
            "What the language runtime of a commit's process says of itself, Python, Node.js or Java, whichever it runs: stacks, "
            "locks, heap, modules' values, properties; asked in a throw-away branch.",
        ),
        only=_WITH_A_LIMIT,
    ),
    look_up=look_up_commit,
)


class EvaluateParams(StacksParams):
    """Which expression is evaluated."""

    process: int | None = Field(default=None, ge=1, le=1 << 22, description=RUNTIME_PROCESS)
    expression: str = Field(
        min_length=1, max_length=64 << 10, description="An expression of Python, or of JavaScript for Node.js"
    )
    module: str | None = Field(
        default=None,
        max_length=400,
        description="Use the names of this module; without: the program's, and all modules by their names",
    )
    depth: int = Field(
        default=0, ge=0, le=20, description="Levels of what is in the value that are told, too"
    )
    most: int = Field(default=1000, ge=1, le=100_000, description="At most so many parts of the value")
    referrers: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Of Python: so many of those who refer to the value are told, too",
    )


def evaluate(settings: Settings, params: EvaluateParams, progress: Progress) -> Evaluated:
    """Evaluate an expression in the process as it was, in a sealed branch that is removed in any case; raises as ``python_stacks``.

    An expression that raises, hangs or kills its process is an outcome, and harms nobody: what it changed goes with the branch.
    """
    from relive.inspection.branches import questioned_branch
    from relive.inspection.runtimes import evaluate_in

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    with questioned_branch(settings, store, store.resolve(params.ref), mask) as asked:
        return evaluate_in(
            asked,
            params.process,
            mask,
            expression=params.expression,
            module=params.module,
            depth=params.depth,
            most=params.most,
            referrers=params.referrers,
            limit=params.limit,
        )


EVALUATE = Operation(
    "evaluate",
    EvaluateParams,
    Evaluated,
    evaluate,
    Faces(
        cli=("eval",),
        rest=("POST /commits/{ref}/evaluations",),
        mcp=Tool(
            Effect.READS,
            "Evaluate an expression in a commit's process as it was, Python or, in Node.js, JavaScript; in a sealed branch that is "
            "removed in any case.",
        ),
    ),
    look_up=look_up_commit,
)
