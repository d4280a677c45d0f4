"""The command, run in this process on a home of its own, at a fixed time and place."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from relive.cli.app import main
from relive.config import Settings
from relive.model import quantities
from relive.store import Store

NOW_NS = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20 UTC


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        """As a snapshot: what stood on a terminal, stderr marked."""
        lines = [*self.out.splitlines(), *(f"! {line}" for line in self.err.splitlines()), f"= {self.status}"]
        return "\n".join(line.rstrip() for line in lines)


Run = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"RELIVE_{name.upper()}", raising=False)
    monkeypatch.setenv("RELIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    opened = Store(home / "store")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ages are counted to NOW_NS, local time is UTC; nothing else stands still."""

    class Clock:
        time_ns = staticmethod(lambda: NOW_NS)
        strftime, localtime = staticmethod(time.strftime), staticmethod(time.localtime)

    monkeypatch.setattr(quantities, "time", Clock)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def relive(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["relive", *arguments])
        capfd.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        out, err = capfd.readouterr()
        return Said(status, out, err)

    return run
