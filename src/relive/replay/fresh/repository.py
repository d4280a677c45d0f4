"""A git repository, read by git's own commands, none of which runs anything that the repository can configure."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Repository"]

_REVISION = re.compile(r"[^-\x00-\x20\x7f][^\x00-\x20\x7f]{0,255}")
_LIMIT = 120  # [s] for one git
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never")


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository whose working tree has its top at ``root``."""

    root: Path

    def commit_of(self, revision: str) -> str | None:
        """The commit (hex) that a revision names; None where there is none, or no git, or no repository."""
        if not _REVISION.fullmatch(revision):
            return None
        try:
            found = self._run(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return found.decode("ascii", "replace").strip() or None

    def files(self, commit: str) -> list[tuple[str, str, str]]:
        """(mode, object, path) of each file of a commit; raises OSError, SubprocessError."""
        listed = self._run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
        found = []
        for line in listed:
            about, _, path = line.partition(b"\t")
            if path:
                mode, _, name = about.decode("ascii").split()
                found.append((mode, name, os.fsdecode(path)))
        return found

    def tracked(self) -> list[str]:
        """Paths that git knows in the working tree; raises as ``files``."""
        listed = self._run("ls-files", "-z").split(b"\0")
        return [os.fsdecode(path) for path in listed if path]

    def content(self, commit: str, path: str) -> bytes | None:
        """A file of a commit; None where it has none."""
        try:
            return self._run("cat-file", "blob", f"{commit}:{path}")
        except (OSError, subprocess.SubprocessError):
            return None

    def contents(self, objects: list[str]) -> Iterator[bytes]:
        """The contents of objects, one after the other; raises OSError when one is missing."""
        command, options = self._command("cat-file", "--batch")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options) as git:
            assert git.stdin is not None
            assert git.stdout is not None
            for name in objects:
                git.stdin.write(name.encode() + b"\n")
                git.stdin.flush()
                head = git.stdout.readline().split()
                if len(head) != 3:
                    raise OSError(f"git has no object {name}")
                data = git.stdout.read(int(head[2]) + 1)
                yield data[:-1]
            git.stdin.close()

    def _run(self, *words: str) -> bytes:
        command, options = self._command(*words)
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_LIMIT, check=True, **options
        )
        return done.stdout

    def _command(self, *words: str) -> tuple[list[str], dict[str, Any]]:
        facts = self.root.stat()
        owner: dict[str, Any] = {}
        if os.geteuid() == 0 and facts.st_uid != 0:
            # git refuses another's repository; and what a repository may have git do, its owner may do anyway.
            owner = {"user": facts.st_uid, "group": facts.st_gid, "extra_groups": []}
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/",
            "LC_ALL": "C",
            "GIT_OPTIONAL_LOCKS": "0",
        }
        options = {"cwd": "/", "env": environment, "stderr": subprocess.DEVNULL, **owner}
        return ["git", *_SAFE, "-C", str(self.root), *words], options
