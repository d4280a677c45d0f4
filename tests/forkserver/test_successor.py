"""A process is replaced by a program; of a fork's, who asked for it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from relive.forkserver.successor import Successor

_TELLS = """
import json, os, sys
print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), sorted(map(int, os.listdir("/proc/self/fd"))), os.getpid()]))
sys.exit(7)
"""
_SUCCEEDS = """
import os, sys
from relive.forkserver.successor import Successor, succeed
print("before")
succeed(Successor([sys.executable, "-IS", "-c", sys.argv[1], "a b"], {"ONLY": "this", "LC_ALL": "C"}, "/"))
"""


def test_a_process_is_replaced_with_nothing_but_what_is_named(tmp_path: Path):
    with (tmp_path / "open").open("w") as other:
        process = subprocess.Popen(
            [sys.executable, "-c", _SUCCEEDS, _TELLS],
            pass_fds=[other.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        out, _ = process.communicate(timeout=100)
    before, told = out.splitlines()
    words, environment, directory, descriptors, pid = json.loads(told)
    assert before == "before"
    assert (words, directory, pid) == (["a b"], "/", process.pid)
    assert environment == {"ONLY": "this", "LC_ALL": "C"}
    assert descriptors[:3] == [0, 1, 2] and len(descriptors) == 4  # and the directory that it lists
    assert process.returncode == 7


def test_it_is_read_as_it_was_told():
    file = os.memfd_create("successor")
    told = Successor(["/bin/true", "\udcff"], {"A": "ä"}, "/tmp")
    os.write(file, json.dumps(told).encode())
    assert Successor.read(file) == told


def test_what_is_none_is_an_error():
    file = os.memfd_create("successor")
    os.write(file, b"{")
    with pytest.raises(ValueError):
        Successor.read(file)
