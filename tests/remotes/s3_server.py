"""A real S3 server for tests: OpenStack Swift in a process of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BUCKET = "states"


@dataclass
class Swift:
    """The server's address."""

    port: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables by which a client finds it, perhaps through another port."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }

    def fresh_url(self) -> str:
        """A remote that nobody has used yet."""
        return f"s3://{BUCKET}/remote/{next(self._numbers)}"

    @classmethod
    @contextmanager
    def running(cls, directory: Path) -> Iterator[Swift]:
        command = [sys.executable, Path(__file__).with_name("swift_server.py"), directory, BUCKET]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield cls(int(process.stdout.readline()))
        finally:
            process.stdin.close()
            process.wait()
            process.stdout.close()
