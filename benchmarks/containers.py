"""Relive beside ``podman container checkpoint`` and ``restore``: the same program, in turns, in one run.

    python benchmarks/containers.py [--rounds 7] [--megabytes 12] [--json]

A Python process of the given size runs in a capsule and in a container (runc, cgroupfs, ``--network none``; the image is
this machine's Python and what it links to, the store a directory of its own). Both are committed with the program running
on: ``frozen`` is CRIU's own figure, ``gap`` what the program saw, ``wall`` the command from start to end, ``bytes`` what a
commit takes on disk. Podman is measured with and without ``--export``; only an exported checkpoint can be restored while
the original runs. After ``restore``, ``runs`` is the time until the restored program runs. For Relive, ``commit`` and
``restore`` are the commands as typed, with Python's start, and ``in process`` is the same without that, as the agent and a
replay do it; podman has only the command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _lab import (
    Lab,
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

from relive.model.commit import CommitId
from relive.sandbox.branch import find_branch, restore

_LIMIT = 30.0  # [s]
_SETTLE = 0.3  # [s] the kernel takes namespaces apart in the background
_IMAGE = "relive-benchmark"
_ULIMIT_MOST = {"nofile": 1 << 20, "nproc": 1 << 15}  # what podman lowers its own limits to
_RELIVE = "import sys; from relive.cli import main; sys.exit(main())"


class Podman:
    """Podman with a store, a configuration and a CRIU of its own."""

    def __init__(self, place: Lab) -> None:
        self._place = place
        self.directory = place.fresh("podman")
        self._graph = self.directory / "graph"
        limits = [
            f'"{name}={most}:{most}"'
            for name, most in (
                ("nofile", _hard_limit(resource.RLIMIT_NOFILE, _ULIMIT_MOST["nofile"])),
                ("nproc", _hard_limit(resource.RLIMIT_NPROC, _ULIMIT_MOST["nproc"])),
            )
        ]
        # Without CAP_SYS_RESOURCE no limit can be raised, not even to the default that podman would set.
        (self.directory / "containers.conf").write_text(
            f"[containers]\ndefault_ulimits = [{', '.join(limits)}]\n"
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        (self.directory / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self._graph}"\nrunroot = "{self.directory}/run"\n'
        )
        self._environment = dict(
            os.environ,
            CONTAINERS_CONF=str(self.directory / "containers.conf"),
            CONTAINERS_STORAGE_CONF=str(self.directory / "storage.conf"),
            PATH=f"{place.settings.tools_path}:{os.environ['PATH']}",
            TMPDIR=str(self.directory),
        )

    def __call__(self, *arguments: str) -> str:
        """Run a command of podman, return its output; ends the benchmark with podman's own words if it fails."""
        done = subprocess.run(
            ["podman", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )
        if done.returncode:
            raise SystemExit(f"error: podman {' '.join(arguments[:2])}: {done.stderr.strip()}")
        return done.stdout

    def make_image(self) -> None:
        """An image with this Python and the program."""
        root = self.directory / "rootfs"
        interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        library = Path(sysconfig.get_path("stdlib"))
        for name in ("proc", "sys", "dev", "tmp", "etc", "run"):
            (root / name).mkdir(parents=True, exist_ok=True)
        unwanted = shutil.ignore_patterns(
            "test", "idlelib", "ensurepip", "lib2to3", "__pycache__", "site-packages"
        )
        shutil.copytree(library, root / str(library).lstrip("/"), ignore=unwanted, symlinks=True)
        binaries = [interpreter, self._place.library, *(library / "lib-dynload").glob("*.so")]
        needed = {path for binary in binaries for path in _linked(binary)} | {
            interpreter,
            self._place.library,
        }
        for path in needed | {self._place.directory / "plain.py"}:
            goal = root / str(path).lstrip("/")
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, goal)
        archive = self.directory / "rootfs.tar"
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        self("import", str(archive), _IMAGE)
        archive.unlink()

    def log(self, container: str) -> Path:
        """The file with a container's output."""
        return Path(self("inspect", "--format", "{{.HostConfig.LogConfig.Path}}", container).strip())

    def close(self) -> None:
        """Remove containers, images and mounts of this store."""
        with contextlib.suppress(SystemExit):
            self("rm", "--all", "--force", "--time", "0")
        with contextlib.suppress(SystemExit):
            self("rmi", "--all", "--force")
        for point in (self._graph / "overlay", self._graph):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _hard_limit(kind: int, most: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(hard, most)


def _linked(binary: Path) -> list[Path]:
    text = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+)", text) if Path(path).exists()]


