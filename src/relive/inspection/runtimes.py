"""Which language's runtime a process of a throw-away branch has, and asking that: CPython, Node.js, the JVM."""

from __future__ import annotations

from collections.abc import Sequence

from relive.errors import UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.branches import Questioned, chosen_process
from relive.inspection.evaluated import Evaluated
from relive.inspection.java.asking import AskedJava
from relive.inspection.java.attach import is_java
from relive.inspection.node.asking import AskedNode
from relive.inspection.node.inspector import is_node
from relive.inspection.python.asking import is_python
from relive.inspection.python.branches import asked_python, most_informed
from relive.inspection.runtime_state import Runtime, RuntimeState
from relive.kernel import procfs

__all__ = ["evaluate_in", "runtime_of", "state_of"]


def runtime_of(pid: int) -> Runtime | None:
    """What a process runs; None: nothing that can be asked."""
    if is_java(pid):
        return Runtime.JAVA
    if is_node(pid):
        return Runtime.NODE
    return Runtime.PYTHON if is_python(pid) else None


def state_of(asked: Questioned, process: int | None, mask: Mask, *, most: int, limit: float) -> RuntimeState:
    """All that the runtime of a process tells.

    Args:
        process: its number inside; None: the root, or the first below it whose runtime can be asked;
            of Python's as ``most_informed`` chooses.
        most: classes of Java. limit: seconds.

    Raises:
        UsageError: there is no such process, or none can be asked. RestoreFailed: it does not answer.
    """
    pid, runtime = _chosen(asked, process)
    match runtime:
        case Runtime.PYTHON:
            return RuntimeState(runtime=runtime, python=asked_python(asked, pid, mask).stacks(limit))
        case Runtime.NODE:
            return RuntimeState(runtime=runtime, node=AskedNode(asked, pid, mask).state(limit))
        case Runtime.JAVA:
            return RuntimeState(
                runtime=runtime, java=AskedJava(asked, pid, mask).state(most=most, limit=limit)
            )


def evaluate_in(
    asked: Questioned,
    process: int | None,
    mask: Mask,
    *,
    expression: str,
    module: str | None,
    depth: int,
    most: int,
    referrers: int,
    limit: float,
) -> Evaluated:
    """The value of an expression of Python or JavaScript, whichever the process runs; raises as ``state_of``."""
    pid, runtime = _chosen(asked, process)
    if runtime is Runtime.JAVA:
        raise UsageError(
            f"process {procfs.innermost_pid(pid)} can evaluate no expression",
            cause="it runs Java, whose attach mechanism evaluates none",
            remedy="`relive inspect REF --runtime` tells its threads, locks, classes and properties",
        )
    if runtime is Runtime.NODE:
        if referrers:
            raise UsageError(
                "who refers to a value is told of Python only",
                cause=f"process {procfs.innermost_pid(pid)} runs Node.js, whose protocol tells it by heap snapshots only",
                remedy="ask without --referrers",
            )
        node = AskedNode(asked, pid, mask)
        return node.evaluate(expression, module=module, depth=depth, most=most, limit=limit)
    python = asked_python(asked, pid, mask)
    return python.evaluate(
        expression, module=module, depth=depth, most=most, referrers=referrers, limit=limit
    )


def _chosen(asked: Questioned, process: int | None) -> tuple[int, Runtime]:
    unsuited = UsageError(
        "no process of the commit can be asked about itself",
        cause="none runs a CPython whose functions can be found, Node.js, or a JVM",
        remedy="`relive inspect` shows processes, descriptors and memory of any program",
    )
    pid = chosen_process(asked.branch, process, lambda one: runtime_of(one) is not None, _best, unsuited)
    runtime = runtime_of(pid)
    if runtime is None:
        raise UsageError(
            f"process {process} ({procfs.name_of(pid)}) cannot be asked about itself",
            cause="it runs neither a CPython whose functions can be found, nor Node.js, nor a JVM",
            remedy="name another with --process; `relive inspect` lists them",
        )
    return pid, runtime


def _best(pids: Sequence[int]) -> int:
    if runtime_of(pids[0]) is not Runtime.PYTHON:
        return pids[0]
    return most_informed([pid for pid in pids if runtime_of(pid) is Runtime.PYTHON])
