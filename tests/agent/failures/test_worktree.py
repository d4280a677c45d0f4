"""Changes of tracked files are found as git finds them, in every format of its index."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relive.agent.failures.worktree import has_changes

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
LONG_AGO = 1_500_000_000  # [s]


class Tree:
    """A repository with a file, a program, a link and a directory, committed long ago."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", *options)
        (root / "app.py").write_text("print(1)\n")
        (root / "below").mkdir()
        (root / "below" / ("long" * 40)).write_text("deep")
        (root / "run").write_text("#!/bin/sh\n")
        (root / "run").chmod(0o755)
        (root / "link").symlink_to("app.py")
        for path in root.glob("**/*"):
            if ".git" not in path.parts:
                os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "one")
        self.commit = self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def has_changes(self) -> bool | None:
        return has_changes(self.root, self.commit)


@pytest.fixture(params=["2", "4", "sha256"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "sha256":
        return Tree(tmp_path / "tree", "--object-format=sha256")
    made = Tree(tmp_path / "tree")
    made.git("update-index", "--index-version", request.param)
    return made


def test_what_was_committed_is_unchanged_also_where_only_its_time_is_another(tree):
    assert tree.has_changes() is False
    os.utime(tree.root / "app.py")
    (tree.root / "untracked").touch()
    assert tree.has_changes() is False


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "app.py").write_text("print(2)\n"),
        lambda root: (root / "app.py").write_text("print(10)\n"),
        lambda root: (root / "below" / ("long" * 40)).unlink(),
        lambda root: (root / "run").chmod(0o644),
        lambda root: ((root / "link").unlink(), (root / "link").symlink_to("run.py")),
        lambda root: ((root / "app.py").unlink(), (root / "app.py").mkdir()),
    ],
    ids=["content", "length", "gone", "mode", "link", "directory"],
)
def test_a_change_is_seen(tree, change):
    change(tree.root)
    assert tree.has_changes() is True


def test_what_cannot_be_known_is_not_claimed(tree):
    """What was staged; a file that filters may have made; an index that is none."""
    (tree.root / "new").write_text("new")
    tree.git("add", "new")
    assert tree.has_changes() is None
    tree.git("reset", "-q", "--hard")
    (tree.root / ".gitattributes").touch()
    (tree.root / "app.py").write_text("print(2)\n")
    assert tree.has_changes() is None
    index = tree.root / ".git" / "index"
    raw = index.read_bytes()
    for broken in (raw[:100], b"DIRC" + b"\xff" * 100, b""):
        index.write_bytes(broken)
        assert tree.has_changes() is None
    index.unlink()
    assert tree.has_changes() is None


def test_a_work_tree_of_its_own_is_found(tree, tmp_path):
    tree.git("worktree", "add", "-q", str(tmp_path / "other"))
    assert has_changes(tmp_path / "other", tree.commit) is False
    (tmp_path / "other" / "app.py").write_text("changed")
    assert has_changes(tmp_path / "other", tree.commit) is True
