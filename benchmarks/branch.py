"""How long a commit takes to live again in a branch, one and five at once; in pairs with CRIU alone.

    python benchmarks/branch.py [--rounds 9] [--json] [--program NAME]... [--many 5]

One side is ``relive.containers.restore.restoring.restore``: checked images, the service's files, sealed network, hidden doors of
/proc, the recorded clock. The other is the least that brings the same images to life without killing them at once:
``unshare -pfmn --mount-proc``, in it ``criu restore -d``, then an init that stays. The two take turns. The program runs without
Relive's recorder, whose ring is not in a commit: CRIU alone could not map it again.

``runs`` is the time until the restored program runs, by its own word (it prints when it notices that it has been away);
``returns`` the time until the call has come back. ``cli`` is the whole command ``relive restore``, from the start of
Python. Several at once are started by processes of their own and measured until the last of them runs, and has returned.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
    Program,
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
from relive.containers.restore import restoring
from relive.model.commit import CommitId, Manifest
from relive.sandbox import branch as branches
from relive.sandbox.rootfs import IO_DIRECTORY
from relive.store import Store

AIM = 1.5  # Relive's time to the bare one's
_LIMIT = 30.0  # [s]
# The kernel takes apart network namespaces in the background, and nobody can make one meanwhile.
_SETTLE = 0.3  # [s]


def _notified(_self: object, script: str, *_: object) -> str:
    return f"CRIU notifies: {script}"


# In the order in which they happen; a deeper row is part of the one above it. The caller and the builder are two threads.
PARTS: list[tuple[str, int, Part]] = [
    ("caller", 0, Part("relive.store.store:Store.manifest", "read and check the manifest")),
    ("caller", 0, Part("relive.containers.restore.restoring:make_host_root", "plan the root")),
    ("caller", 1, Part("relive.store.committed_files:CommittedFiles.lay_out_layer", "lay out the layers")),
    ("caller", 1, Part("relive.sandbox.host_root:plan_points", "plan the mounts")),
    ("caller", 1, Part("relive.sandbox.host_root:lay_changes", "lay later changes")),
    ("caller", 0, Part("relive.store.committed_images:CommittedImages.lay_out", "lay out the images")),
    ("caller", 1, Part("relive.store.objects:hash_file", "hash")),
    ("caller", 0, Part("relive.sandbox.fitted_images:FittedImages.lay_out", "lay out fitted images")),
    ("caller", 0, Part("relive.sandbox.restoring:fit_images", "fit the images")),
    ("caller", 1, Part("relive.sandbox.fitted_images:refuse_hostile_images", "validate the images")),
    ("caller", 1, Part("relive.sandbox.fitted_images:limit_rights", "edit capabilities")),
    ("caller", 1, Part("relive.sandbox.fitted_images:limit_calls", "edit filters")),
    ("caller", 0, Part("relive.sandbox.restoring:_planned", "plan the rest")),
    ("caller", 1, Part("relive.sandbox.fitted_images:read_image_facts", "read what stands around")),
    ("builder", 0, Part("relive.sandbox.builder:BranchBuilder._build", "build, all of it")),
    ("builder", 1, Part("relive.sandbox.builder:unshare", "namespaces")),
    ("builder", 1, Part("relive.sandbox.builder:make_private", "make mounts private")),
    ("builder", 1, Part("relive.sandbox.builder:FirstProcess", "start process 1")),
    ("builder", 1, Part("relive.kernel.loopback:bring_up", "bring loopback up")),
    ("builder", 1, Part("relive.sandbox.builder:check_sealed", "prove the seal")),
    ("groups", 0, Part("relive.sandbox.cgroups:Groups.add", "move into the groups")),
    ("builder", 1, Part("relive.sandbox.builder:BranchBuilder._start_criu", "start CRIU")),
    ("builder", 2, Part("relive.sandbox.init_process:FirstProcess.set_last_number", "process 1 answers")),
    ("builder", 1, Part("relive.sandbox.branch_root:HostRoot.mount", "mount the root")),
    ("builder", 2, Part("relive.sandbox.inode_numbers:mount_inodes", "inode numbers")),
    ("builder", 2, Part("relive.sandbox.rootfs:RootBuilder.cover", "overlays")),
    ("builder", 2, Part("relive.sandbox.branch_root:preserve_files", "keep files from now on")),
    ("builder", 2, Part("relive.sandbox.rootfs:RootBuilder.own_devices", "/dev, /sys")),
    ("builder", 2, Part("relive.sandbox.rootfs:RootBuilder.own_run", "/run")),
    ("builder", 2, Part("relive.sandbox.branch_root:copy_tree", "copy memory layers")),
    ("builder", 2, Part("relive.sandbox.rootfs:RootBuilder.share_standard_streams", "standard streams")),
    ("builder", 2, Part("relive.sandbox.rootfs:RootBuilder.hide_home", "hide the home")),
    ("builder", 2, Part("relive.sandbox.init_process:FirstProcess.mount_proc", "/proc")),
    ("builder", 1, Part("relive.sandbox.builder:_prepare_network", "addresses, peers")),
    ("builder", 1, Part("relive.sandbox.branch_root:HostRoot.enter", "pivot the root")),
    ("builder", 1, Part("relive.sandbox.init_process:FirstProcess.hold", "hand over descriptors")),
    ("builder", 1, Part("relive.sandbox.builder:_Restoring.run", "CRIU, all of it")),
    ("builder", 2, Part("relive.sandbox.branch_root:HostRoot.files_opened", "directory times")),
    ("builder", 2, Part("relive.sandbox.builder:prove_confined", "prove the confinement")),
    ("builder", 2, Part("relive.sandbox.builder:shift_wall_clock", "shift the clock")),
    ("builder", 2, Part("relive.sandbox.branch_root:close_proc", "close doors of /proc")),
    ("builder", 2, Part("relive.checkpoint.criu:_reap", "CRIU ends")),
    ("builder", 1, Part("relive.sandbox.init_process:FirstProcess.become", "process 1 becomes lasting")),
    ("caller", 0, Part("relive.sandbox.restoring:sweep", "sweep")),
    ("caller", 0, Part("relive.sandbox.restoring:open_databases", "databases")),
    ("caller", 0, Part("relive.sandbox.builder:BranchBuilder.finish", "wait for the builder")),
    ("caller", 0, Part("relive.sandbox.restoring:_host_pid", "find the root's pid")),
    ("caller", 0, Part("relive.sandbox.branch:Branch.save", "write the state")),
    ("caller", 0, Part("relive.containers.restore.restoring:restore", "restore, all of it")),
]


def _breakdown(rounds: list[list[Note]]) -> list[dict[str, Any]]:
    """Median milliseconds of each part; several calls in one restore are added up."""
    sums: list[dict[str, float]] = []
    for notes in rounds:
        one: dict[str, float] = {}
        for note in notes:
            one[note.label] = one.get(note.label, 0.0) + note.ms
        sums.append(one)
    rows = []
    order = [(who, depth, str(part.label)) for who, depth, part in PARTS]
    for who, depth, label in order:
        values = [one[label] for one in sums if label in one]
        if values:
            rows.append(
                {"part": "  " * depth + label, "by": who, "ms": median(values), "iqr": quartiles(values)}
            )
    return rows


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds from the start until the program ran, and until the restoring call was back."""

    runs: float
    returns: float


