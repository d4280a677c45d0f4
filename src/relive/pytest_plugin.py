"""The plugin of pytest: ``pytest --relive`` runs the states that ``relive keep`` has kept, a test each.

Every pytest of an environment with Relive loads this module, so it imports nothing but what pytest has imported already; and not
even where it is used does the process of the tests import Relive: each state is run by a process of its own
(``relive.operations``), which ends with this one, however that ends. So it works in workers of xdist, too.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["KeptFile", "KeptTest", "Relive", "RestoredState"]

_FRAMES = 6  # of a stack that are shown
_SUFFIX = ".relive.yaml"
_SHOWN = 200  # [characters] of a body
# The codes of errors that say what this host cannot do (exit status 4, ``relive.errors.HostIncapable``), and of a restore that CRIU
# here does not support: a test that cannot be run here has not failed.
_OF_THE_HOST = frozenset(
    {"host-incapable", "permission-missing", "tool-missing", "host-unfit", "restore-unsupported"}
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--relive``."""
    group = parser.getgroup("relive", "states that relive keep has kept")
    group.addoption("--relive", action="store_true", help=f"run kept states: files *{_SUFFIX}, a test each")
    group.addoption(
        "--relive-as-committed",
        action="store_true",
        help="run them with the code that was committed, not with the files that are here",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "relive: restores a state that Relive has committed; runs with --relive only"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A kept state's file, where kept states are asked for."""
    if file_path.name.endswith(_SUFFIX) and parent.config.getoption("relive", default=False):
        return KeptFile.from_parent(parent, path=file_path)
    return None


@pytest.fixture
def relive(request: pytest.FixtureRequest) -> Relive:
    """Restores commits and asks them: ``relive.restore("c1a2b3").replay()``; skipped without ``--relive``."""
    if not request.config.getoption("relive", default=False):
        pytest.skip("it restores a committed state; run it with --relive")
    return Relive(request.path.parent)


class KeptFile(pytest.File):
    """A file of one kept state."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one test of it; the file is read by who runs it."""
        yield KeptTest.from_parent(self, name=self.path.name.removesuffix(_SUFFIX))


class KeptTest(pytest.Item):
    """A kept state as a test."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add_marker("relive")

    def runtest(self) -> None:
        """Run it; raises NotMet."""
        as_committed = bool(self.config.getoption("relive_as_committed", default=False))
        found = _perform("kept", {"file": str(self.path), "as_committed": as_committed})
        self.user_properties.append(("relive.commit", found["commit"]))
        self.user_properties.append(("relive.request", found["request"]))
        if not found["met"]:
            raise NotMet(found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Of an answer that is not as expected what came and why, without a traceback of this plugin."""
        if isinstance(excinfo.value, NotMet | Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is, and what it is called."""
        return self.path, None, f"kept state {self.name}"


class NotMet(Exception):
    """The answer was not as expected."""

    def __init__(self, found: dict[str, Any]) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        bad = [one for one in self.found["runs"] if one["reason"] is not None]
        lines = [f"not as expected {len(bad)} of {len(self.found['runs'])}: {bad[0]['reason']}"]
        lines.append(f"request {self.found['request']} from commit {self.found['commit'][:10]}")
        swapped = bad[0]["swapped"]
        if swapped is not None:
            lines.append(
                f"code that is here and reached it: {', '.join(swapped['swapped']) or 'none differs'}"
            )
            lines += [f"not swapped: {one['file']}: {one['name']}: {one['why']}" for one in swapped["left"]]
        outcome = bad[0]["run"]["outcome"]
        if outcome["stack"] is not None:
            lines += ["", *_stack_lines(outcome["stack"])]
        return "\n".join(lines)


def _stack_lines(stack: dict[str, Any]) -> list[str]:
    """The innermost frames of a stack, and what was raised."""
    frames = stack["frames"][-_FRAMES:]
    left_out = len(stack["frames"]) - len(frames)
    lines = [f"... {left_out} outer frames"] if left_out else []
    return [*lines, *(f"{file}:{line} in {function}" for file, line, function in frames), stack["exception"]]


class Failed(Exception):
    """Relive could not do it; ``code``: of the error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code = str(error["code"])
        self.error = error

    def __str__(self) -> str:
        lines = [f"{self.error['message']} [{self.code}]"]
        lines += [f"cause: {self.error['cause']}"] if self.error.get("cause") else []
        return "\n".join(lines + ([f"remedy: {self.error['remedy']}"] if self.error.get("remedy") else []))


class Relive:
    """What the fixture ``relive`` gives; ``directory``: that of the test's file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def restore(self, commit: str) -> RestoredState:
        """A commit, by any ref; a branch of it is made for each ``replay``, and is gone after it."""
        return RestoredState(commit, self.directory)


class RestoredState:
    """A commit that can be asked."""

    def __init__(self, commit: str, directory: Path) -> None:
        self.commit = commit
        self._directory = directory

    def replay(
        self,
        request: int | None = None,
        *,
        code: dict[str, str] | None = None,
        limit: float | None = None,
        on_miss: list[str] | None = None,
    ) -> Answer:
        """Restore it, send a recorded request, and give its answer.

        Args:
            request: its number; None: the one that failed after the commit.
            code: directory of the service to the directory here whose code is tried, from the test's; None: as committed.
            limit: seconds for the request.
            on_miss: what becomes of calls without a recorded answer, as ``relive replay --on-miss``.

        Raises:
            Failed: it could not be done. The test is skipped where that is because of this host.
        """
        __tracebackhide__ = True
        state: dict[str, Any] = {"relive_kept": 1, "name": "fixture", "commit": self.commit}
        state |= {"code": [{"at": at, "here": here} for at, here in (code or {}).items()]}
        state |= {"request": request, "limit": limit, "on_miss": on_miss or []}
        found = _perform("kept", {"content": json.dumps(state), "directory": str(self._directory)})
        return Answer(found)


class Answer:
    """How a request ended in a branch.

    Attributes:
        status: of the answer, None where there was none; text: its body; headers: names in lower case.
        end: "answered", "broken", "no-answer", "died"; exception: the one that was logged, "Class: text".
        code: what of the code here reached the branch, as ``relive kept --json`` tells it.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        (one,) = found["runs"]
        outcome = one["run"]["outcome"]
        self.status: int | None = outcome["status"]
        self.end: str = outcome["end"]
        self.text: str = outcome["body"]
        self.headers = dict(outcome["headers"])
        self.exception: str | None = outcome["stack"]["exception"] if outcome["stack"] is not None else None
        self.code: dict[str, Any] | None = one["swapped"]
        self.verdict: str = one["run"]["verdict"]["kind"]

    def __repr__(self) -> str:
        """What came, for the assertion that says it was not expected."""
        came = f"status {self.status}" if self.status is not None else self.end
        cause = f", {self.exception}" if self.exception is not None else ""
        return f"<answer: {came}{cause}, body {self.text[:_SHOWN]!r}>"

    def json(self) -> Any:
        """The body as JSON; raises ValueError."""
        return json.loads(self.text)


def _perform(operation: str, params: dict[str, Any]) -> dict[str, Any]:
    """An operation's result; the test is skipped where this host cannot do it. Raises Failed.

    The protocol is specified in ``relive.operations.subprocess_runner``.
    """
    __tracebackhide__ = True  # what is shown is the line of the test, and what Relive says
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "relive.operations", operation],
            bufsize=0,  # what it does not take any more is an error at once, and not when the pipe is closed
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        last: dict[str, Any] = {}
        with process, process.stdout as output:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
                process.stdin.write(json.dumps(params).encode() + b"\n")
            while not ("result" in last or "error" in last) and (line := output.readline()):
                last = json.loads(line)
        if "result" in last:
            return dict(last["result"])
        if "error" not in last:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise Failed(
                {"code": "bug", "message": "relive ended without a result", "cause": "\n".join(lines[-5:])}
            )
    if last["error"]["code"] in _OF_THE_HOST:
        pytest.skip(f"this host cannot restore it: {Failed(last['error'])}".replace("\n", "; "))
    raise Failed(last["error"])
