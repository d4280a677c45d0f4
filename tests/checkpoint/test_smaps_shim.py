"""What CRIU is given instead of smaps says the same of each mapping. Read by a Python that is called as CRIU is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_first
from relive.model.commit import Trigger
from relive.store import Store

TOOLS = CriuTools(load_settings().tools_path)
MAPPINGS = Path(__file__).parent.parent / "programs" / "mappings.py"
USED = re.compile(r"[0-9a-f]+-[0-9a-f]+ |VmFlags: ")
READS = """
import os, sys
directory = os.open("/proc/" + sys.argv[1], os.O_RDONLY)
file = os.open("smaps", os.O_RDONLY, dir_fd=directory)
print(os.readlink(f"/proc/self/fd/{file}"))
while piece := os.read(file, 1 << 16):
    sys.stdout.write(piece.decode())
"""


def running(*words: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, MAPPINGS, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def pid() -> Iterator[int]:
    yield from running()


@pytest.fixture
def pid_of_more() -> Iterator[int]:
    yield from running("more")


@pytest.fixture
def pid_of_many() -> Iterator[int]:
    yield from running("many")


def read(pid: int, *, called: str = "criu") -> tuple[str, list[str]]:
    """What was opened, and the lines of it."""
    done = subprocess.run(
        [called, "-I", "-S", "-c", READS, str(pid)],
        executable=sys.executable,
        env={"LD_PRELOAD": str(TOOLS.smaps_shim)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    opened, *lines = done.stdout.splitlines()
    return opened, lines


def real(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/smaps").read_text().splitlines() if USED.match(line)]


def test_it_says_of_each_mapping_what_smaps_says_and_no_more(pid: int) -> None:
    opened, lines = read(pid)
    assert opened.startswith("/memfd:smaps")
    assert lines == real(pid)
    said = {flag for line in lines if line.startswith("VmFlags: ") for flag in line.split()[1:]}
    assert {"sh", "mw", "gd", "lo", "nr", "sr", "rr", "dc", "dd", "hg", "nh", "wf"} <= said


def test_it_says_so_of_more_mappings_than_the_kernel_lists_at_once(pid_of_many: int) -> None:
    """The kernel gave the last of them again and again, so CRIU held the process until it was given up."""
    opened, lines = read(pid_of_many)
    assert opened.startswith("/memfd:smaps")
    assert len(lines) > 6000
    assert lines == real(pid_of_many)


def test_a_process_with_a_flag_that_was_not_compared_is_read_as_ever(pid_of_more: int) -> None:
    opened, lines = read(pid_of_more)
    assert opened == f"/proc/{pid_of_more}/smaps"
    assert [line for line in lines if USED.match(line)] == real(pid_of_more)


def test_who_is_not_criu_reads_as_ever(pid: int) -> None:
    opened, _ = read(pid, called="nsenter")
    assert opened == f"/proc/{pid}/smaps"


def test_a_commit_has_the_mappings_that_criu_alone_would_have_written(pid: int, tmp_path: Path) -> None:
    """All that CRIU keeps of each: addresses, flags, advice, files."""
    assert mappings_of(pid, tmp_path, pre_copy=True) == mappings_of(pid, tmp_path, pre_copy=False)


def mappings_of(pid: int, home: Path, *, pre_copy: bool) -> list[pb.VmaEntry]:
    settings = load_settings(home=home, tools=TOOLS.directory, pre_copy=pre_copy)
    with closing(Store(settings.store)) as store, Watchdog(TOOLS.watchdog) as watchdog:
        taken = capture(
            process_target(pid), Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog
        )
    assert (taken.memory is not None) is pre_copy
    found = list(read_first(taken.staging.images / f"mm-{pid}.img", pb.MmEntry).vmas)
    taken.discard()
    return found
