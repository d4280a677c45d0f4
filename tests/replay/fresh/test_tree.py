"""Which files are run, and how a revision gets into a sandbox; every repository here is a real one."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from model.test_failure import FRAME, PACKAGE
from relive.errors import UsageError
from relive.model.reproduction import Tree
from relive.replay.fresh.tree import AS_IT_IS, choose_tree, lay_tree
from relive.sandbox.overlay_files import Laying
from relive.sandbox.rootfs import CoveredPoint

from .cases import case


class Code:
    """A repository whose one file fails in its last line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q")
        self.first = self.commit("x = 1\nfail()\n")

    def git(self, *words: str, data: bytes = b"") -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(self.root), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, input=data).stdout.decode().strip()

    def commit(self, text: str) -> str:
        (self.root / "shop.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "words")
        return self.git("rev-parse", "HEAD")

    def package(self, lines: list[str] | None = None, **parts: Any) -> Any:
        source = {"first": 1, "lines": lines or ["x = 1", "fail()"]}
        frame = FRAME | {"file": str(self.root / "shop.py"), "line": 2, "source": source}
        chain = [PACKAGE["chain"][0] | {"frames": [frame]}]
        revision = {"commit": self.first, "dirty": None, "root": str(self.root)}
        return case(**{"chain": chain, "revision": revision, **parts}).package


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path / "code")


@pytest.fixture
def laying(tmp_path: Path) -> Laying:
    return Laying([CoveredPoint("/", "00")], tmp_path / "layers")


def laid(laying: Laying, path: Path) -> Path:
    return laying.layers / "00/upper" / str(path).lstrip("/")


def test_the_recorded_revision_is_run_where_it_has_the_lines_that_failed(code):
    code.commit("x = 1\nmended()\n")
    tree = choose_tree(code.package(), "/", None)
    assert (tree.revision, tree.root, tree.is_recorded) == (code.first, str(code.root), True)


def test_the_files_are_run_as_they_are_where_only_they_have_those_lines(code):
    """The service ran changes that nobody had committed."""
    (code.root / "shop.py").write_text("x = 2\nfail()\n")
    tree = choose_tree(code.package(["x = 2", "fail()"]), "/", None)
    assert (tree.revision, tree.is_recorded) == (None, True)
    assert "hold the lines that failed" in tree.words


def test_another_revision_or_the_files_as_they_are_can_be_asked_for(code):
    later = code.commit("later()\n")
    assert choose_tree(code.package(), "/", "HEAD").revision == later
    assert choose_tree(code.package(), "/", later[:8]).is_recorded is False
    assert choose_tree(code.package(), "/", AS_IT_IS).revision is None
    # Without a revision in the package the repository is that around the working directory.
    inner = code.root / "deeper"
    inner.mkdir()
    assert choose_tree(code.package(revision=None), str(inner), "HEAD").root == str(code.root)


@pytest.mark.parametrize("wanted", ["gone", "--help", "HEAD:shop.py", "a b", "", "-"])
def test_a_revision_that_is_none_is_refused(code, wanted):
    with pytest.raises(UsageError):
        choose_tree(code.package(), "/", wanted)


@pytest.mark.parametrize(
    "revision",
    [
        None,
        {"commit": "f" * 40, "dirty": None, "root": "/nowhere"},
        {"commit": "f" * 40, "dirty": None, "root": "../../etc"},
    ],
)
def test_without_a_repository_the_files_are_run_as_they_are(code, revision):
    package = code.package(revision=revision)
    assert choose_tree(package, "/", None).revision is None
    with pytest.raises(UsageError):
        choose_tree(package, "/", "HEAD")


def test_a_revision_is_laid_over_what_git_knows_and_over_nothing_else(code, laying):
    (code.root / "run.sh").write_text("#!/bin/sh\n")
    (code.root / "run.sh").chmod(0o755)
    (code.root / "link").symlink_to("run.sh")
    (code.root / "same.py").write_text("same\n")
    (code.root / "below").mkdir(mode=0o750)
    (code.root / "below/deep.py").write_text("deep\n")
    (code.root / ".gitattributes").write_text("* text eol=crlf export-ignore\n")
    wanted = code.commit("wanted\n")
    (code.root / "new.py").write_text("not in that revision\n")
    (code.root / "run.sh").chmod(0o644)
    (code.root / "link").unlink()
    (code.root / "link").symlink_to("shop.py")
    (code.root / "below/deep.py").unlink()
    code.commit("later\n")
    (code.root / "data.db").write_text("git does not know it\n")
    assert lay_tree(Tree(root=str(code.root), revision=wanted, words=""), laying) == []
    assert laid(laying, code.root / "shop.py").read_bytes() == b"wanted\n"
    assert laid(laying, code.root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(laid(laying, code.root / "link")) == "run.sh"
    assert laid(laying, code.root / "below").stat().st_mode & 0o777 == 0o750
    hidden = laid(laying, code.root / "new.py").stat()
    assert (stat.S_ISCHR(hidden.st_mode), hidden.st_rdev) == (True, 0)
    assert not laid(laying, code.root / "data.db").exists()
    assert not laid(laying, code.root / "same.py").exists()  # the host has it as that revision has it
    assert (code.root / "shop.py").read_text() == "later\n"


def test_git_runs_nothing_that_the_repository_asks_for(code, laying, tmp_path):
    mark = tmp_path / "ran"
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    tool.chmod(0o755)
    (code.root / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    wanted = code.commit("x\n")
    for name in (
        "filter.evil.smudge",
        "filter.evil.clean",
        "core.fsmonitor",
        "diff.evil.textconv",
        "core.pager",
    ):
        code.git("config", name, str(tool))
    lay_tree(Tree(root=str(code.root), revision=wanted, words=""), laying)
    assert not mark.exists()


def tree_of(code: Code, *entries: tuple[str, str, str]) -> str:
    """A commit of (mode, type and object, name) that git's own commands would not make."""
    raw = b"".join(
        f"{mode} {name}".encode() + b"\0" + bytes.fromhex(target) for mode, target, name in entries
    )
    made = code.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=raw)
    return code.git("commit-tree", "-m", "evil", made)


def test_a_commit_with_names_that_lead_elsewhere_is_refused(code, laying, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    blob = code.git("hash-object", "-w", "--stdin", data=b"evil")
    link = code.git("hash-object", "-w", "--stdin", data=str(outside).encode())
    inner = code.git("hash-object", "-t", "tree", "-w", "--stdin", data=b"100644 f\0" + bytes.fromhex(blob))
    for commit in (
        tree_of(code, ("40000", inner, "..")),
        tree_of(code, ("100644", blob, "..")),
        tree_of(code, ("40000", inner, ".git")),
        tree_of(code, ("120000", link, "a"), ("40000", inner, "a")),
        tree_of(code, ("100644", blob, "a"), ("100644", blob, "a")),
    ):
        with pytest.raises(UsageError):
            lay_tree(Tree(root=str(code.root), revision=commit, words=""), laying)
    assert list(outside.iterdir()) == []
