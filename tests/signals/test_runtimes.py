"""Runtimes that raise and handle fatal signals of their own under the tracer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import LIMIT, Program, Wire

Start = Callable[..., Program]

pytestmark = pytest.mark.real


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_aborts(wire: Wire, start: Start) -> None:
    code = "process.stdin.on('data', () => process.abort()); console.log('ready')"
    program = start(["node", "-e", code], stderr=subprocess.DEVNULL)
    wire.attach(program.pid)
    program.say()
    event = wire.event("fatal")
    assert event["name"] in ("SIGABRT", "SIGTRAP", "SIGILL")
    wire.command("release")
    assert program.end() == -event["signal"]


JAVA = """
public class Nulls {
    static int length(String text) { return text.length(); }
    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        System.in.read();
        int caught = 0;
        for (int i = 0; i < 300000; i++)
            try { length(i % 1000 == 0 ? null : "a"); } catch (NullPointerException e) { caught++; }
        System.out.println(caught);
        System.in.read();
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="needs java")
def test_java_handles_its_own_faults_and_aborts_on_others(wire: Wire, start: Start, tmp_path: Path) -> None:
    """It uses SIGSEGV for its null checks; after a foreign one it writes a report and calls abort()."""
    source = tmp_path / "Nulls.java"
    source.write_text(JAVA)
    command = ["java", "-Xmx64m", "-XX:ErrorFile=/dev/null", "-XX:+CreateCoredumpOnCrash"]
    # Its report is made by code that may wait for ever, when the signal comes at a bad moment.
    command += ["-XX:ErrorLogTimeout=5", str(source)]
    program = start(command, stderr=subprocess.DEVNULL, cwd=tmp_path)
    wire.attach(program.pid)
    assert program.ask() == "300"
    os.kill(program.pid, signal.SIGSEGV)
    assert wire.event("fatal")["name"] == "SIGABRT"
    assert wire.command("release")["died"]
    program.process.stdout.close()  # type: ignore[union-attr]
    assert program.process.wait(LIMIT) == -signal.SIGABRT
