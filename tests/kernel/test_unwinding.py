"""The calls of a stopped C program are found as its source has them, whatever it was compiled with."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.kernel import procfs, ptrace
from relive.kernel.return_addresses import callers_of
from relive.kernel.unwinding import Tables, return_addresses
from support.waiting import eventually

from .helpers import in_child, needs_root

SOURCE = """
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile int sum;
__attribute__((noinline)) int last(int n) { char text[64]; memset(text, n, 64); sum += text[3]; pause(); return sum; }
__attribute__((noinline)) int varied(int n) { char text[n + 10]; memset(text, n, n + 10); return last(n) + text[3]; }
__attribute__((noinline)) int one(int n) { return varied(n) + 2; }
__attribute__((noinline)) int other(int n) { return varied(n) + 3; }
static void *run(void *which) { sum = which ? one(5) : other(5); return NULL; }
int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc < 3)
		return run(argc > 1 ? argv : NULL) != NULL;
	pthread_create(&thread, NULL, run, argv);
	return pthread_join(thread, NULL);
}
"""


@pytest.fixture(scope="module", params=["-O0", "-O2", "-O2 -fomit-frame-pointer -no-pie"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("calls") / "calls.c"
    source.write_text(SOURCE)
    path = source.with_suffix("")
    subprocess.run(["gcc", *request.param.split(), "-pthread", "-o", path, source], check=True)
    return path


def calls_of(program: Path, *words: str) -> list[str]:
    """Names of the functions that are returned to, of the program's own."""
    process = subprocess.Popen([program, *words])
    try:
        tid = eventually(lambda: waits(process.pid, len(words) > 1), "it waits in the last call")
        registers = in_child(lambda: stopped_registers(tid))
        # It has gone back into its call by then, or is about to.
        found = eventually(lambda: callers_of(process.pid, tid, registers), "it waits again")
        return [name for name in (function_at(program, process.pid, one) for one in found) if name]
    finally:
        process.kill()
        process.wait()


def waits(pid: int, in_thread: bool) -> int | None:
    threads = procfs.threads_of(pid)
    tid = max(threads)
    if in_thread and len(threads) < 2:
        return None
    return tid if Path(f"/proc/{pid}/task/{tid}/syscall").read_text().startswith("34 ") else None  # pause


def stopped_registers(tid: int) -> tuple[int, ...]:
    ptrace.seize(tid, 0)
    ptrace.interrupt(tid)
    eventually(ptrace.peek, "it has stopped")
    return ptrace.kept_registers(tid)


def function_at(program: Path, pid: int, address: int) -> str | None:
    maps = [one for one in procfs.read_maps(pid) if one.path == str(program)]
    if not any(one.start <= address < one.end for one in maps):
        return None
    is_fixed = subprocess.run(["readelf", "-h", program], capture_output=True, text=True, check=True).stdout
    base = 0 if "EXEC" in is_fixed else maps[0].start
    words = ["addr2line", "-f", "-e", str(program), hex(address - 1 - base)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0]


@needs_root
@pytest.mark.parametrize(("words", "who"), [([], "other"), (["1"], "one")])
def test_who_called_whom(program: Path, words: list[str], who: str) -> None:
    assert calls_of(program, *words)[:4] in (["last", "varied", who, "run"], ["last", "varied", who, "main"])


@needs_root
def test_in_a_thread_what_made_it_is_left_out(program: Path) -> None:
    assert calls_of(program, "1", "2") == ["last", "varied", "one", "run"]


def test_without_tables_nothing_is_found() -> None:
    tables = Tables([], lambda _address, length: bytes(length))
    assert return_addresses(tables, lambda _address, length: bytes(length), 0x1000, 0x2000) == []


@pytest.fixture
def stopped() -> Iterator[int]:
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@needs_root
@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_tables_say_it_comes_to_an_end(stopped: int, seed: int) -> None:
    """GIVEN memory with flipped bytes in it, as a process can have where its tables were."""
    maps = list(procfs.read_maps(stopped))
    registers = procfs.registers_of(stopped, stopped)
    assert registers is not None
    memory = os.open(f"/proc/{stopped}/mem", os.O_RDONLY)

    def read(address: int, length: int) -> bytes:
        data = bytearray(os.pread(memory, length, address))
        if data and (address + seed) % 7 == 0:
            data[(address * 31 + seed) % len(data)] ^= 1 << seed % 8
        return bytes(data)

    try:
        assert len(return_addresses(Tables(maps, read), read, *registers)) <= 64
    finally:
        os.close(memory)
