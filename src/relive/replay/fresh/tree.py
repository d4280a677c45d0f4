"""Which files a fresh process runs: a revision of git, laid over the host's, or the host's as they are.

What git does not know (a virtual environment, a database) stays as the host has it; what it knows now, but not in that
revision, is hidden. Files are read from git's objects, by their raw content: no filter, no hook and nothing else that a
repository can configure is run, and git runs as the repository's owner.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from relive.errors import UsageError
from relive.model.failure import ErrorPackage, Frame
from relive.model.reproduction import Tree
from relive.replay.fresh.repository import Repository
from relive.sandbox.overlay_files import Laying

__all__ = ["AS_IT_IS", "choose_tree", "lay_tree"]

AS_IT_IS = "."  # what ``--checkout`` takes for the files as they are
_FILES_MOST = 300_000
_BYTES_MOST = 4 << 30
_LINK, _SUBMODULE, _PROGRAM = "120000", "160000", "100755"
_SHA1_DIGITS = 40
_COMPARED = 80  # [characters] of a recorded line, which may be cut
_SECRET = "<secret:"


def choose_tree(package: ErrorPackage | None, directory: str, wanted: str | None) -> Tree:
    """Decide which files are to be run; nothing is laid yet.

    Args:
        wanted: a revision, or ``AS_IT_IS``; None: the recorded revision where its lines are those that failed, else the
            host's files as they are.

    Raises:
        UsageError: the wanted revision is not there.
    """
    recorded = package.revision if package is not None else None
    root = Path(recorded.root) if recorded is not None else _top_above(Path(directory))
    if wanted == AS_IT_IS:
        return _as_it_is(package, "the files as they are on this host, as asked for")
    if root is None or not (root / ".git").exists():
        if wanted is not None:
            raise UsageError(
                f"revision {wanted!r} cannot be checked out",
                cause=f"there is no git repository at {root or directory}",
                remedy="clone it there, or leave --checkout out",
            )
        return _as_it_is(package, "the files as they are on this host, where there is no git repository")
    repository = Repository(root)
    if wanted is not None:
        commit = repository.commit_of(wanted)
        if commit is None:
            raise UsageError(
                f"there is no revision {wanted!r} in {root}",
                remedy="`git log` lists them; fetch what is missing",
            )
        is_recorded = recorded is not None and recorded.commit == commit
        return Tree(
            root=str(root),
            revision=commit,
            is_recorded=is_recorded,
            words=f"revision {commit[:10]} of {root}",
        )
    if recorded is None:
        return _as_it_is(package, "the files as they are on this host: no revision is kept")
    commit = repository.commit_of(recorded.commit)
    if commit is None:
        return _as_it_is(
            package, f"the files as they are: the recorded revision {recorded.commit[:10]} is not in {root}"
        )
    if not _has_lines(package, lambda path: _committed(repository, commit, path)) and _has_lines(
        package, _present
    ):
        words = f"the files as they are: they hold the lines that failed, the recorded revision {commit[:10]} does not"
        return _as_it_is(package, words)
    return Tree(
        root=str(root),
        revision=commit,
        is_recorded=True,
        words=f"revision {commit[:10]} of {root}, the recorded one",
    )


def _as_it_is(package: ErrorPackage | None, words: str) -> Tree:
    return Tree(is_recorded=_has_lines(package, _present), words=words)


def _top_above(directory: Path) -> Path | None:
    return next((one for one in (directory, *directory.parents) if (one / ".git").exists()), None)


def _has_lines(package: ErrorPackage | None, read: Callable[[str], bytes | None]) -> bool:
    """The recorded source lines of the service's own frames stand in the files where they stood; True where none is known."""
    for frame in package.chain[0].frames if package is not None else ():
        if frame.own and frame.source is not None and not _stands(frame, read(frame.file)):
            return False
    return True


