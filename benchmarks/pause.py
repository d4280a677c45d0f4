"""How long a service stands still for a commit, and until the commit is durable; in pairs with CRIU alone.

    python benchmarks/pause.py [--rounds 15] [--json] [--program NAME]... [--spinning N] [--no-recorder]
    RELIVE_PRE_COPY=1 python benchmarks/pause.py ...     # with memory copied ahead on Relive's side, however small it is

The same program runs twice: in a capsule, committed by its agent (overlay files copied in the pause, recording gate,
failure watch), and bare, dumped by ``criu dump --leave-running --network-lock skip`` with its kernel cache in place.
The two take turns. ``frozen`` is what CRIU's own statistics say; ``gap`` is what the program itself saw, as the longest
time between two naps of 0.2 ms; ``gate``, for a recorded service, how long no request byte moved. ``wall`` is the whole of
``criu dump``, and for Relive what the agent needs until the commit is durable.

Programs: ``python-12``, ``python-100`` and, where they are named, ``python-500`` and ``python-5000`` (megabytes, idle but for the
naps),
``fastapi`` (uvicorn, a client on four
connections asks 200 times a second; through the recording proxy on Relive's side).

``--spinning 2`` keeps two cores busy meanwhile, with two processes that never wait. On Relive's side the Python programs have the
recorder in them, so CRIU has more to dump; ``--no-recorder`` leaves it out, and the two sides are alike.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
    Program,
    Service,
    add_options,
    gaps_after,
    lab,
    load_average,
    median,
    print_json,
    print_table,
    quartiles,
)
from _stopwatch import Note, Part, Stopwatch

from relive.checkpoint.kernel_cache import place_kerndat
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries

AIM = 1.15  # Relive's pause to CRIU's own

BEFORE, PAUSE, AFTER, STORE = "before", "pause", "after", "storing"
_NOTIFIED = "CRIU notifies: "


# In the order in which they happen; a deeper row is part of the one above it.
PARTS: list[tuple[str, int, Part]] = [
    (BEFORE, 0, Part("relive.signals.client:TracerClient.detach", "tracer steps aside")),
    (BEFORE, 0, Part("relive.checkpoint.dump:check_dumpable", "check the target")),
    (BEFORE, 0, Part("relive.store.store:Store.stage", "make the staging directory")),
    (BEFORE, 0, Part("relive.checkpoint.target_files:TargetFiles.copy_ahead", "copy files, running")),
    (BEFORE, 0, Part("relive.checkpoint.copied_ahead:CopiedAhead.wait", "copy memory, running")),
    (BEFORE, 0, Part("relive.checkpoint.watchdog:Watchdog.send_command", "watchdog: arm, name CRIU, disarm")),
    (BEFORE, 0, Part("relive.checkpoint.criu:place_kerndat", "look after the kernel cache")),
    (BEFORE, 0, Part("relive.checkpoint.criu:_spawn", "start nsenter and CRIU")),
    (PAUSE, 0, Part("relive.checkpoint.dump:_Dump._notified", lambda _self, script, *_: _NOTIFIED + script)),
    (PAUSE, 1, Part("relive.agent.control.proxy_client:ProxyGate.close", "close the gate")),
    (PAUSE, 1, Part("relive.checkpoint.target_files:TargetFiles.look_frozen", "copy files, frozen")),
    (
        PAUSE,
        1,
        Part("relive.checkpoint.target_files:shared_writable_paths", "look for shared mappings (twice)"),
    ),
    (PAUSE, 1, Part("relive.checkpoint.file_layers:LayerScanner.scan", "scan and copy layers (twice)")),
    (AFTER, 0, Part("relive.checkpoint.criu:_reap", "CRIU ends")),
    (AFTER, 0, Part("relive.agent.control.proxy_client:ProxyGate.open", "open the gate")),
    (AFTER, 0, Part("relive.checkpoint.criu:CriuProcess.ask", "CRIU, all of it")),
    (AFTER, 0, Part("relive.signals.client:TracerClient.attach", "tracer comes back")),
    (STORE, 0, Part("relive.checkpoint.dumped:Capture._manifest", "images, files, manifest")),
    (STORE, 1, Part("relive.checkpoint.dumped:read_files", "parse files.img")),
    (STORE, 1, Part("relive.checkpoint.dumped:read_processes", "parse core images")),
    (STORE, 1, Part("relive.store.store:Store.ingest_images", "take images in")),
    (STORE, 1, Part("relive.store.store:Store.ingest_file", "take files in")),
    (STORE, 2, Part("relive.store.objects:hash_file", "hash")),
    (STORE, 2, Part("os:fsync", "fsync")),
    (STORE, 0, Part("relive.store.store:Store.add", "write manifest and index")),
    (STORE, 0, Part("relive.store.store:Staging.discard", "remove the staging directory")),
    (STORE, 0, Part("relive.checkpoint.dumped:Capture.store", "storing, all of it")),
]
_FROM_NOTES = "CRIU: start to first notification", "CRIU: freeze and dump", "CRIU: resume"


def _breakdown(rounds: list[list[Note]]) -> list[dict[str, Any]]:
    """Median milliseconds of each part over the commits; several calls of one commit are added up."""
    sums: list[dict[str, float]] = []
    for notes in rounds:
        one: dict[str, float] = {}
        for note in [*notes, *_between(notes)]:
            one[note.label] = one.get(note.label, 0.0) + note.ms
        sums.append(one)
    rows = []
    for when, depth, label in _order():
        values = [one[label] for one in sums if label in one]
        if values:
            rows.append(
                {"part": "  " * depth + label, "when": when, "ms": median(values), "iqr": quartiles(values)}
            )
    return rows


def _between(notes: list[Note]) -> list[Note]:
    """CRIU's own phases, from the times at which it was started and notified."""
    found = {note.label: note for note in notes}
    steps = [
        (_FROM_NOTES[0], "start nsenter and CRIU", _NOTIFIED + "pre-dump"),
        (_FROM_NOTES[1], _NOTIFIED + "pre-dump", _NOTIFIED + "post-dump"),
    ]
    made = [
        Note(label, found[first].ended, found[second].began)
        for label, first, second in steps
        if first in found and second in found
    ]
    last, reaped = found.get(_NOTIFIED + "post-dump"), found.get("CRIU ends")
    if last is not None and reaped is not None:
        made.append(Note(_FROM_NOTES[2], last.ended, reaped.began))
    return made


