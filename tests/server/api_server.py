"""``relive serve`` as its own process, and a client that shows a token."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from waiting import LIMIT, eventually

__all__ = ["Api", "serving"]

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"


class Api:
    """What a user of the API has: the address and a token; errors are for the test to see."""

    def __init__(self, address: str, token: str, process: subprocess.Popen[str]) -> None:
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


@contextmanager
def serving(environment: dict[str, str], *scopes: str) -> Iterator[Api]:
    """Start a server on the home of the environment, at any port, and make a token with these scopes."""
    words = [word for scope in scopes for word in ("--scope", scope)]
    made = subprocess.run(
        [RELIVE, "token", "create", "--name", "test", *words, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    token = json.loads(made.stdout)["token"]
    with subprocess.Popen(
        [RELIVE, "serve", "--listen", "127.0.0.1:0", "--json"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            api = Api(json.loads("".join(lines))["address"], token, process)
            with api.http:
                yield api
        finally:
            process.terminate()
            process.wait(LIMIT)
