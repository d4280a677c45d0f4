"""What the tracer of fatal signals costs the process it watches.

Each case runs the same program untraced and traced, in turns, in one run; medians and ratios are printed.

    python benchmarks/tracer.py [--json] [--rounds N] [--share 1]

Cases:
    busy       CPU-bound: seconds for a fixed piece of work
    requests   a server process and a client over a pipe: seconds for 20000 requests
    signals    1000 caught signals a second for a second: CPU seconds of the process and of the tracer
    threads    a thousand short threads: seconds
    attach, detach                 milliseconds by number of threads, as the agent feels them
    empty command                  the part of these that is the socket and two wake-ups
    PTRACE_DETACH                  without a command: the usual way, for comparison: each thread is
    interrupted, awaited and detached crash      from the faulting instruction to the event, by number of
    threads, milliseconds
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from relive.kernel import ptrace

BUSY, REQUESTS, SIGNALS = (
    400_000_000,
    20_000,
    1_000,
)  # turns of a loop, requests, signals that one measured piece of work is
PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile long sink;
static void caught(int number) { (void)number; sink++; }
static void *sleeper(void *unused) { for (;;) pause(); return unused; }
static void *brief(void *unused) { return unused; }
static void work(long n) { for (volatile long i = 0; i < n; i++) sink += i; }
int main(int argc, char **argv)
{
	/* Each line on stdin is an order, and is answered by one line. */
	char line[64];
	pthread_t thread;
	struct sigaction action = { .sa_handler = caught, .sa_flags = SA_RESTART };
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 1; i < (argc > 1 ? atoi(argv[1]) : 1); i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	puts("ready"), fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (!strcmp(line, "busy\n"))
			work(BUSY);
		else if (!strcmp(line, "request\n"))
			work(2000);
		else if (!strcmp(line, "threads\n"))
			for (int i = 0; i < 1000; i++)
				pthread_create(&thread, NULL, brief, NULL), pthread_join(thread, NULL);
		else if (!strcmp(line, "fault\n"))
			*(volatile int *)NULL = 1;
		puts("done"), fflush(stdout);
	}
}
"""


