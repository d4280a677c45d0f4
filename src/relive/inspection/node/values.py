"""What a Node.js process said of itself, as values."""

from __future__ import annotations

from pydantic import Field

from relive.model.value import Value

__all__ = ["NodeFrame", "NodeHandle", "NodeHeap", "NodeState", "NodeWorker"]


class NodeFrame(Value):
    """A frame of the stack, innermost first in its list; ``locals``: by name, those of enclosing functions too."""

    file: str
    line: int
    function: str
    locals: dict[str, str]


class NodeHeap(Value):
    """Bytes: ``used`` of ``total`` of V8's heap, which may grow to ``limit``; ``external`` to it; ``resident``: of the process."""

    used: int
    total: int
    limit: int
    external: int
    array_buffers: int
    resident: int
    spaces: dict[str, int]


class NodeHandle(Value):
    """Something that the event loop waits for: its class, and an address, file or number where it has one."""

    kind: str
    about: str


class NodeWorker(Value):
    """A worker thread (``worker_threads``) of a process; fields as of ``NodeState``.

    Attributes:
        title: what Node.js calls it; file: the script that it was started with.
        is_silent: it did not answer, as one in native code does not; then nothing else is told.
    """

    title: str
    file: str
    is_silent: bool = False
    waits: bool = False
    frames: list[NodeFrame] = Field(default=[])
    frames_left_out: int = 0
    heap: NodeHeap | None = None
    active: dict[str, int] = Field(default={})
    modules: dict[str, dict[str, str]] = Field(default={})
    modules_left_out: int = 0


class NodeState(Value):
    """A process of Node.js as it was.

    Attributes:
        waits: no JavaScript ran; the event loop waited for something outside.
        frames: of the main thread; none while it waits.
        active: how many there are of each kind that keeps the event loop going, timers too.
        modules: variables and exports of the service's own modules, by file; ``modules_left_out``: how many more there are.
        workers: its worker threads, the first of them.
        ran_ms: how long the branch had run, at least, when it was asked.
    """

    process: int
    version: str
    waits: bool
    frames: list[NodeFrame]
    frames_left_out: int
    heap: NodeHeap
    active: dict[str, int]
    handles: list[NodeHandle]
    modules: dict[str, dict[str, str]]
    modules_left_out: int
    workers: list[NodeWorker] = Field(default=[])
    ran_ms: int
