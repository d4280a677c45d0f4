"""Another revision of a service's code: what counts as one, and when."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from relive.agent.commits.deployment import CodeSample, Deployments, look_at_code

FILE = (1, 2, 3, 4)
OLD, NEW = CodeSample("a" * 40, (FILE,)), CodeSample("b" * 40, (FILE,))
GOING = CodeSample("b" * 40, (None,))


def seen(*looks: CodeSample) -> list[bool]:
    """What each look after the first says."""
    following = iter(looks)
    code = Deployments(lambda: next(following))
    return [code.has_changed(1.0) for _ in looks[1:]]


def test_a_new_revision_counts_once_it_was_seen_twice_the_same_and_whole():
    assert seen(OLD, OLD, NEW, NEW) == [False, False, True]
    assert seen(OLD, NEW, OLD, OLD) == [False, False, False]
    assert seen(OLD, GOING, GOING, NEW, NEW) == [False, False, False, True]


def test_what_was_committed_is_no_news():
    looks = iter([OLD, NEW, NEW, NEW, NEW])
    code = Deployments(lambda: next(looks))
    assert [code.has_changed(1.0) for _ in range(2)] == [False, True]
    code.committed()
    assert [code.has_changed(1.0) for _ in range(2)] == [False, False]


def test_the_revision_of_git_and_the_script_are_looked_at(tmp_path: Path):
    """Of a real process: a checkout, a changed script, and one that is gone, each differ; nothing done does not."""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("a" * 40 + "\n")
    script = tmp_path / "work" / "service.py"
    script.parent.mkdir()
    script.write_text("print('runs', flush=True)\ninput()")
    process = subprocess.Popen(
        [sys.executable, "-S", script.name], cwd=script.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"runs\n"
        first = look_at_code(process.pid)
        assert first.revision == "a" * 40 and len(first.files) == 2 and first.is_whole()
        assert look_at_code(process.pid) == first
        (git / "HEAD").write_text("b" * 40 + "\n")
        second = look_at_code(process.pid)
        assert second.revision == "b" * 40 and second.files == first.files
        os.utime(script, ns=(1, 1))
        assert look_at_code(process.pid).files != second.files
        script.unlink()
        assert look_at_code(process.pid) != second
    finally:
        process.communicate(b"\n")
    assert not look_at_code(process.pid).is_whole()
