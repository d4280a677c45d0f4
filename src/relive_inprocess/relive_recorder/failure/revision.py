"""The git commit that is checked out where the code lies, read from the files in ``.git`` (gitrepository-layout(5))."""

import os
import re
from typing import Any, Dict, Optional

__all__ = ["look", "of"]

_COMMIT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKED = 16 << 20  # [bytes] of a file that are looked into, such as packed-refs
_known: Dict[str, Optional[Dict[str, Any]]] = {}


def of(directory: str) -> Optional[Dict[str, Any]]:
    """``commit`` (hex), ``dirty`` (None: the agent finds out, who has the time), ``root``; None outside of git.

    Asked once for each directory: what a process runs is what it has loaded.
    """
    if directory not in _known:
        _known[directory] = look(directory)
    return _known[directory]


def look(directory: str) -> Optional[Dict[str, Any]]:
    """As ``of``, as it is now."""
    root = directory
    while True:
        git = os.path.join(root, ".git")
        if os.path.lexists(git):
            commit = _head(_git_directory(root, git))
            return {"commit": commit, "dirty": None, "root": root} if commit is not None else None
        above = os.path.dirname(root)
        if above == root:
            return None
        root = above


def _git_directory(root: str, git: str) -> str:
    """``.git`` itself, or where it points to (worktrees, submodules)."""
    if os.path.isdir(git):
        return git
    text = _read(git)
    return os.path.join(root, text[len("gitdir:") :].strip()) if text.startswith("gitdir:") else git


def _head(git: str) -> Optional[str]:
    head = _read(os.path.join(git, "HEAD")).strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    name = head[len("ref:") :].strip()
    # References of a worktree are those of the repository it belongs to.
    common = os.path.join(git, _read(os.path.join(git, "commondir")).strip() or ".")
    for place in (git, common):
        commit = _read(os.path.join(place, name)).strip()
        if _COMMIT.fullmatch(commit):
            return commit
    for line in _read(os.path.join(common, "packed-refs")).splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name and _COMMIT.fullmatch(commit):
            return commit
    return None


def _read(path: str) -> str:
    """The text of a file, empty when there is none. By descriptor: ``open`` may be one of the things that are recorded."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        return os.read(fd, _PACKED).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