def _first_run(log: Path, since_ns: int) -> int:
    """The moment at which the restored program noticed that it had been away."""
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        if log.exists():
            for gap in gaps_after(log):
                if gap.ended_ns > since_ns:
                    return gap.ended_ns
        time.sleep(0.002)
    raise SystemExit(f"error: the restored program does not run: {log}")


class Worker:
    """A process that restores when told. Forked early: a child of one that has hashed large files would hang in the
    hasher, whose threads it does not have.
    """

    def __init__(self, place: Lab, commit: CommitId, stopwatch: Stopwatch | None = None) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self._ours.close()
                if stopwatch is not None:
                    stopwatch.watch([part for _, _, part in PARTS])
                self._serve(place, commit, theirs)
            except BaseException as error:
                print(f"a worker failed: {error!r}", file=sys.stderr)
            os._exit(0)
        theirs.close()

    @staticmethod
    def _serve(place: Lab, commit: CommitId, channel: socket.socket) -> None:
        store = place.store()
        while channel.recv(1):
            branch = restoring.restore(place.settings, store, commit)
            answer = {"id": branch.facts.id, "returned": time.time_ns()}
            channel.send(json.dumps(answer).encode())

    def begin(self) -> None:
        """Restore now."""
        self._ours.send(b"!")

    def answer(self) -> dict[str, Any]:
        """``id`` of the branch, and when it had returned."""
        data = self._ours.recv(4096)
        if not data:
            raise SystemExit("error: restore failed")
        found: dict[str, Any] = json.loads(data)
        return found

    def end(self) -> None:
        """End the process."""
        self._ours.close()
        os.waitpid(self._pid, 0)


