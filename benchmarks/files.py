"""What the files of a service cost: by how much the store's directory grows with a commit, and the work behind the pause.

    python benchmarks/files.py [--rounds 10] [--megabytes 1024] [--changed 2] [--small 10000] [--case CASE]... [--json]

A store of its own below ``--directory`` takes the files in as the agent does when a capture is done: a copy of each that changed
(making it is not measured, since it is the scanner's), the rest by the names of their contents. There is no memory beside them.

- ``large``: one file, of which ``--changed`` megabytes change, in pieces of 8 KiB at random places, by a quarter of their bytes.
- ``database``: the same as a real SQLite file; rows at random places are updated until that much of its file has changed.
- ``small``: so many files of up to 4 KiB; 10 of them change, one goes and one comes.

``first MB`` and ``grows KB``: all of the store's directory as ``du --apparent-size`` counts it, ``blocks KB`` as it lies on the
disk; per commit, the first left out. ``ms``: from the copies to durable. ``peak MB``: memory of this process beyond what it had
before the first. Each is taken in plain and sealed. The last commit is read back, and compared, at the end.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from _lab import load_average, median, print_json, print_table

from relive.model.commit import (
    CommitId,
    EntryKind,
    FileEntry,
    HostFacts,
    Layer,
    LayerKind,
    Manifest,
    TargetFacts,
    TargetKind,
    Trigger,
)
from relive.store import Store
from relive.store.keyring import Keyring

CASES = ("large", "database", "small")
_PIECE = 8192  # [bytes]
_MB = 1 << 20


class Files:
    """The files of a service, by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def live(self) -> set[str]:
        """Change some; returns the names of those that changed or are new."""
        raise NotImplementedError