def _stands(frame: Frame, content: bytes | None) -> bool:
    if content is None:
        return False
    lines = content.decode("utf-8", "replace").splitlines()
    assert frame.source is not None
    first = frame.source.first - 1
    for number, text in enumerate(frame.source.lines, first):
        if _SECRET in text:
            continue
        if number >= len(lines) or lines[number].rstrip()[:_COMPARED] != text.rstrip()[:_COMPARED]:
            return False
    return True


def _present(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):
        return None


def _committed(repository: Repository, commit: str, path: str) -> bytes | None:
    try:
        inside = Path(path).relative_to(repository.root)
    except ValueError:
        return _present(path)  # beside the repository
    content = repository.content(commit, inside.as_posix())
    return content if content is not None else (None if _is_tracked(repository, inside) else _present(path))


def _is_tracked(repository: Repository, path: Path) -> bool:
    return path.as_posix() in set(repository.tracked())


def lay_tree(tree: Tree, laying: Laying) -> list[str]:
    """Lay the chosen revision over the host's files; returns what is to be said of it.

    Raises:
        UsageError: it cannot be read from git, has a name that no file may have, or is too large.
        OSError: there is no room.
    """
    if tree.root is None or tree.revision is None:
        return []
    repository = Repository(Path(tree.root))
    try:
        return _lay_commit(repository, tree.revision, laying)
    except subprocess.SubprocessError as error:
        raise UsageError(
            f"revision {tree.revision[:10]} cannot be read", cause=str(error), remedy="see `git fsck`"
        ) from error


def _lay_commit(repository: Repository, commit: str, laying: Laying) -> list[str]:
    files = repository.files(commit)
    notes = [
        f"the submodule {path} is as it is on this host" for mode, _, path in files if mode == _SUBMODULE
    ]
    kept = [one for one in files if one[0] != _SUBMODULE and not _stands_there(repository.root, *one)]
    if len(kept) > _FILES_MOST:
        raise UsageError("the revision is too large to be checked out", cause=f"{len(kept)} files")
    owner = repository.root.stat()
    size = 0
    for (mode, _, path), data in zip(kept, repository.contents([one[1] for one in kept]), strict=True):
        _check_name(path)
        size += len(data)
        if size > _BYTES_MOST:
            raise UsageError(
                "the revision is too large to be checked out", cause=f"more than {_BYTES_MOST} bytes"
            )
        target = laying.place(repository.root / path)
        _write(target, mode, data)
        os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
        laying.samples.append((str(repository.root / path), target))
    present = {path for _, _, path in files}
    for path in repository.tracked():
        if path not in present and os.path.lexists(repository.root / path):
            _check_name(path)
            laying.hide(repository.root / path)
    return notes


def _stands_there(root: Path, mode: str, name: str, path: str) -> bool:
    """The host has that very file there: of most files of a revision this is so, and nothing need be laid over them."""
    here = root / path
    try:
        facts = here.lstat()
        if mode == _LINK:
            data = os.fsencode(here.readlink()) if stat.S_ISLNK(facts.st_mode) else None
        elif stat.S_ISREG(facts.st_mode) and bool(facts.st_mode & stat.S_IXUSR) == (mode == _PROGRAM):
            data = here.read_bytes()
        else:
            data = None
    except (OSError, ValueError):
        return False
    if data is None:
        return False
    # As git names a blob (git-hash-object(1)); repositories of SHA-256 have longer names.
    made = (
        hashlib.sha256 if len(name) > _SHA1_DIGITS else functools.partial(hashlib.sha1, usedforsecurity=False)
    )
    return made(b"blob %d\0" % len(data) + data).hexdigest() == name


def _check_name(path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part in ("..", ".git") for part in parts):
        raise UsageError("the revision cannot be checked out", cause=f"it holds a file called {path!r}")


def _write(target: Path, mode: str, data: bytes) -> None:
    if os.path.lexists(target):
        raise UsageError("the revision cannot be checked out", cause=f"it holds {target.name!r} twice")
    if mode == _LINK:
        target.symlink_to(os.fsdecode(data))
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o755 if mode == _PROGRAM else 0o644)
        file.write(data)
