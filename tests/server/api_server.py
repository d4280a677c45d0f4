"""``relive serve`` as its own process, and a client that shows a token."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from support.waiting import LIMIT, eventually

from .task_server import Server

__all__ = ["Api", "executed", "serving"]

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


class Api:
    """What a user of the API has: the address and a token; errors are for the test to see."""

    def __init__(self, address: str, token: str, process: Server) -> None:
        self.address, self.token, self.process = address, token, process
        self.http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            timeout=LIMIT,
            limits=httpx.Limits(keepalive_expiry=2),  # the server closes what was idle for 5 s
        )

    def get(self, path: str, **query: Any) -> Any:
        """The value that a path answers with, which must be no error."""
        answer = self.http.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """The same, of what acts."""
        answer = self.http.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def result(self, task: dict[str, Any]) -> Any:
        """What a task ends with, which must be no error."""
        ended = eventually(lambda: self._ended(task["id"]), "the task ends", limit=90)
        assert ended["state"] == "succeeded", ended["error"]
        return ended["result"]

    def _ended(self, task: str) -> Any:
        found = self.get(f"/tasks/{task}")
        return found if found["state"] in ("succeeded", "failed", "cancelled") else None

    def refused(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        """(status, code) of an error, whose shape must be the one."""
        answer = self.http.request(method, path, **options)
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "cause", "remedy"}, error
        return answer.status_code, error["code"]


class _Commands:
    """Commands of Relive as forks of one process that has imported the server already, which takes two seconds of CPU."""

    def __init__(self) -> None:
        self._forker = subprocess.Popen(
            [sys.executable, "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._close)

    def start(self, words: list[str], environment: dict[str, str], output: Path) -> Server:
        """Run ``relive WORDS`` with nothing but this environment, without input, its answer in a file."""
        assert self._forker.stdin is not None and self._forker.stdout is not None
        self._forker.stdin.write(json.dumps([words, environment, str(output)]) + "\n")
        self._forker.stdin.flush()
        return Server(int(self._forker.stdout.readline()))

    def _close(self) -> None:
        with self._forker:
            pass


_FORKS = """
import importlib, json, os, signal, sys
from relive.cli.app import main
for name in ("dbos", "relive.cli.serve_cmd", "relive.cli.token_cmd", "relive.mcp.http"):
    importlib.import_module(name)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
for line in sys.stdin:
    words, environment, output = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, path in ((0, os.devnull), (1, output)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["relive", *words]
        status = 1
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        os._exit(status)
    print(child, flush=True)
"""


@cache
def _commands() -> _Commands:
    return _Commands()


@contextmanager
def serving(environment: dict[str, str], *scopes: str) -> Iterator[Api]:
    """Start a server on the home of the environment, at any port, and make a token with these scopes."""
    words = [word for scope in scopes for word in ("--scope", scope)]
    with tempfile.TemporaryDirectory(prefix="relive-api-") as directory:
        made, said = Path(directory, "token"), Path(directory, "address")
        _commands().start(["token", "create", "--name", "test", *words, "--json"], environment, made).wait()
        process = _commands().start(["serve", "--listen", "127.0.0.1:0", "--json"], environment, said)
        try:
            address = eventually(lambda: json.loads(said.read_text())["address"], "the server listens")
            api = Api(address, json.loads(made.read_text())["token"], process)
            with api.http:
                yield api
        finally:
            process.end(signal.SIGTERM)


@contextmanager
def executed(environment: dict[str, str], *scopes: str) -> Iterator[Api]:
    """The same by the command as it is typed."""
    words = [word for scope in scopes for word in ("--scope", scope)]
    made = subprocess.run(
        [RELIVE, "token", "create", "--name", "test", *words, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    with subprocess.Popen(
        [RELIVE, "serve", "--listen", "127.0.0.1:0", "--json"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        server = Server(process.pid)
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            api = Api(json.loads("".join(lines))["address"], json.loads(made.stdout)["token"], server)
            with api.http:
                yield api
        finally:
            server.end(signal.SIGTERM)