class Large(Files):
    """One file of records that compress to a half."""

    def __init__(self, directory: Path, megabytes: int, changed: int) -> None:
        super().__init__(directory)
        self._chance = random.Random(1)
        self._changed = changed * _MB // _PIECE
        self._pieces = megabytes * _MB // _PIECE
        with (directory / "large").open("wb") as file:
            for _ in range(megabytes):
                file.write(self._chance.randbytes(_MB // 2).hex().encode())

    def live(self) -> set[str]:
        with (self.directory / "large").open("r+b") as file:
            for piece in self._chance.sample(range(self._pieces), self._changed):
                file.seek(piece * _PIECE + self._chance.randrange(_PIECE * 3 // 4))
                file.write(self._chance.randbytes(_PIECE // 8).hex().encode())
        return {"large"}


class Database(Files):
    """A SQLite file with rows of 500 bytes."""

    def __init__(self, directory: Path, megabytes: int, changed: int) -> None:
        super().__init__(directory)
        self._chance = random.Random(2)
        self._rows = megabytes * _MB // 560
        self._updates = changed * _MB // 4096
        self._database = sqlite3.connect(directory / "db", isolation_level=None)
        self._database.execute("PRAGMA synchronous=OFF")
        self._database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, count INTEGER, what TEXT)")
        self._database.execute("BEGIN")
        rows = ((number, 0, self._chance.randbytes(250).hex()) for number in range(self._rows))
        self._database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def live(self) -> set[str]:
        self._database.execute("BEGIN")
        for row in self._chance.sample(range(self._rows), self._updates):
            self._database.execute("UPDATE rows SET count = count + 1 WHERE id = ?", (row,))
        self._database.execute("COMMIT")
        return {"db"}


class Small(Files):
    """Many small files."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory)
        self._chance = random.Random(3)
        self._names = [f"{number % 100:02}/{number:06}.json" for number in range(count)]
        self._next = count
        for folder in range(100):
            (directory / f"{folder:02}").mkdir()
        for name in self._names:
            self._write(name)

    def _write(self, name: str) -> None:
        text = self._chance.randbytes(self._chance.randrange(20, 2000)).hex()
        (self.directory / name).write_text(text)

    def live(self) -> set[str]:
        changed = set(self._chance.sample(self._names, 10))
        gone = self._names.pop(0)
        (self.directory / gone).unlink()
        self._names.append(f"{self._next % 100:02}/{self._next:06}.json")
        self._next += 1
        changed = {name for name in changed if name != gone} | {self._names[-1]}
        for name in changed:
            self._write(name)
        return changed


class Kept:
    """A store that takes the files in again and again."""

    def __init__(self, home: Path, files: Files, *, sealed: bool) -> None:
        if sealed:
            Keyring(home / "keys").make_store_key()
        self.directory = home / "store"
        self.store = Store(self.directory)
        self.store.make_ready()
        self._files = files
        self._names: dict[str, str] = {}
        self._commits: list[CommitId] = []

    def keep(self, changed: set[str] | None) -> float:
        """Commit; returns milliseconds. ``changed`` are names of files, None: all."""
        paths = sorted(path for path in self._files.directory.rglob("*") if path.is_file())
        names = {str(path.relative_to(self._files.directory)): path for path in paths}
        fresh = names.keys() if changed is None else changed
        staging = self.store.stage()
        copies = {name: staging.files / f"{number}" for number, name in enumerate(sorted(fresh))}
        for name, copy in copies.items():
            shutil.copyfile(names[name], copy)
        facts = {name: path.stat() for name, path in names.items()}
        parent = self._commits[-1] if self._commits else None
        began = time.perf_counter()
        with self.store.taking_in(parent):
            folders = sorted({name.partition("/")[0] for name in names if "/" in name})
            entries = [FileEntry(path=name, kind=EntryKind.DIRECTORY, mode=0o755) for name in folders]
            for name in names:
                if name in copies:
                    self._names[name] = self.store.ingest_file(copies[name], ("/", name))
                assert self.store.has_object(self._names[name])
                entries.append(
                    FileEntry(path=name, kind=EntryKind.FILE, mode=0o644, size=facts[name].st_size,
                              mtime_ns=facts[name].st_mtime_ns, object=self._names[name])
                )  # fmt: skip
            layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=entries)
            self._commits.append(self.store.add(_manifest(len(self._commits), parent, layer)).id)
        took = time.perf_counter() - began
        self.store.release_memory()
        staging.discard()
        return took * 1000

    def check(self) -> float:
        """Read the last commit back; returns milliseconds."""
        manifest = self.store.manifest(self._commits[-1])
        began = time.perf_counter()
        tree = self.store.files.lay_out_layer(manifest.layers[0])
        took = time.perf_counter() - began
        for entry in (one for one in manifest.layers[0].entries if one.kind is EntryKind.FILE):
            given, own = tree / entry.path, self._files.directory / entry.path
            with given.open("rb") as one, own.open("rb") as other:
                while part := one.read(_MB):
                    assert part == other.read(_MB), entry.path
                assert not other.read(1), entry.path
        shutil.rmtree(tree)
        return took * 1000

    def sizes(self) -> tuple[int, int]:
        """Bytes of the store's directory, and of the blocks that it takes."""
        found = [path.lstat() for path in (self.directory, *self.directory.rglob("*"))]
        return sum(one.st_size for one in found), sum(one.st_blocks * 512 for one in found)


def _manifest(number: int, parent: CommitId | None, layer: Layer) -> Manifest:
    return Manifest(
        capture=f"{number:016x}",
        target=TargetFacts(kind=TargetKind.CAPSULE, name="files", life="1", root=2, command=["x"], processes=[]),
        host=HostFacts(name="host", kernel="6.1", criu="4.2"),
        trigger=Trigger.TIMER, taken_wall_ns=time.time_ns(), taken_monotonic_ns=time.monotonic_ns(), pause_us=1,
        parents=[parent] if parent else [], cursor=None, images=[], layers=[layer], connections=[], listening=[],
    )  # fmt: skip


def peak() -> int:
    """The most memory [bytes] that this process had since the last call."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return int(line.split()[1]) * 1024


def measure(case: str, options: argparse.Namespace, directory: Path) -> Iterator[dict[str, Any]]:
    """A row for a plain store and one for a sealed one."""
    for sealed in (False, True):
        home = Path(tempfile.mkdtemp(dir=directory))
        files: Files
        if case == "small":
            files = Small(home / "files", options.small)
        else:
            files = (Large if case == "large" else Database)(
                home / "files", options.megabytes, options.changed
            )
        kept = Kept(home, files, sealed=sealed)
        with closing(kept.store):
            peak()
            before = peak()
            first_ms = kept.keep(None)
            first, begun = kept.sizes(), peak() - before
            times, most = [], 0
            for _ in range(options.rounds):
                changed = files.live()
                peak()
                times.append(kept.keep(changed))
                most = max(most, peak() - before)
            last = kept.sizes()
            yield {
                "case": case, "store": "sealed" if sealed else "plain", "first MB": first[0] / _MB, "first ms": first_ms,
                "grows KB": (last[0] - first[0]) / options.rounds / 1024,
                "blocks KB": (last[1] - first[1]) / options.rounds / 1024,
                "ms": median(times), "peak MB": max(begun, most) / _MB, "give back ms": kept.check(),
            }  # fmt: skip
        shutil.rmtree(home)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="commits after the first")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the large file and the database")
    parser.add_argument("--changed", type=int, default=2, help="megabytes that change before a commit")
    parser.add_argument("--small", type=int, default=10_000, help="small files")
    parser.add_argument("--case", action="append", choices=CASES, help="only this; may be given again")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="where to work")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load = load_average()
    with tempfile.TemporaryDirectory(prefix="relive-files.", dir=options.directory) as directory:
        rows = [row for case in options.case or CASES for row in measure(case, options, Path(directory))]
    if options.json:
        print_json({"load": load, "rows": rows})
    else:
        print_table(f"Files (load average at the beginning: {load})", rows)


if __name__ == "__main__":
    main()