class OwnSide:
    """Branches by Relive."""

    def __init__(self, place: Lab, commit: CommitId, many: int, stopwatch: Stopwatch) -> None:
        self._place, self._commit, self._stopwatch = place, commit, stopwatch
        # In the reverse order of use, so that none holds the line of an earlier one open.
        self._timed = Worker(place, commit, stopwatch)
        self._workers = [Worker(place, commit) for _ in range(many)]

    def close(self) -> None:
        """End the workers."""
        for worker in reversed([self._timed, *self._workers]):
            worker.end()

    def one(self) -> Times:
        """One branch, made and ended."""
        return self._run(self._workers[:1])

    def many(self) -> Times:
        """All workers at once; times of the last."""
        return self._run(self._workers)

    def timed(self) -> list[Note]:
        """One branch with its parts timed."""
        self._stopwatch.take()
        self._run([self._timed])
        return self._stopwatch.take()

    def _run(self, workers: list[Worker]) -> Times:
        time.sleep(_SETTLE)
        began = time.time_ns()
        for worker in workers:
            worker.begin()
        answers = [worker.answer() for worker in workers]
        made = [branches.find_branch(self._place.settings, answer["id"]) for answer in answers]
        try:
            runs = max(_first_run(branch.log("stdout"), began) for branch in made)
        finally:
            for branch in made:
                branch.stop()
        returned = max(int(answer["returned"]) for answer in answers)
        return Times((runs - began) / 1e6, (returned - began) / 1e6)

    def command(self) -> float:
        """Milliseconds of the command ``relive restore``."""
        program = "import sys; from relive.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "restore", "--json", self._commit]
        began = time.perf_counter()
        done = subprocess.run(command, check=True, env=self._place.environment(), capture_output=True)
        wall = (time.perf_counter() - began) * 1e3
        branches.find_branch(self._place.settings, json.loads(done.stdout)["id"]).stop()
        return wall


# What comes before "read" is preparation; standard input says when to start, standard output when CRIU is done.
_BARE = """
mount --make-rprivate / && mount --bind "$IO" "$PLACE" && read -r go || exit 1
exec unshare --pid --fork --mount --net --mount-proc --kill-child sh -c '
    echo 30000 > /proc/sys/kernel/ns_last_pid
    "$CRIU" restore -D "$IMAGES" -W "$WORK" -d -v2 -o criu.log \\
        --network-lock skip --manage-cgroups=ignore --tcp-established --ext-unix-sk --file-locks > /dev/null || exit 1
    echo done
    exec "$INIT" 1 0'
"""


Prepared = tuple[subprocess.Popen[bytes], Path, int, int]
"""The shell, its directory, where it is given the word, and where it says that CRIU is done."""


def _restore_prepared(one: Prepared) -> None:
    os.write(one[2], b"go\n")
    _await_done(one)


def _await_done(one: Prepared) -> None:
    process, work, _, done = one
    if os.read(done, 5) != b"done\n":
        process.wait()
        raise SystemExit(f"error: criu restore failed:\n{(work / 'criu.log').read_text()}")


