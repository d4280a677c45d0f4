"""What a command imports before it does anything: no test asserts times, but these modules are where the time went."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Each takes 10 to 100 ms to be imported.
_HEAVY = {
    *("asyncio", "cryptography", "google.protobuf", "http.client", "numpy", "obstore", "pydantic_settings"),
    *("rich", "sqlglot", "ssl", "structlog", "urllib.request", "uvicorn"),
    *(
        "relive.incidents.report.detail",
        "relive.checkpoint.dump",
        "relive.protocols.registry",
        "relive.replay.replay",
    ),
    *("relive.sandbox.restoring", "relive.store.store"),
}
# What opening the store takes: its keys.
_OF_THE_STORE = {"cryptography", "relive.store.store"}
# What restoring takes beside it: CRIU's images. The sandbox and numpy come when there is a commit to lay out.
_OF_A_RESTORE = {*_OF_THE_STORE, "google.protobuf"}
_SHOW = """
import atexit, sys
atexit.register(lambda: print("imported:", *sys.modules, file=sys.stderr))
from relive.cli import main
main()
"""


def imported(home: Path, *words: str) -> set[str]:
    """The modules in a process of its own that ran ``relive WORDS``, at its end."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, *words],
        env={**os.environ, "RELIVE_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    line = done.stderr.splitlines()[-1]
    assert line.startswith("imported:"), done.stderr
    return set(line.split())


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("--version", set()),
        ("ps", set()),
        ("stop nobody", set()),
        ("log", _OF_THE_STORE),
        ("incidents", _OF_THE_STORE),
        ("show nothing", _OF_THE_STORE),
        ("commit nobody", _OF_THE_STORE),
        ("run", _OF_THE_STORE),
        ("restore nothing", _OF_A_RESTORE),
        ("restore nothing --as podman", _OF_A_RESTORE),
    ],
)
def test_a_command_imports_only_what_it_needs(tmp_path, words, needed):
    found = imported(tmp_path, *words.split())
    assert "typer" in found
    assert found & _HEAVY == needed


def test_the_list_of_commands_imports_none_of_them(tmp_path):
    found = imported(tmp_path, "--help")
    assert [name for name in found if name.startswith("relive.cli.") and name.endswith("_cmd")] == []
    assert found & (_HEAVY - {"rich"}) == set()
