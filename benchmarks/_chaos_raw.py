"""CRIU alone, killed at a random moment of its dump of a small process: ``chaos.py --raw``."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from _chaos_processes import thread_states, tracer_of, until
from _lab import free_port

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_cache import place_kerndat
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.kernel import procfs

_BUSY = """
import os, socket, sys, threading, time
def spin():
    while True:
        sum(range(200)); time.sleep(0)
def echo():
    while True:
        client, _ = listener.accept()
        while data := client.recv(64):
            client.send(data)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=spin, daemon=True).start()
threading.Thread(target=echo, daemon=True).start()
n = 0
while True:
    n += 1
    os.pwrite(1, n.to_bytes(8, "little"), 0)
"""


class RawVictim:
    """A small busy process of three threads with one idle TCP connection."""

    def __init__(self, progress: Path) -> None:
        self.progress = progress
        port = free_port()
        with progress.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BUSY, str(port)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        until(lambda: progress.stat().st_size, 10)
        self.connection = socket.create_connection(("127.0.0.1", port), 5)
        self.connection.settimeout(1)
        assert self.echoes()

    def dump(self, tools: CriuTools, images: Path) -> subprocess.Popen[bytes]:
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir()
        command = [str(tools.criu), "dump", "-t", str(self.process.pid), "-D", str(images), "--leave-running"]
        command += [
            "--network-lock",
            "skip",
            "--manage-cgroups=ignore",
            "--shell-job",
            "--tcp-established",
            "-v0",
        ]
        return subprocess.Popen(
            command,
            env=tools.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def harm(self) -> str | None:
        """What became of it, None for nothing."""
        before = self.progress.read_bytes()
        moved = until(
            lambda: self.process.poll() is not None or self.progress.read_bytes() != before, 2, 0.0005
        )
        # Its end may take a moment to be seen.
        if self.process.poll() is None and not self.echoes():
            until(lambda: self.process.poll() is not None, 0.5)
            if self.process.poll() is None:
                return "connection lost" if moved else f"stuck in {thread_states(self.process.pid)}"
        if self.process.poll() is not None:
            return f"died of {signal.Signals(-self.process.returncode).name}"
        blocked = [
            thread
            for thread in os.listdir(f"/proc/{self.process.pid}/task")
            if int((procfs.status_field(int(thread), "SigBlk") or "0"), 16)
        ]
        return "signals left blocked" if blocked else None

    def echoes(self) -> bool:
        with contextlib.suppress(OSError):
            self.connection.send(b"?")
            return self.connection.recv(1) == b"?"
        return False

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


def kill_raw(count: int, directory: Path, seed: int, *, mends: bool) -> Iterator[str]:
    """Kill CRIU at a uniformly random moment of its dump of a small process, and tell what happened how often.

    Args:
        mends: have the watchdog heal the connections afterwards, as it does after every commit that failed.
    """
    tools = CriuTools(load_settings().tools_path)
    place_kerndat(tools.directory)
    chance = random.Random(seed)
    held, harms = 0, Counter[str]()
    victim: RawVictim | None = None
    length = 0.0
    with Watchdog(tools.watchdog) as watchdog:
        for _ in range(count):
            if victim is None:
                victim = RawVictim(directory / "progress")
                began = time.monotonic()
                if victim.dump(tools, directory / "images").wait(30) != 0:
                    raise SystemExit("the process cannot be dumped at all")
                length = time.monotonic() - began
            criu = victim.dump(tools, directory / "images")
            time.sleep(chance.uniform(0, length * 1.1))
            held += tracer_of(victim.process.pid) == criu.pid
            criu.kill()
            criu.wait()
            if mends:
                watchdog.send_command(f"arm 10000 {criu.pid} {victim.process.pid}")
                watchdog.send_command("mend")
                watchdog.send_command("disarm")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(criu.pid, signal.SIGKILL)  # helpers with which it probes the kernel
            harm = victim.harm()
            if harm is not None:
                harms[harm] += 1
                victim.close()
                victim = None
    if victim is not None:
        victim.close()
    yield f"{count} kills, {held} of them seen to be while CRIU held the process"
    yield from (f"  {harm}: {number}" for harm, number in harms.most_common())
