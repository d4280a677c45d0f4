"""Nobody can tell by its end whether Python ended a process or a fork ended itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_SAYS = "import atexit, os, sqlite3, sys, threading, time\nfrom concurrent.futures import ThreadPoolExecutor\ndef body():\n"
_ENDS = {
    "python": "sys.exit(body())",
    "fork": "from relive.forkserver.ending import run_and_end\nrun_and_end(body)",
}
BODIES = {
    "a status": "return 7",
    "nothing": "return None",
    "more than a byte holds": "return 256 + 3",
    "below zero": "return -1",
    "exit": "sys.exit(5)",
    "exit without a status": "sys.exit()",
    "exit with words": "sys.exit('words')",
    "an exception": "raise ValueError('words')",
    "an interrupt": "raise KeyboardInterrupt",
    "what was printed": "print('said')",
    "exit functions": "atexit.register(print, 'at the end'); atexit.register(print, 'first'); return 2",
    "an exit function that fails": "atexit.register(lambda: 1 // 0); return 2",
    "a thread": "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start(); return 3",
    "a thread of nobody": "threading.Thread(target=lambda: time.sleep(1000), daemon=True).start(); return 3",
    "a pool": "ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.05), print('late'))); return 3",
    "a stream that is lost": "os.close(1); print('said'); return 3",
    "a stream that was closed": "sys.stdout.close(); return 3",
    "a file": "global left; left = open('file', 'w'); left.write('text'); return 0",
    "a file of bytes": "global left; left = open('file', 'wb'); left.write(b'text'); return 0",
    "a database": (
        "global left; left = sqlite3.connect('file', isolation_level=None); left.execute('pragma journal_mode = wal'); "
        "left.execute('create table t (a)'); return 0"
    ),
}


def ended(directory: Path, way: str, body: str) -> tuple[int, str, str, list[str], bytes]:
    """Its status, what it said, the last of what it complained of, the files it left, and what is in the one."""
    directory.mkdir()
    text = f"{_SAYS}    {body}\n{_ENDS[way]}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    names = sorted(os.listdir(directory))
    content = (directory / "file").read_bytes() if names else b""
    return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2], names, content


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_it_ends_as_python_ends(tmp_path: Path, body: str) -> None:
    assert ended(tmp_path / "fork", "fork", body) == ended(tmp_path / "python", "python", body)


def test_each_body_does_what_it_is_called(tmp_path: Path) -> None:
    """Else that they agree would say nothing."""
    found = {name: ended(tmp_path / name, "fork", body) for name, body in BODIES.items()}
    assert found["a status"][0] == 7 and found["an interrupt"][0] == -signal.SIGINT
    assert found["exit with words"][2] == "words" and found["an exception"][2] == "ValueError: words"
    assert found["exit functions"][1] == "first\nat the end\n" and found["a pool"][1] == "late\n"
    assert found["a stream that is lost"][0] == 120
    assert found["a file"][3:] == (["file"], b"text")
    assert found["a database"][3] == ["file"] and len(found["a database"][4]) > 4096
