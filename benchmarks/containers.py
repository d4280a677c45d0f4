"""Relive beside ``podman container checkpoint`` and ``restore``: the same container, in turns, in one run.

    python benchmarks/containers.py [--rounds 10] [--megabytes 50] [--json]

A Python web service of the given size runs in a container (runc, cgroupfs, a network of podman's; the image is this machine's
Python and what it links to, the store a directory of its own). In each round some requests are made, and then it is committed by
both, while it runs on: ``relive commit podman:NAME`` and ``podman container checkpoint --leave-running --export --compress=zstd``.
``frozen`` is CRIU's own figure with the time that freezing took, ``gap`` what the program saw, ``wall`` the command from start to
end, ``MB`` what is on disk afterwards: the archive, or what the store has grown by. Then both bring the last one back with a port
published, beside the original: ``answer`` is the time from the command to the first answer through that port. All are the commands
as typed, but *in process*, which is the last without Python's start.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
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
    add_options,
    free_port,
    gaps_after,
    lab,
    load_average,
    median,
    print_json,
    print_table,
    quartiles,
)

from relive.containers.podman.restore.network import remove_network
from relive.containers.podman.restore.restoring import restore_container
from relive.model.commit import CommitId

_LIMIT = 30.0  # [s]
_SETTLE = 0.3  # [s] the kernel takes namespaces apart in the background
_IMAGE = "relive-benchmark"
_ULIMIT_MOST = {"nofile": 1 << 20, "nproc": 1 << 15}  # what podman lowers its own limits to
_CASES = (
    "podman checkpoint --export",
    "relive commit",
    "podman restore --import",
    "relive restore --as podman",
    "relive, in process",
)
_REQUESTS = 20  # between two commits
_SERVE = """
import ctypes, http.server, sys, threading
threading.Thread(target=ctypes.CDLL(sys.argv[1]).pulse, daemon=True).start()
size = int(sys.argv[2]) - 12 << 20
import random
ballast = bytearray(random.Random(1).randbytes(max(0, size)))
count = 0
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        count += 1
        ballast[count * 4096 % len(ballast)] ^= 1
        with open("/tmp/log", "a") as log:
            log.write(f"{count}\\n")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"%d" % count)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