@contextlib.contextmanager
def container(place: Lab, megabytes: int) -> Iterator[tuple[Podman, str]]:
    """The program in a container that runs."""
    podman = Podman(place)
    try:
        podman.make_image()
        interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        program = place.plain(megabytes).command[1:]
        name = "original"
        podman("run", "-d", "--name", name, "--network", "none", _IMAGE, str(interpreter), *program)
        time.sleep(1)  # it has its memory
        yield podman, name
    finally:
        podman.close()


def _gap(log: Path, offset: int) -> float:
    time.sleep(0.05)
    return max((gap.ms for gap in gaps_after(log, offset)), default=0.0)


def _runs(log: Path, since_ns: int) -> float:
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        found = [gap.ended_ns for gap in (gaps_after(log) if log.exists() else []) if gap.ended_ns > since_ns]
        if found:
            return (found[0] - since_ns) / 1e6
        time.sleep(0.002)
    raise SystemExit(f"error: the restored program does not run: {log}")


def _bytes_below(directory: Path) -> int:
    return sum(
        path.stat().st_blocks * 512
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def checkpoint(podman: Podman, name: str, log: Path, archive: Path | None) -> dict[str, float]:
    """One ``podman container checkpoint --leave-running``."""
    offset = log.stat().st_size
    arguments = ["container", "checkpoint", "--leave-running", "--print-stats"]
    if archive is not None:
        arguments += ["--export", str(archive), "--compress", "none"]
    began = time.perf_counter()
    text = podman(*arguments, name)
    wall = (time.perf_counter() - began) * 1e3
    frozen = re.search(r'"frozen_time": (\d+)', text)
    images = log.parent / "checkpoint"
    size = archive.stat().st_size if archive is not None else _bytes_below(images)
    return {
        "frozen": int(frozen[1]) / 1e3 if frozen else float("nan"),
        "gap": _gap(log, offset),
        "wall": wall,
        "bytes": float(size),
    }


def revive(podman: Podman, archive: Path, name: str) -> dict[str, float]:
    """One ``podman container restore --import``."""
    began_ns = time.time_ns()
    podman("container", "restore", "--import", str(archive), "--name", name)
    wall = (time.time_ns() - began_ns) / 1e6
    try:
        return {"wall": wall, "runs": _runs(podman.log(name), began_ns)}
    finally:
        podman("rm", "--force", "--time", "0", name)
        time.sleep(_SETTLE)


def commit(place: Lab, service: Service, *, command: bool) -> tuple[dict[str, float], CommitId]:
    """One commit, by the agent alone or by the command."""
    assert service.capsule is not None
    offset = service.output.stat().st_size
    before = _bytes_below(place.settings.store)
    began = time.perf_counter()
    name = service.capsule.facts.spec.name
    answer = json.loads(_relive(place, "commit", "--json", name)) if command else service.commit()
    wall = (time.perf_counter() - began) * 1e3
    found = {"frozen": answer["pause_us"] / 1e3, "gap": _gap(service.output, offset), "wall": wall}
    found["bytes"] = float(_bytes_below(place.settings.store) - before)
    return found, CommitId(answer["id"])


def branch(place: Lab, commit_id: CommitId, *, command: bool) -> dict[str, float]:
    """One branch, in this process or by the command."""
    began_ns = time.time_ns()
    if command:
        answer = json.loads(_relive(place, "restore", "--json", commit_id))
        made = find_branch(place.settings, answer["id"])
    else:
        store = place.store()
        made = restore(place.settings, store, commit_id)
        store.close()
    wall = (time.time_ns() - began_ns) / 1e6
    try:
        return {"wall": wall, "runs": _runs(made.log("stdout"), began_ns)}
    finally:
        made.stop()
        time.sleep(_SETTLE)


def _relive(place: Lab, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _RELIVE, *arguments],
        env=place.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def measure(place: Lab, rounds: int, megabytes: int) -> dict[str, Any]:
    """All rounds; in each, every way of committing and of restoring has its turn."""
    found: dict[str, list[dict[str, float]]] = {}

    def note(turn: int, case: str, values: dict[str, float]) -> None:
        if turn:  # the first warms up
            found.setdefault(case, []).append(values)

    with place.capsule(place.plain(megabytes)) as service, container(place, megabytes) as (podman, name):
        log = podman.log(name)
        archive = podman.directory / "checkpoint.tar"
        for turn in range(rounds + 1):
            note(turn, "commit: podman checkpoint", checkpoint(podman, name, log, None))
            note(turn, "commit: podman checkpoint --export", checkpoint(podman, name, log, archive))
            note(turn, "commit: relive commit", commit(place, service, command=True)[0])
            values, commit_id = commit(place, service, command=False)
            note(turn, "commit: relive, in process", values)
            note(turn, "restore: podman restore --import", revive(podman, archive, f"copy-{turn}"))
            note(turn, "restore: relive restore", branch(place, commit_id, command=True))
            note(turn, "restore: relive, in process", branch(place, commit_id, command=False))
            archive.unlink()
    rows = []
    for case, results in found.items():
        row: dict[str, Any] = {"case": case}
        for key in ("frozen", "gap", "wall", "runs", "bytes"):
            values_of = [result[key] for result in results if key in result]
            row[key] = median(values_of)
            row[f"{key}_iqr"] = quartiles(values_of)
        rows.append(row)
    return {"megabytes": megabytes, "rounds": rounds, "rows": rows, "ratios": _ratios(found)}


def _ratios(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Podman's median to Relive's: commands to commands, the pause to the pause."""

    def middle(case: str, key: str) -> float:
        return median(result[key] for result in found[case])

    podman, relive = "commit: podman checkpoint --export", "commit: relive commit"
    return {
        "pause": middle(podman, "gap") / middle(relive, "gap"),
        "commit_wall": middle(podman, "wall") / middle(relive, "wall"),
        "restore_runs": middle("restore: podman restore --import", "runs")
        / middle("restore: relive restore", "runs"),
        "restore_runs_in_process": middle("restore: podman restore --import", "runs")
        / middle("restore: relive, in process", "runs"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 7)
    parser.add_argument("--megabytes", type=int, default=12, help="size of the program (default 12)")
    options = parser.parse_args()
    missing = [tool for tool in ("podman", "runc") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"error: {' and '.join(missing)} missing; install the packages of that name")
    with lab(options) as place:
        result = measure(place, options.rounds, options.megabytes)
    result["load"] = load_average()
    if options.json:
        print_json(result)
        return
    rows = [
        {key: value for key, value in row.items() if not key.endswith("_iqr") and key != "bytes"}
        | {"MB": row["bytes"] / 1e6}
        for row in result["rows"]
    ]
    title = f"ms, medians of {options.rounds} rounds, {options.megabytes} MB (load {result['load']})"
    print_table(title, rows)
    print(
        "\nPodman's to Relive's: "
        + ", ".join(f"{name} {value:.1f}" for name, value in result["ratios"].items())
    )


if __name__ == "__main__":
    main()
