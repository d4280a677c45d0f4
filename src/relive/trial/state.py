"""Another state for a branch: values of its Python processes set by statements, and files that hold something else."""

from __future__ import annotations

from dataclasses import dataclass

from relive.errors import ChangeUnfit, RestoreFailed
from relive.kernel import procfs
from relive.sandbox.branch import Branch
from relive.trial.source import write_in_branch
from relive.trial.swapping import asked_swapper, python_processes

__all__ = ["StateChange", "change_state"]

_MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class StateChange:
    """What is changed before anything is sent.

    Attributes:
        statements: Python, run one after the other in each Python process; ``module``: whose names they use, None: the program's.
        files: (absolute path as the service sees it, text) each.
    """

    statements: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    module: str | None = None


def change_state(branch: Branch, change: StateChange) -> list[str]:
    """Make the change; returns sentences on processes in which the statements could not be run.

    The statements are run in every Python process of the branch, since a server's workers hold a copy each. It is enough that one
    could do it: the others may not have loaded what is set.

    Raises:
        ChangeUnfit: no process could run them, or there is none that runs Python.
        RestoreFailed: a file cannot be written, or a process cannot be asked. The branch is to be thrown away in any case.
    """
    for path, text in change.files:
        try:
            write_in_branch(branch.facts.root, path, text)
        except OSError as error:
            raise RestoreFailed(f"{path} could not be written in the branch", cause=str(error)) from error
    return _run(branch, change) if change.statements else []


def _run(branch: Branch, change: StateChange) -> list[str]:
    pids = python_processes(branch)
    if not pids:
        raise ChangeUnfit(
            "a value can only be set in a living Python process, and the service has none",
            cause="no process of the commit runs a CPython whose functions can be found",
            remedy="--write changes files of any service; `relive debug` opens gdb",
        )
    question = {"kind": "set", "statements": list(change.statements), "module": change.module}
    raised = {}
    for pid in pids:
        reply = asked_swapper(pid, question)
        if "raised" in reply:
            raised[procfs.innermost_pid(pid)] = str(reply["raised"])
    if len(raised) == len(pids):
        raise ChangeUnfit(
            f"{'; '.join(change.statements)} could not be run in the branch",
            cause=next(iter(raised.values())),
            remedy="`relive eval REF EXPRESSION` shows what is there and how it is called; `--module NAME` uses a module's names",
        )
    return [f"Not set in process {pid}: {text}." for pid, text in list(raised.items())[:_MOST_TOLD]]
