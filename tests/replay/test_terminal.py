"""The line to a debugger, with a real pdb at its other end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import relive
from inprocess.conftest import each_python
from relive.errors import DebuggerSilent
from relive.replay.debug.terminal import DebugLine

INPROCESS = Path(relive.__file__).parent.parent / "relive_inprocess"
PROGRAM = """
import sys
from relive_recorder.failure import debugger
class Order:
    items = ["book", "pen \\x1e"]
def pay(number):
    order = Order()
    return {}[number]
try:
    pay(1386)
except KeyError as error:
    debugger.examine(sys.argv[1], error)
print("went on")
"""


@pytest.fixture
def python():
    return sys.executable


@pytest.fixture
def debugged(tmp_path, python):
    """A process that waits for its debugger; (the line, the process)."""
    process = subprocess.Popen(
        [python, "-c", PROGRAM, str(tmp_path / "debug.sock")],
        env={"PYTHONPATH": str(INPROCESS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    line = DebugLine.open(tmp_path / "debug.sock", 30.0, lambda: process.poll() is None)
    yield line, process
    line.close()
    process.kill()
    process.communicate()


@each_python
def test_questions_and_answers(debugged, python):
    """On every Python: pdb changes with each."""
    line, process = debugged
    opening, wants = line.read_text()
    assert wants
    assert "KeyError escaped" in opening
    assert opening.endswith("(pdb) ")
    said = []
    for command in ("p number", "p order.items", "up", "p no_such_name"):
        line.send_line(command)
        text, wants = line.read_text()
        assert wants
        said.append(text.removesuffix("(pdb) "))
    assert said[0] == "1386\n"
    # What ends a text on the line is an escape when the text itself holds it.
    assert said[1] == "['book', 'pen \\x1e']\n"
    assert "<module>" in said[2]
    assert "NameError" in said[3]
    line.send_line("q")
    assert line.read_text() == ("", False)
    assert process.communicate(timeout=30)[0] == "went on\n"


def test_who_says_more_than_anybody_reads_is_not_listened_to(debugged):
    """What runs in a branch may be hostile, and what it says is held in memory of the host's."""
    line, _ = debugged
    line.read_text()
    line.send_line("p 'x' * (64 << 20)")
    with pytest.raises(DebuggerSilent, match="too much"):
        line.read_text()


def test_when_the_line_ends_the_program_goes_on(debugged):
    line, process = debugged
    line.read_text()
    line.close()
    assert process.communicate(timeout=30)[0] == "went on\n"


def test_when_the_program_ends_so_does_the_line(debugged):
    line, process = debugged
    line.read_text()
    process.kill()
    assert line.read_text()[1] is False


def test_a_debugger_that_cannot_come_is_not_waited_for(tmp_path):
    with pytest.raises(DebuggerSilent):
        DebugLine.open(tmp_path / "debug.sock", 30.0, lambda: False)
