"""Patches: which files one changes, and what they hold then. git applies it, in an empty directory, to copies.

git is strict: a context that is not there is an error, and no path leads out of the directory (git-apply(1)).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from relive.errors import PatchUnfit, ToolMissing
from relive.trial.source import SourceChange

__all__ = ["PATCH_MOST", "apply_patch", "paths_of_patch"]

PATCH_MOST = 4 << 20  # [characters]
_LIMIT = 60  # [s] for one git
_STRIPPED = (1, 0)  # directories in front of a patch's names: of git's own patches one, of diff's none
_NAMED = 5  # paths that an error names


def paths_of_patch(patch: str) -> list[str]:
    """The files that it changes or makes, relative; raises PatchUnfit where it is none, ToolMissing."""
    return _ways(patch)[0][1]


def _ways(patch: str) -> list[tuple[int, list[str]]]:
    """(directories in front, the files then), the likelier first; raises as ``paths_of_patch``."""
    found, refusal = [], ""
    for stripped in _STRIPPED:
        paths, said = _paths(patch, stripped)
        if paths:
            found.append((stripped, paths))
        refusal = refusal or said
    if not found:
        raise PatchUnfit("that is no patch", cause=refusal, remedy=_REMEDY)
    return found


def _paths(patch: str, stripped: int) -> tuple[list[str], str]:
    """(the files, what git says); raises PatchUnfit where one is outside."""
    with tempfile.TemporaryDirectory(prefix="relive-") as empty:
        done = _git(Path(empty), patch, "--numstat", "-z", f"-p{stripped}")
    if done.returncode != 0:
        return [], _said(done)
    fields = [line for line in done.stdout.decode("utf-8", "surrogateescape").split("\0") if line]
    paths = [line.split("\t", 2)[2] if line.count("\t") >= 2 else line for line in fields]
    found = [path for path in dict.fromkeys(paths) if path]
    # --numstat does not check paths, only applying does; by then copies were written under these names.
    outside = [path for path in found if path.startswith("/") or ".." in path.split("/")]
    if outside:
        raise PatchUnfit(
            "the patch names files outside of its directory",
            cause=", ".join(outside[:_NAMED]),
            remedy=_REMEDY,
        )
    return found, ""


_REMEDY = "make it with `git diff` at the top of the service's files"


def apply_patch(
    patch: str, roots: Iterable[str], read: Callable[[str], str | None]
) -> tuple[str, list[SourceChange]]:
    """(the directory that its names are relative to, what its files are to hold).

    Args:
        roots: absolute directories that it may be relative to, the likeliest first.
        read: the text of a file now, None where there is none.

    Raises:
        PatchUnfit: it is no patch, is of files that are in none of the directories, or does not apply to what they hold.
    """
    if len(patch) > PATCH_MOST:
        raise PatchUnfit("the patch is too long", cause=f"it has over {PATCH_MOST} characters")
    tried = list(dict.fromkeys(roots))
    refusal: PatchUnfit | None = None
    for stripped, paths in _ways(patch):
        for root in tried:
            texts = {path: read(f"{root}/{path}") for path in paths}
            if any(text is not None for text in texts.values()):
                try:
                    return root, _applied(patch, stripped, root, texts)
                except PatchUnfit as error:
                    refusal = refusal or error
    if refusal is not None:
        raise refusal
    names = ", ".join(paths_of_patch(patch)[:_NAMED])
    raise PatchUnfit(
        "the patch is of no file of the service",
        cause=f"{names}: not found below {', '.join(tried[:_NAMED]) or 'any directory'}",
        remedy="name the directory that its paths are relative to with --root",
    )


def _applied(patch: str, stripped: int, root: str, texts: dict[str, str | None]) -> list[SourceChange]:
    with tempfile.TemporaryDirectory(prefix="relive-") as scratch:
        top = Path(scratch)
        for path, text in texts.items():
            if text is not None:
                place = top / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text.encode())
        done = _git(top, patch, f"-p{stripped}", "--whitespace=nowarn")
        if done.returncode != 0:
            raise PatchUnfit(
                "the patch does not apply",
                cause=f"{_said(done)}; its paths were taken below {root}",
                remedy=_REMEDY,
            )
        gone = [path for path in texts if not (top / path).is_file() or (top / path).is_symlink()]
        if gone:
            raise PatchUnfit(
                "the patch deletes or renames files",
                cause=f"{', '.join(gone[:_NAMED])}: a living process has no use for that",
                remedy="try the whole tree with it: relive try INCIDENT --tree REVISION",
            )
        try:
            return [
                SourceChange(f"{root}/{path}", text, (top / path).read_bytes().decode())
                for path, text in texts.items()
            ]
        except UnicodeDecodeError as error:
            raise PatchUnfit("the patch is of a file that is no text", cause=str(error)) from error


def _git(directory: Path, patch: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/",
        "LC_ALL": "C",
        # Outside of any repository, whatever the directory lies in; so no configuration of one counts.
        "GIT_CEILING_DIRECTORIES": str(directory.resolve().parent),
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    command: Sequence[str] = ["git", "apply", *options, "-"]
    try:
        return subprocess.run(
            command,
            cwd=directory,
            env=environment,
            input=patch.encode("utf-8", "surrogateescape"),
            capture_output=True,
            timeout=_LIMIT,
            check=False,
        )
    except FileNotFoundError as error:
        raise ToolMissing(
            "patches are applied by git, which is not there", remedy="install it: apt-get install git"
        ) from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    words = "; ".join(line.removeprefix("error: ") for line in lines[:3])
    # git names an option of its own there, which nobody has here.
    return words.partition(" (allow with")[0] or f"git ended with {done.returncode}"