"""
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
        self.found_by = {
            "CONTAINERS_CONF": str(self.directory / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.directory / "storage.conf"),
            "TMPDIR": str(self.directory),
        }
        os.environ.update(self.found_by)  # podman, as Relive calls it in this process
        self._environment = (
            os.environ | self.found_by | {"PATH": f"{place.settings.tools_path}:{os.environ['PATH']}"}
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
            target = root / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (root / "serve.py").write_text(_SERVE)
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
def container(place: Lab, megabytes: int) -> Iterator[tuple[Podman, str, int]]:
    """The service in a container that answers: (podman, its name, its port on this host)."""
    podman = Podman(place)
    try:
        podman.make_image()
        interpreter = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        name, port = "original", free_port()
        command = [str(interpreter), "/serve.py", str(place.library), str(megabytes)]
        podman("run", "-d", "--name", name, "-p", f"127.0.0.1:{port}:8000", _IMAGE, *command)
        _answered(port, time.monotonic())
        yield podman, name, port
    finally:
        podman.close()
        for point in place.settings.containers.glob("*/network"):
            remove_network(point)


def _answered(port: int, began: float) -> float:
    """Milliseconds from ``began`` until somebody answered."""
    while time.monotonic() < began + _LIMIT:
        with contextlib.suppress(OSError, http.client.HTTPException):
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            try:
                line.request("GET", "/")
                line.getresponse().read()
                return (time.monotonic() - began) * 1e3
            finally:
                line.close()
        time.sleep(0.002)
    raise SystemExit(f"error: nobody answers at port {port}")


def _gap(log: Path, offset: int) -> float:
    time.sleep(0.05)
    return max((gap.ms for gap in gaps_after(log, offset)), default=0.0)


def _bytes_below(directory: Path) -> int:
    return sum(
        path.stat().st_blocks * 512
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    )


def checkpoint(podman: Podman, name: str, log: Path, archive: Path) -> dict[str, float]:
    """One ``podman container checkpoint --leave-running --export``."""
    offset = log.stat().st_size
    arguments = ["--leave-running", "--print-stats", "--export", str(archive), "--compress", "zstd"]
    began = time.perf_counter()
    text = podman("container", "checkpoint", *arguments, name)
    wall = (time.perf_counter() - began) * 1e3
    told = sum(int(one) for one in re.findall(r'"(?:freezing|frozen)_time": (\d+)', text))
    return {
        "frozen": told / 1e3,
        "gap": _gap(log, offset),
        "wall": wall,
        "bytes": float(archive.stat().st_size),
    }


def commit(place: Lab, podman: Podman, name: str, log: Path) -> tuple[dict[str, float], str]:
    """One ``relive commit``."""
    offset = log.stat().st_size
    before = _bytes_below(place.settings.store)
    began = time.perf_counter()
    answer = json.loads(_relive(place, podman, "commit", "--json", f"podman:{name}"))
    wall = (time.perf_counter() - began) * 1e3
    found = {"frozen": answer["pause_us"] / 1e3, "gap": _gap(log, offset), "wall": wall}
    found["bytes"] = float(_bytes_below(place.settings.store) - before)
    return found, str(answer["id"])


def revive(
    place: Lab, podman: Podman, archive: Path, commit_id: str, number: int
) -> dict[str, dict[str, float]]:
    """Both restores."""
    found = {}
    for case in ("podman", "relive", "inside"):
        port, name = free_port(), f"{case}-{number}"
        began = time.monotonic()
        if case == "podman":
            podman(
                "container",
                "restore",
                f"--import={archive}",
                f"--name={name}",
                "-p",
                f"127.0.0.1:{port}:8000",
            )
        elif case == "inside":
            with contextlib.closing(place.store()) as store:
                publish = [("127.0.0.1", port, 8000)]
                restore_container(place.settings, store, CommitId(commit_id), name, publish)
        else:
            options = ["--as=podman", f"--name={name}", f"--publish=127.0.0.1:{port}:8000"]
            _relive(place, podman, "restore", "--json", *options, commit_id)
        wall = (time.monotonic() - began) * 1e3
        found[case] = {"wall": wall, "answer": _answered(port, began)}
        podman("rm", "--force", "--time", "0", name)
        time.sleep(_SETTLE)
    return found


def _relive(place: Lab, podman: Podman, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _RELIVE, *arguments],
        env=place.environment() | podman.found_by,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"error: relive {' '.join(arguments)}: {done.stdout} {done.stderr}")
    return done.stdout


def measure(place: Lab, rounds: int, megabytes: int) -> dict[str, Any]:
    """All rounds; who goes first changes from one to the next."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in _CASES}
    with container(place, megabytes) as (podman, name, port):
        log = podman.log(name)
        for turn in range(rounds):
            for _ in range(_REQUESTS):
                _answered(port, time.monotonic())
            archive = podman.directory / "checkpoint.tar.zst"
            archive.unlink(missing_ok=True)
            commit_id = ""
            for case in ("podman", "relive") if turn % 2 else ("relive", "podman"):
                if case == "podman":
                    found["podman checkpoint --export"].append(checkpoint(podman, name, log, archive))
                else:
                    values, commit_id = commit(place, podman, name, log)
                    found["relive commit"].append(values)
            revived = revive(place, podman, archive, commit_id, turn)
            found["podman restore --import"].append(revived["podman"])
            found["relive restore --as podman"].append(revived["relive"])
            found["relive, in process"].append(revived["inside"])
    rows = []
    for case, results in found.items():
        row: dict[str, Any] = {"case": case}
        for key in ("frozen", "gap", "wall", "answer"):
            values_of = [result[key] for result in results if key in result]
            row[key] = median(values_of) if values_of else float("nan")
            row[f"{key}_iqr"] = quartiles(values_of) if values_of else None
        if "bytes" in results[0]:
            row["first_MB"], row["last_MB"] = results[0]["bytes"] / 1e6, results[-1]["bytes"] / 1e6
        else:
            row["first_MB"] = row["last_MB"] = float("nan")
        rows.append(row)
    return {"megabytes": megabytes, "rounds": rounds, "rows": rows, "ratios": _ratios(found)}


def _ratios(found: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Relive's median to podman's; less is better."""
    podman, relive, theirs, ours, inside = (found[name] for name in _CASES)

    def ratio(one: list[dict[str, float]], other: list[dict[str, float]], key: str) -> float:
        return median(result[key] for result in one) / median(result[key] for result in other)

    return {
        "frozen": ratio(relive, podman, "frozen"),
        "gap": ratio(relive, podman, "gap"),
        "commit": ratio(relive, podman, "wall"),
        "first_bytes": relive[0]["bytes"] / podman[0]["bytes"],
        "last_bytes": relive[-1]["bytes"] / podman[-1]["bytes"],
        "answer": ratio(ours, theirs, "answer"),
        "answer_in_process": ratio(inside, theirs, "answer"),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 10)
    parser.add_argument("--megabytes", type=int, default=50, help="size of the service (default 50)")
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
    rows = [{key: value for key, value in row.items() if not key.endswith("_iqr")} for row in result["rows"]]
    title = f"ms, medians of {options.rounds} rounds, {options.megabytes} MB (load {result['load']})"
    print_table(title, rows)
    print(
        "\nRelive's to podman's: "
        + ", ".join(f"{name} {value:.3f}" for name, value in result["ratios"].items())
    )


if __name__ == "__main__":
    main()