class Service:
    """The program above."""

    def __init__(self, path: str, threads: int = 1) -> None:
        command = [path, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.pid = self.process.pid
        assert self.stdout.read(6) == b"ready\n"

    def order(self, word: str) -> None:
        self.stdin.write(word.encode() + b"\n")
        assert self.stdout.read(5) == b"done\n"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Tracer:
    """A tracer over its bare protocol, so that no event loop is measured along."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "relive.signals.tracer", "--socket", str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
        self.pid = self.process.pid
        self.lines = self.socket.makefile("rb")
        self.command("detach")  # it has started

    def command(self, op: str, **fields: object) -> dict[str, Any]:
        self.socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
        return self.read("attached", "detached", "released", "error")

    def read(self, *wanted: str) -> dict[str, Any]:
        """The next message of that kind; what is told of earlier services that have ended is no answer."""
        while True:
            message: dict[str, Any] = json.loads(self.lines.readline())
            if message["op"] in wanted:
                return message

    def end(self) -> None:
        self.lines.close()
        self.socket.close()
        self.process.wait()


Thing = TypeVar("Thing", Service, Tracer)


@contextmanager
def ended(thing: Thing) -> Iterator[Thing]:
    try:
        yield thing
    finally:
        thing.end()


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads, living and ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_turns(path: str, rounds: int, action: Callable[[Service], None]) -> tuple[list[float], list[float]]:
    """Seconds of the action untraced and traced, one process for both, alternating."""
    plain, traced = [], []
    with ended(Service(path)) as service, ended(Tracer()) as tracer:
        action(service)
        for number in range(rounds):
            # Who goes first changes, so that a machine that grows slower favours neither.
            if number % 2:
                plain.append(seconds(lambda: action(service)))
            tracer.command("attach", root=service.pid)
            traced.append(seconds(lambda: action(service)))
            tracer.command("detach")
            if not number % 2:
                plain.append(seconds(lambda: action(service)))
    return plain, traced


def serve(service: Service, requests: int) -> None:
    for _ in range(requests):
        service.order("request")


def send_signals(service: Service, count: int) -> None:
    """A thousand signals a second."""
    start = time.perf_counter()
    for number in range(count):
        while time.perf_counter() < start + number / 1000:
            time.sleep(0.0002)
        os.kill(service.pid, signal.SIGUSR1)


def measure_signals(path: str, rounds: int, count: int) -> dict[str, Any]:
    """CPU of the signalled process while it works on requests, and of the tracer."""
    plain, traced, tracers = [], [], []
    with ended(Service(path)) as service, ended(Tracer()) as tracer:
        for _ in range(rounds):
            before = cpu_seconds(service.pid)
            send_signals(service, count)
            plain.append(cpu_seconds(service.pid) - before)
            tracer.command("attach", root=service.pid)
            before, own = cpu_seconds(service.pid), cpu_seconds(tracer.pid)
            send_signals(service, count)
            traced.append(cpu_seconds(service.pid) - before)
            tracers.append(cpu_seconds(tracer.pid) - own)
            tracer.command("detach")
    return {
        "untraced_cpu_s": statistics.median(plain),
        "traced_cpu_s": statistics.median(traced),
        "tracer_cpu_s": statistics.median(tracers),
    }


def busy_under_signals(service: Service) -> None:
    """The busy work while a thousand signals a second come in."""
    service.stdin.write(b"busy\n")
    os.set_blocking(service.stdout.fileno(), False)
    try:
        while not service.stdout.read(5):
            os.kill(service.pid, signal.SIGUSR1)
            time.sleep(0.001)
    finally:
        os.set_blocking(service.stdout.fileno(), True)


def measure_attach(path: str, rounds: int, threads: int) -> dict[str, Any]:
    attach, detach, classic, crash = [], [], [], []
    with ended(Tracer()) as tracer:
        with ended(Service(path, threads)) as service:
            for _ in range(rounds * 5):
                attach.append(seconds(lambda: check(tracer.command("attach", root=service.pid), threads)))
                detach.append(seconds(lambda: check(tracer.command("detach"))))
                classic.append(detach_one_by_one(service.pid))
        empty = [seconds(lambda: check(tracer.command("detach"))) for _ in range(rounds * 5)]
        for _ in range(rounds):
            with ended(Service(path, threads)) as service:
                tracer.command("attach", root=service.pid)
                start = time.perf_counter()
                service.stdin.write(b"fault\n")
                tracer.read("fatal")
                crash.append(time.perf_counter() - start)
                tracer.command("release")
    return {
        "threads": threads,
        "empty_command_ms": 1e3 * statistics.median(empty),
        "attach_ms": 1e3 * statistics.median(attach),
        "detach_ms": 1e3 * statistics.median(detach),
        "ptrace_detach_ms": 1e3 * statistics.median(classic),
        "crash_ms": 1e3 * statistics.median(crash),
    }


def check(reply: dict[str, Any], tasks: int | None = None) -> None:
    assert reply["op"] in ("attached", "detached"), reply
    assert tasks is None or reply["tasks"] == tasks, reply


def detach_one_by_one(pid: int) -> float:
    """Seconds of the usual way to let go: PTRACE_INTERRUPT, waitpid and PTRACE_DETACH for each thread."""
    tids = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    for tid in tids:
        ptrace.seize(tid)
    start = time.perf_counter()
    for tid in tids:
        ptrace.interrupt(tid)
    for tid in tids:
        os.waitpid(tid, 0x40000000)
        ptrace.detach(tid)
    return time.perf_counter() - start


def pair(plain: list[float], traced: list[float]) -> dict[str, Any]:
    return {
        "untraced_s": statistics.median(plain),
        "traced_s": statistics.median(traced),
        "ratio": statistics.median(b / a for a, b in zip(plain, traced, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="pairs of each case (default 9)")
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="of the usual work: less shows that this runs, and measures nothing",
    )
    options = parser.parse_args()
    rounds = options.rounds
    busy, requests, signals = (round(options.share * usual) for usual in (BUSY, REQUESTS, SIGNALS))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/service"
        subprocess.run(
            ["cc", "-O1", "-pthread", "-w", f"-DBUSY={busy}L", "-x", "c", "-", "-o", path],
            input=PROGRAM.encode(),
            check=True,
        )
        result: dict[str, Any] = {
            "rounds": rounds,
            "busy": pair(*in_turns(path, rounds, lambda service: service.order("busy"))),
            "requests": pair(*in_turns(path, rounds, lambda service: serve(service, requests))),
            "busy_under_signals": pair(*in_turns(path, rounds, busy_under_signals)),
            "signals": measure_signals(path, max(1, rounds // 3), signals),
            "threads": pair(*in_turns(path, rounds, lambda service: service.order("threads"))),
            "attach": [measure_attach(path, rounds, threads) for threads in (1, 8, 64)],
        }
    if options.json:
        print(json.dumps(result))
        return
    for name in ("busy", "requests", "busy_under_signals", "threads"):
        row = result[name]
        print(
            f"{name:20} {row['untraced_s']:8.4f} s  traced {row['traced_s']:8.4f} s  ratio {row['ratio']:.3f}"
        )
    row = result["signals"]
    print(
        f"{'1000 signals/s':20} {row['untraced_cpu_s']:8.3f} s CPU, traced {row['traced_cpu_s']:.3f} s,"
        f" tracer {row['tracer_cpu_s']:.3f} s"
    )
    for row in result["attach"]:
        print(
            f"{row['threads']:3} threads          attach {row['attach_ms']:.2f} ms  detach {row['detach_ms']:.2f} ms"
            f"  (empty command {row['empty_command_ms']:.2f} ms; PTRACE_DETACH {row['ptrace_detach_ms']:.2f} ms)"
            f"  crash to event {row['crash_ms']:.2f} ms"
        )


if __name__ == "__main__":
    main()
