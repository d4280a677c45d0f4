"""A home with one good commit in it, a service that must stay unharmed, and commands that must be refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from support.forker import Forker
from support.waiting import LIMIT

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
TOOLS = Path(os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools"))

Error = dict[str, str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


class Program:
    """A Python program that says "ready", then repeats every line it is told. Its pipes end in this process."""

    def __init__(self, code: str = "", **options: Any) -> None:
        text = f"{code}\nimport signal, sys\nprint('ready', flush=True)\n"
        text += "for line in sys.stdin: print(line, end='', flush=True)\n"
        text += "signal.pause()\n"  # in a branch its input has ended
        self.process = subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            **options,
        )
        self.pid = self.process.pid
        assert self._line() == b"ready\n"
        stat = procfs.read_stat(self.pid)
        assert stat is not None
        self._started = stat.start_ticks

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], LIMIT)
        assert readable, "the service does not answer"
        return self.process.stdout.readline()

    def assert_unharmed(self) -> None:
        """It is the same process, answers, and no thread of it is stopped or traced."""
        assert procfs.is_same_process(self.pid, self._started)
        assert self.process.stdin is not None
        self.process.stdin.write(b"still there?\n")
        assert self._line() == b"still there?\n"
        for thread in procfs.threads_of(self.pid):
            stat = (Path(f"/proc/{self.pid}/task") / str(thread) / "stat").read_text()
            assert stat.rpartition(")")[2].split()[0] not in "Tt"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@dataclass(frozen=True)
class Home:
    """A RELIVE_HOME and the commands that are given in it."""

    path: Path
    forker: Forker

    @property
    def store(self) -> Path:
        return self.path / "store"

    def command(
        self, *words: str | Path, under: tuple[str, ...] = (), **environment: str
    ) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "RELIVE_HOME": str(self.path), "RELIVE_TOOLS": str(TOOLS), **environment}
        if not under:
            return self.forker([str(word) for word in words], env)
        return subprocess.run(
            [*under, RELIVE, *words],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def ask(self, command: str, *words: str | Path) -> Any:
        """The answer of a command that must work."""
        done = self.command(command, "--json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def state(self) -> dict[str, str]:
        """Every file of the store with a hash of its bytes. SQLite's own side files say nothing, nor what is laid out."""
        return {
            str(path.relative_to(self.store)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.store.rglob("*"))
            if path.is_file()
            and path.parent.name != "laid"
            and not path.name.endswith(("-wal", "-shm"))
            and path.name != "index.sqlite"
        }

    def refused(
        self,
        code: str,
        status: int,
        command: str,
        *words: str | Path,
        under: tuple[str, ...] = (),
        **env: str,
    ) -> Error:
        """Give a command twice, with and without ``--json``; it must fail the same way, and leave the store as it was."""
        before = self.state() if self.store.exists() else {}
        in_json = self.command(command, "--json", *words, under=under, **env)
        in_words = self.command(command, *words, under=under, **env)
        said = in_json.stdout + in_json.stderr
        assert in_json.returncode == status, said
        shape = json.loads(in_json.stdout)
        assert set(shape) == {"error"}
        error: dict[str, str] = shape["error"]
        assert set(error) == {"code", "message", "cause", "remedy"}
        assert error["code"] == code, said
        assert error["message"] and "Traceback" not in in_json.stderr
        assert in_words.returncode == status
        assert in_words.stdout == ""
        assert f"({code})" in in_words.stderr.splitlines()[0]
        assert in_words.stderr.startswith("Error: ") and "Traceback" not in in_words.stderr
        for part in ("Cause", "Remedy"):
            assert (f"{part}: " in in_words.stderr) == bool(error[part.lower()])
        if self.store.exists():
            assert self.state() == before
            assert not list((self.store / "incoming").iterdir()) and not list(self.store.glob("making/??/*"))
        return error

    def branches(self) -> list[Any]:
        return [one for one in self.ask("ps", "--all") if one["kind"] == "branch"]


@contextlib.contextmanager
def new_home(forker: Forker) -> Iterator[Home]:
    # Not below tmp_path: Relive hides its home from the service, and the service's files lie there.
    path = Path(tempfile.mkdtemp(prefix="relive-wrong-"))
    try:
        yield Home(path, forker)
    finally:
        shutil.rmtree(path)


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def begin(code: str = "", **options: Any) -> Program:
        running.append(Program(code, **options))
        return running[-1]

    yield begin
    for program in running:
        program.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Program]:
    """Not in a capsule; committed once in ``home``."""
    made = Program()
    yield made
    made.close()


@pytest.fixture(scope="module")
def home(service: Program, forker: Forker) -> Iterator[Home]:
    with new_home(forker) as made:
        made.ask("commit", f"pid:{service.pid}", "--tag", "good")
        yield made


@pytest.fixture
def fresh_home(service: Program, forker: Forker) -> Iterator[Home]:
    """For tests that damage it."""
    with new_home(forker) as made:
        made.ask("commit", f"pid:{service.pid}", "--tag", "good")
        yield made