def _order() -> Iterator[tuple[str, int, str]]:
    for when, depth, part in PARTS:
        if isinstance(part.label, str):
            yield when, depth, part.label
            if part.label == "start nsenter and CRIU":
                yield when, 0, _FROM_NOTES[0]
        else:
            yield when, depth, _NOTIFIED + "pre-dump"
            yield when, depth, _FROM_NOTES[1]
            yield when, depth, _NOTIFIED + "post-dump"
            yield AFTER, depth, _FROM_NOTES[2]


def dump(place: Lab, service: Service) -> dict[str, float]:
    """One ``criu dump`` of a bare service."""
    images = place.fresh("dump")
    offset = service.output.stat().st_size
    command = [str(place.criu), "dump", "-t", str(service.pid), "-D", str(images), "--leave-running"]
    command += ["--network-lock", "skip", "--manage-cgroups=ignore", "--tcp-established", "--ext-unix-sk"]
    command += ["--file-locks", "-v2", "-o", "criu.log"]
    began = time.perf_counter()
    process = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"error: criu dump failed:\n{(images / 'criu.log').read_text()}")
    stats = read_entries(images / "stats-dump", pb.StatsEntry)[0].dump
    for path in images.iterdir():
        path.unlink()
    gap = _largest_gap(service.output, offset)
    return {"frozen": stats.frozen_time / 1e3, "gap": gap, "wall": wall * 1e3}


def _largest_gap(output: Path, offset: int) -> float:
    time.sleep(0.02)  # it has woken up and said so
    return max((gap.ms for gap in gaps_after(output, offset)), default=0.0)


def commit(service: Service, stopwatch: Stopwatch) -> tuple[dict[str, float], list[Note]]:
    """One commit by the agent."""
    stopwatch.take()
    offset = service.output.stat().st_size
    began = time.perf_counter()
    stored = service.commit()
    wall = time.perf_counter() - began
    gap = _largest_gap(service.output, offset)
    notes = stopwatch.take()
    found = {
        "frozen": stored["pause_us"] / 1e3,
        "gap": gap,
        "wall": wall * 1e3,
        "durable": stored["durable_us"] / 1e3,
    }
    closed = [note.began for note in notes if note.label == "close the gate"]
    opened = [note.ended for note in notes if note.label == "open the gate"]
    if service.port is not None and closed and opened:
        found["gate"] = (opened[0] - closed[0]) / 1e6
    return found, notes