class BareSide:
    """The same images by ``unshare`` and ``criu restore``, laid out once.

    Attributes:
        images: where they lie.
    """

    def __init__(self, place: Lab, store: Store, manifest: Manifest) -> None:
        self._place = place
        # Below the store, as page files are hard links.
        self.images = place.settings.home / "bare-images"
        self.images.mkdir()
        # Large files are hashed on all cores, and the agent of the next program is forked from this process: see Worker.
        child = os.fork()
        if child == 0:
            try:
                store.images.lay_out(manifest, self.images)
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitpid(child, 0)[1]:
            raise SystemExit("error: the images cannot be laid out")
        place_kerndat(place.settings.tools_path)
        IO_DIRECTORY.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Remove the images."""
        shutil.rmtree(self.images)

    def one(self) -> Times:
        """One."""
        return self.many(1)

    def many(self, count: int) -> Times:
        """Several at once; times of the last."""
        with contextlib.ExitStack() as stack:
            started = [stack.enter_context(self.prepared()) for _ in range(count)]
            time.sleep(_SETTLE)
            began = time.time_ns()
            for _, _, go, _ in started:
                os.write(go, b"go\n")
            returned = began
            for one in started:
                _await_done(one)
                returned = max(returned, time.time_ns())
            runs = max(_first_run(work / "io" / "stdout.log", began) for _, work, _, _ in started)
            return Times((runs - began) / 1e6, (returned - began) / 1e6)

    def at_a_time(self, count: int, jobs: int) -> float:
        """So many, never more than ``jobs`` at once; seconds until CRIU is done with the last. All live until then."""
        with contextlib.ExitStack() as stack:
            started = [stack.enter_context(self.prepared()) for _ in range(count)]
            time.sleep(_SETTLE)
            began = time.monotonic()
            with ThreadPoolExecutor(jobs) as threads:
                list(threads.map(_restore_prepared, started))
            return time.monotonic() - began

    @contextlib.contextmanager
    def prepared(self) -> Iterator[Prepared]:
        """All but what is measured: a shell that waits for the word."""
        work = self._place.fresh("bare")
        (work / "io").mkdir()
        for name in ("stdout.log", "stderr.log"):
            (work / "io" / name).touch()
        go, waiting = os.pipe()
        done, writing = os.pipe()
        places = {"IO": work / "io", "PLACE": IO_DIRECTORY, "IMAGES": self.images, "WORK": work}
        tools = {"CRIU": self._place.criu, "INIT": self._place.settings.tools_path / "relive-init"}
        environment = dict(os.environ) | {name: str(path) for name, path in (places | tools).items()}
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _BARE],
            env=environment,
            stdin=go,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(go)
        os.close(writing)
        try:
            yield process, work, waiting, done
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            os.close(waiting)
            os.close(done)


def measure(place: Lab, program: Program, rounds: int, many: int) -> dict[str, Any]:
    """All rounds of one program."""
    stopwatch = Stopwatch()
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(place.capsule(program))
        commit = CommitId(service.commit()["id"])
        own = OwnSide(place, commit, many, stopwatch)
        stack.callback(own.close)
        store = place.store()
        stack.callback(store.close)
        bare = BareSide(place, store, store.manifest(commit))
        stack.callback(bare.close)
        single = [(bare.one(), own.one()) for _ in range(rounds + 1)][1:]  # the first warms up
        together = [(bare.many(many), own.many()) for _ in range(max(1, rounds // 2) + 1)][1:]
        notes = [own.timed() for _ in range(rounds + 1)][1:]
        commands = [own.command() for _ in range(max(1, rounds // 3))]
    result: dict[str, Any] = {"program": program.name, "rounds": rounds}
    result["one"] = _compare(single)
    result["many"] = _compare(together) | {"count": many}
    result["relive_cli_ms"] = median(commands)
    result["parts"] = _breakdown(notes)
    return result


def _compare(pairs: list[tuple[Times, Times]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("runs", "returns"):
        bare = [getattr(pair[0], key) for pair in pairs]
        ours = [getattr(pair[1], key) for pair in pairs]
        found |= {f"bare_{key}_ms": median(bare), f"bare_{key}_iqr": quartiles(bare)}
        found |= {f"relive_{key}_ms": median(ours), f"relive_{key}_iqr": quartiles(ours)}
        found[f"{key}_ratio"] = median(b / a for a, b in zip(bare, ours, strict=True))
    return found


def show(result: dict[str, Any]) -> None:
    """The tables."""
    rows = []
    for one in result["programs"]:
        for count, case in ((1, one["one"]), (one["many"]["count"], one["many"])):
            row: dict[str, Any] = {"program": one["program"], "at once": count}
            for key in ("runs", "returns"):
                row |= {f"bare {key}": case[f"bare_{key}_ms"], f"relive {key}": case[f"relive_{key}_ms"]}
                row[f"{key} ratio"] = case[f"{key}_ratio"]
            row["cli"] = one["relive_cli_ms"] if count == 1 else float("nan")
            rows.append(row)
    print_table(
        f"Branches, ms, medians of {result['rounds']} pairs (load {result['load']}); aim: ratio {AIM}", rows
    )
    for one in result["programs"]:
        print_table(f"Where the time of a branch goes: {one['program']}", one["parts"])


def _program(place: Lab, megabytes: int | None) -> Program:
    """A plain one of that size; None: FastAPI under uvicorn."""
    return place.plain(megabytes) if megabytes is not None else place.web()


def main() -> None:
    """Measure and print."""
    names = {"python-12": 12, "python-100": 100, "fastapi": None}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 9)
    parser.add_argument("--program", action="append", choices=names, help="only this one (may be repeated)")
    parser.add_argument("--many", type=int, default=5, help="branches at once (default 5)")
    options = parser.parse_args()
    with lab(options) as place:
        chosen = options.program or list(names)
        programs = [dataclasses.replace(_program(place, names[name]), inside=False) for name in chosen]
        results = [measure(place, program, options.rounds, options.many) for program in programs]
    result = {"rounds": options.rounds, "load": load_average(), "programs": results}
    if options.json:
        print_json(result)
    else:
        show(result)


if __name__ == "__main__":
    main()
