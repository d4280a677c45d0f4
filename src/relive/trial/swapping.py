"""Giving the Python processes of a branch other code while they live: ``relive_swapper`` runs in each of them.

Files are written in the branch, too, for what reads them later: a module that is imported only then, a template.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

import relive_inprocess.relive_swapper as swapper
from relive.errors import PatchUnfit, RestoreFailed
from relive.inspection.python.asking import ask, is_python
from relive.inspection.python.calling import CallDied, CallLate
from relive.kernel import procfs
from relive.model.trial import NotSwapped, Swapped
from relive.sandbox.branch import Branch
from relive.trial.source import SourceChange, read_in_branch, write_in_branch

__all__ = ["asked_swapper", "change_code", "loaded_files", "python_processes", "roots_of"]

_LIMIT = 30.0  # [s] for one process
# Not the service's own: installed, of Python, or what Relive has put into the process.
_PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python", "/etc/python", "/run/relive/inprocess/")


def loaded_files(branch: Branch) -> list[str]:
    """The source files of modules that its Python processes have loaded, those of packages, of Python and of Relive aside."""
    found: dict[str, None] = {}
    for pid in python_processes(branch):
        reply = asked_swapper(pid, {"kind": "files"})
        found |= dict.fromkeys(path for path in reply["files"] if not any(part in path for part in _PACKAGES))
    return list(found)


def roots_of(branch: Branch, loaded: Sequence[str]) -> list[str]:
    """Directories that a patch of the service may be relative to: where it runs, where its files lie, and all above, but for /."""
    begins = [PurePosixPath(path).parent for path in loaded]
    with contextlib.suppress(OSError):  # it has ended, which the replay tells
        begins.insert(0, PurePosixPath(os.readlink(f"/proc/{branch.facts.root}/cwd")))
    found: dict[str, None] = {}
    for begin in begins:
        found |= dict.fromkeys(
            str(one) for one in (begin, *begin.parents) if one.is_absolute() and one != one.parent
        )
    return list(found)


def change_code(branch: Branch, changes: Sequence[SourceChange]) -> Swapped:
    """Change files and living functions.

    Raises:
        PatchUnfit: the new text is none that the branch's Python compiles; nothing was changed in that process.
        RestoreFailed: a process could not be asked, or a file not be written.
    """
    files = [{"path": one.path, "old": one.old, "new": one.new} for one in changes]
    written = []
    for change in changes:
        if read_in_branch(branch.facts.root, change.path) != change.new:
            try:
                write_in_branch(branch.facts.root, change.path, change.new)
            except OSError as error:
                raise RestoreFailed(
                    f"{change.path} could not be changed in the branch", cause=str(error)
                ) from error
            written.append(change.path)
    # Only now: new code may import a module that the change makes. A branch whose change is refused is thrown away.
    reply = [asked_swapper(pid, {"kind": "swap", "files": files}) for pid in python_processes(branch)]
    return _gathered(reply, written)


def python_processes(branch: Branch) -> list[int]:
    """Those whose interpreter can be asked, parents first."""
    return [pid for pid in procfs.tree_of(branch.facts.root) if is_python(pid)]


def asked_swapper(pid: int, question: Mapping[str, Any], program: ModuleType = swapper) -> dict[str, Any]:
    """What ``relive_swapper``, or another program, answers in a process; raises PatchUnfit, RestoreFailed."""
    try:
        reply: dict[str, Any] = ask(pid, question, _LIMIT, program)
    except CallLate as error:
        raise RestoreFailed(
            f"process {procfs.innermost_pid(pid)} of the branch could not be given other code",
            cause=f"no thread of it came to where it can be changed within {_LIMIT:g} s",
        ) from error
    except CallDied as error:
        raise RestoreFailed(
            f"process {procfs.innermost_pid(pid)} of the branch died when its code was changed",
            cause=f"signal {error.signal}" if error.signal else "it ended",
        ) from error
    if "refused" in reply:
        raise PatchUnfit("what the patch makes is no code for the service's Python", cause=reply["refused"])
    if "failed" in reply:
        raise RestoreFailed("the branch's code could not be changed", cause=str(reply["failed"]))
    return reply


def _gathered(reply: Sequence[Mapping[str, Any]], written: Sequence[str]) -> Swapped:
    """What all processes said as one, each thing once."""
    files = [file for one in reply for file in one["files"]]
    left = {(file["path"], one["name"], one["why"]) for file in files for one in file["left"]}
    swapped = dict.fromkeys(
        f"{PurePosixPath(file['path']).name}: {name}" for file in files for name in file["swapped"]
    )
    added = dict.fromkeys(
        f"{PurePosixPath(file['path']).name}: {name}" for file in files for name in file["added"]
    )
    loaded = {file["path"] for file in files if file["loaded"]}
    notes = dict.fromkeys(note for file in files for note in file["notes"])
    return Swapped(
        processes=sum(any(file["loaded"] for file in one["files"]) for one in reply),
        swapped=list(swapped),
        added=list(added),
        left=[NotSwapped(file=path, name=name, why=why) for path, name, why in sorted(left)],
        files=list(written),
        unloaded=sorted({file["path"] for file in files} - loaded) if reply else list(written),
        notes=list(notes),
    )
