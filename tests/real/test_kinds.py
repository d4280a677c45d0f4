"""One thing of each kind that a process can hold (``services/kinds``), in the manner of CRIU's own zdtm suite.

All are held by one program, committed once and restored once; each test asks the branch and the original about one kind.
To look at a few alone: ``pytest tests/real/test_kinds.py -k 'inotify or fifo'`` starts the program with just these.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Relive

KINDS = [
    name
    for part in sorted((SERVICES / "kinds").glob("*.py"))
    for name in re.findall(r"^@(?:kind|in_child)\ndef (\w+)\(", part.read_text(), re.MULTILINE)
]
Ask = Callable[[str], str]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """What the program finds on the host."""
    directory = Path(tempfile.mkdtemp(prefix="relive-kinds-"))
    for name in ("host-file", "host-metadata", "host-locked", "of-the-host"):
        (directory / name).write_text("the host's\n")
    (directory / "host-directory").mkdir()
    (directory / "host-directory" / "inner").touch()
    yield directory
    # What the program did is done on the host; what its branch did is not (``services/kinds/files.py``).
    assert not (directory / "host-file").exists() and not (directory / "host-directory" / "inner").exists()
    shutil.rmtree(directory)
    shutil.rmtree(Path("/run") / directory.name, ignore_errors=True)


@pytest.fixture(scope="module")
def asked(place: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Ask, Ask]]:
    """Questions to the branch and to the original."""
    wanted = [item.callspec.params["kind"] for item in request.session.items if item.path == request.path]
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "kinds")
    port = free_port()
    try:
        capsule = relive.run(PYTHON, SERVICES / "kinds", str(port), place, *wanted)
        eventually(lambda: ask_kind(port, ""), "the program is set up")
        commit = relive.commit(capsule)
        branch = relive.restore(commit, port)
        yield (lambda kind: ask_kind(branch.ports[port], kind)), (lambda kind: ask_kind(port, kind))
    finally:
        relive.close()
        shutil.rmtree(home)


def ask_kind(port: int, kind: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{kind}", timeout=LIMIT) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_kept(asked: tuple[Ask, Ask], kind: str) -> None:
    branch, original = asked
    assert branch(kind) == "ok"
    assert original(kind) == "ok"