def measure(
    place: Lab, program: Program, rounds: int, *, recorder: bool = True, beside: int = 0
) -> dict[str, Any]:
    """All rounds of one program; ``beside`` so many processes that never wait."""
    stopwatch = Stopwatch()
    bare_results, capsule_results, notes = [], [], []
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(place.bare(program))
        # The second one would find the port taken.
        twin = place.web() if program.port is not None else program
        twin = dataclasses.replace(twin, inside=recorder)
        capsule = stack.enter_context(place.capsule(twin, stopwatch, [part for _, _, part in PARTS]))
        stack.enter_context(
            traffic([service.port for service in (bare, capsule) if service.port is not None])
        )
        stack.enter_context(spinning(beside))
        for turn in range(rounds + 1):
            raw = dump(place, bare)
            ours, parts = commit(capsule, stopwatch)
            if turn:  # the first of each warms up, and copies all files
                bare_results.append(raw)
                capsule_results.append(ours)
                notes.append(parts)
        cli = [_command_line(place, capsule) for _ in range(max(1, rounds // 3))]
    return _summary(program, bare_results, capsule_results, notes, cli)


def _command_line(place: Lab, service: Service) -> float:
    """Milliseconds of ``relive commit NAME``, from the start of Python to its end."""
    assert service.capsule is not None
    program = (
        "import sys; from relive.cli import main; sys.argv[1:] = ['commit', sys.argv[1]]; sys.exit(main())"
    )
    command = [sys.executable, "-c", program, service.capsule.facts.spec.name]
    began = time.perf_counter()
    subprocess.run(command, check=True, env=place.environment(), capture_output=True)
    return (time.perf_counter() - began) * 1e3


def _summary(
    program: Program,
    bare: list[dict[str, float]],
    ours: list[dict[str, float]],
    notes: list[list[Note]],
    cli: list[float],
) -> dict[str, Any]:
    def column(results: list[dict[str, float]], key: str) -> list[float]:
        return [result[key] for result in results if key in result]

    frozen = column(bare, "frozen")
    result: dict[str, Any] = {"program": program.name, "rounds": len(bare)}
    for key in ("frozen", "gap", "wall"):
        result[f"criu_{key}_ms"] = median(column(bare, key))
        result[f"criu_{key}_iqr"] = quartiles(column(bare, key))
    for key in ("frozen", "gap", "gate", "wall", "durable"):
        result[f"relive_{key}_ms"] = median(column(ours, key))
        result[f"relive_{key}_iqr"] = quartiles(column(ours, key))
    result["relive_cli_ms"] = median(cli)
    for key in ("frozen", "gap"):
        pairs = zip(column(ours, key), column(bare, key), strict=True)
        result[f"{key}_ratio"] = median(a / b for a, b in pairs if b)
    result["gap_to_criu_frozen"] = median(a / b for a, b in zip(column(ours, "gap"), frozen, strict=True))
    result["parts"] = _breakdown(notes)
    return result


_CLIENT = """
import http.client, sys, threading, time
def ask(port):
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            while True:
                connection.request("GET", "/")
                connection.getresponse().read()
                time.sleep(0.02)
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
for port in sys.argv[1:]:
    for _ in range(4):
        threading.Thread(target=ask, args=(int(port),), daemon=True).start()
print("ready", flush=True)
time.sleep(3600)
"""


@contextlib.contextmanager
def traffic(ports: list[int]) -> Iterator[None]:
    """A client in a process of its own, on four kept connections to each port."""
    if not ports:
        yield
        return
    for port in ports:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        connection.getresponse().read()
        connection.close()
    process = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, *map(str, ports)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.3)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def spinning(number: int) -> Iterator[None]:
    """So many processes that never wait, each a session of its own; they end by themselves when this process does not end them."""
    program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    processes = [
        subprocess.Popen([sys.executable, "-c", program], start_new_session=True) for _ in range(number)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def show(result: dict[str, Any]) -> None:
    """The tables."""
    rows = []
    for one in result["programs"]:
        for side in ("criu", "relive"):
            row = {"program": one["program"], "side": side}
            for key in ("frozen", "gap", "gate", "wall", "durable"):
                row[key] = one.get(f"{side}_{key}_ms", float("nan"))
            row["frozen ratio"] = one["frozen_ratio"] if side == "relive" else float("nan")
            row["gap ratio"] = one["gap_ratio"] if side == "relive" else float("nan")
            row["gap/criu frozen"] = one["gap_to_criu_frozen"] if side == "relive" else float("nan")
            row["cli"] = one["relive_cli_ms"] if side == "relive" else float("nan")
            rows.append(row)
    print_table(
        f"Pause, ms, medians of {result['rounds']} pairs (load {result['load']}); aim: ratio {AIM}", rows
    )
    for one in result["programs"]:
        print_table(f"Where the time of a commit goes: {one['program']}", one["parts"])


def main() -> None:
    """Measure and print."""
    names = ["python-12", "python-100", "fastapi"]
    named = ["python-500", "python-5000"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 15)
    parser.add_argument(
        "--program", action="append", choices=names + named, help="only this one (may be repeated)"
    )
    parser.add_argument(
        "--spinning", type=int, default=0, metavar="N", help="so many processes that never wait"
    )
    parser.add_argument(
        "--no-recorder", dest="recorder", action="store_false", help="Python programs without the recorder"
    )
    options = parser.parse_args()
    with lab(options) as place:
        place_kerndat(place.settings.tools_path)
        makers = {
            "python-12": lambda: place.plain(12),
            "python-100": lambda: place.plain(100),
            "python-500": lambda: place.plain(500),
            "python-5000": lambda: place.plain(5000),
            "fastapi": place.web,
        }
        results = [
            measure(
                place,
                makers[name](),
                options.rounds,
                recorder=options.recorder,
                beside=options.spinning,
            )
            for name in options.program or names
        ]
    result = {"rounds": options.rounds, "load": load_average(), "programs": results}
    if options.json:
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
