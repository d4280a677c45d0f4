"""What a commit costs in the store: bytes, time, and the speed of giving it back; beside tools that keep directories.

    python benchmarks/store.py [--rounds 20] [--series fastapi|cache|redis|redis-noise]... [--json]

A service runs in a capsule while its state changes (see ``_series``), and its agent commits it ``rounds`` times. The images of
those commits are then laid out as directories, and each tool takes the same directories in, in their order, in turns:

- ``relive``: the store alone, in this process, as the agent uses it (the commit before is known); ``relive sealed`` with a key.
- ``tar | zstd -3``: each commit for itself.
- ``zstd --patch-from``: against the commit before; a chain, so giving the last one back goes through all.
- ``borg`` by its defaults and with chunks of 4096 bytes, as suits pages; ``restic``; ``casync``: where they are installed.

``KB`` is what a commit adds to the store's directory, all in, the first left out (memory alone; of files see ``files.py``);
``ms`` from images to durable (tools: wall time of the command, which includes starting it, and they do not sync); ``give back``
the last commit, bit for bit, in MB of images a second, three times in turns, after what was kept is on the disk. Medians. Where a
series has a floor (``_series``), that of ``KB`` is told.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _lab import Lab, Service, add_options, lab, load_average, median, print_json, print_table
from _series import SERIES, Series, series

from relive.model.commit import CommitId, Manifest
from relive.store import Store
from relive.store.keyring import Keyring

_BETWEEN = 1.0  # [s] in which the client changes the service
_GIVEN_BACK = 3  # times
_ASKED = {"BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "RESTIC_PASSWORD": "benchmark"}


class ReliveStore:
    """A store of its own, that is given the manifests with the images."""

    def __init__(self, directory: Path, manifests: list[Manifest], *, sealed: bool) -> None:
        self.name = "relive sealed" if sealed else "relive"
        if sealed:
            Keyring(directory / "keys").make_store_key()
        self._directory = directory / "store"
        self._store = Store(self._directory)
        self._manifests = manifests
        self._commits: list[CommitId] = []

    def keep(self, images: Path, number: int) -> float:
        """Milliseconds. What the images' directory loses is no loss: it is a copy."""
        staging = self._store.stage()
        shutil.copytree(images, staging.images, dirs_exist_ok=True)
        parents = self._commits[-1:]
        began = time.perf_counter()
        with self._store.taking_in():
            taken = self._store.ingest_images(staging.images, parents[0] if parents else None)
            changes = {"images": taken.images, "layers": [], "listing": None, "parents": parents}
            manifest = self._manifests[number].model_copy(update=changes)
            self._commits.append(self._store.add(manifest, taken).id)
        took = time.perf_counter() - began
        self._store.release_memory()  # as the agent does when it has answered
        staging.discard()
        return took * 1000

    def size(self) -> int:
        """Bytes of the whole directory: packs, placements, manifests, and the database by which they are found."""
        return _bytes_below(self._directory)

    def give_back(self, target: Path) -> float:
        """Milliseconds for the last one."""
        began = time.perf_counter()
        self._store.images.lay_out(self._store.manifest(self._commits[-1]), target)
        took = time.perf_counter() - began
        shutil.rmtree(self._directory / "laid")  # else it would be laid out already the next time
        (self._directory / "laid").mkdir()
        return took * 1000


class Tool:
    """A tool that is given directories; shell lines with {images}, {number}, {before}, {place} and {target}."""

    def __init__(
        self, name: str, place: Path, *, keep: str, give_back: str, first: str = "", begin: str = ""
    ) -> None:
        self.name = name
        self._place = place
        self._keep, self._first, self._give_back = keep, first or keep, give_back
        self._number = 0
        place.mkdir()
        if begin:
            self._run(begin)

    def keep(self, images: Path, number: int) -> float:
        """Milliseconds."""
        self._number = number
        return self._run(self._keep if number else self._first, images=images)

    def size(self) -> int:
        """Bytes."""
        return _bytes_below(self._place / "kept")

    def give_back(self, target: Path) -> float:
        """Milliseconds for the last one."""
        return self._run(self._give_back, target=target)

    def _run(self, line: str, **places: Path) -> float:
        numbers = {"number": self._number, "before": self._number - 1, "last": self._number}
        text = line.format(place=self._place, **numbers, **places)
        environment = dict(os.environ, **_ASKED, BORG_BASE_DIR=str(self._place))
        began = time.perf_counter()
        subprocess.run(
            ["bash", "-o", "pipefail", "-ec", text], check=True, env=environment, stdout=subprocess.DEVNULL
        )
        return (time.perf_counter() - began) * 1000


def tools(directory: Path) -> list[Tool]:
    """Those that are installed."""
    found = []
    if shutil.which("zstd"):
        found.append(
            Tool(
                "tar | zstd -3",
                directory / "zstd",
                begin="mkdir {place}/kept",
                keep="tar -C {images} -cf - . | zstd -q -3 -o {place}/kept/{number}.zst",
                give_back="zstd -dqc {place}/kept/{number}.zst | tar -C {target} -xf -",
            )
        )
        patch = "zstd -q -3 --long=31 --patch-from={place}/{before}.tar {place}/{number}.tar -o {place}/kept/{number}.zst"
        found.append(
            Tool(
                "zstd --patch-from",
                directory / "patch",
                begin="mkdir {place}/kept",
                first="tar -C {images} -cf {place}/0.tar . && zstd -q -3 {place}/0.tar -o {place}/kept/0.zst",
                keep="tar -C {images} -cf {place}/{number}.tar . && " + patch,
                give_back="mkdir -p {place}/back && zstd -dqf {place}/kept/0.zst -o {place}/back/0 && "
                "for ((i = 1; i <= {number}; i++)); do zstd -dq --long=31 --patch-from={place}/back/$((i - 1)) "
                "{place}/kept/$i.zst -o {place}/back/$i; rm {place}/back/$((i - 1)); done && "
                "tar -C {target} -xf {place}/back/{number} && rm {place}/back/{number}",
            )
        )
    if shutil.which("borg"):
        for name, options in (("borg", ""), ("borg, 4096", "--chunker-params fixed,4096 -C zstd,3 ")):
            found.append(
                Tool(
                    name,
                    directory / name.replace(", ", "-"),
                    begin="borg init -e none {place}/kept",
                    keep="cd {images} && borg create " + options + "{place}/kept::{number} .",
                    give_back="cd {target} && borg extract {place}/kept::{number}",
                )
            )
    if shutil.which("casync"):
        found.append(
            Tool(
                "casync",
                directory / "casync",
                begin="mkdir {place}/kept",
                keep="casync make --store={place}/kept/chunks {place}/kept/{number}.caidx {images}",
                give_back="casync extract --store={place}/kept/chunks {place}/kept/{number}.caidx {target}",
            )
        )
    if shutil.which("restic"):
        found.append(
            Tool(
                "restic",
                directory / "restic",
                begin="restic -q init --repo {place}/kept",
                keep="cd {images} && restic -q backup --repo {place}/kept .",
                give_back="restic -q restore latest --repo {place}/kept --target {target}",
            )
        )
    return found


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def commit_series(
    place: Lab, service: Service, one: Series, rounds: int
) -> tuple[list[Path], list[Manifest], list[float], list[int]]:
    """Directories of images, manifests; for each commit the milliseconds until the agent said it was durable, and its noise."""
    ids, durable, noise = [], [], []
    port = one.port or service.port
    with one.client(port) if one.client is not None and port is not None else contextlib.nullcontext():
        for _ in range(rounds):
            time.sleep(_BETWEEN)
            answer = service.commit()
            ids.append(CommitId(answer["id"]))
            durable.append(answer["durable_us"] / 1000)
            noise += [one.noise()] if one.noise is not None else []
    store = place.store()
    manifests = [store.manifest(one) for one in ids]
    directories = []
    for manifest in manifests:
        directories.append(place.fresh("images"))
        store.images.lay_out(manifest, directories[-1])
    store.close()
    return directories, manifests, durable, noise


def measure(
    keepers: list[Any], directories: list[Path], fresh: Callable[[str], Path]
) -> list[dict[str, Any]]:
    """A row for each."""
    times: dict[str, list[float]] = {keeper.name: [] for keeper in keepers}
    sizes: dict[str, list[int]] = {keeper.name: [0] for keeper in keepers}
    for number, images in enumerate(directories):
        for keeper in keepers:
            times[keeper.name].append(keeper.keep(images, number))
            sizes[keeper.name].append(keeper.size())
    rows = []
    megabytes = _bytes_below(directories[-1]) / 1e6
    backs: dict[str, list[float]] = {keeper.name: [] for keeper in keepers}
    os.sync()
    for keeper in [*keepers] * _GIVEN_BACK:
        target = fresh("given-back")
        backs[keeper.name].append(keeper.give_back(target))
        _must_be_same(keeper.name, directories[-1], target)
        shutil.rmtree(target)
    for keeper in keepers:
        back = median(backs[keeper.name])
        added = [
            (after - before) / 1e3
            for before, after in zip(sizes[keeper.name], sizes[keeper.name][1:], strict=False)
        ]
        row = {"kept by": keeper.name, "first MB": added[0] / 1e3, "KB": median(added[1:])}
        row |= {"first ms": times[keeper.name][0], "ms": median(times[keeper.name][1:])}
        rows.append(row | {"give back ms": back, "MB/s": megabytes / back * 1e3})
    for row in rows:
        row |= {"KB ratio": row["KB"] / rows[0]["KB"], "ms ratio": row["ms"] / rows[0]["ms"]}
    return rows


def _must_be_same(name: str, images: Path, target: Path) -> None:
    names = [path.name for path in images.iterdir()]
    same, _, _ = filecmp.cmpfiles(images, target, names, shallow=False)
    if len(same) != len(names):
        raise SystemExit(f"error: {name} gave back something else")


def run(place: Lab, name: str, rounds: int) -> dict[str, Any]:
    """One series."""
    one = series(name)
    with place.capsule(one.program(place)) as service:
        one.wait_until_ready(service.output)
        directories, manifests, durable, noise = commit_series(place, service, one, rounds)
    home = place.fresh("kept")
    keepers = [
        ReliveStore(home / "own", manifests, sealed=False),
        ReliveStore(home / "own-sealed", manifests, sealed=True),
        *tools(_made(home / "tools")),
    ]
    rows = measure(keepers, directories, place.fresh)
    megabytes = median(_bytes_below(path) / 1e6 for path in directories)
    result = {"series": name, "title": one.title, "rounds": rounds, "load": load_average()}
    result |= {"image_mb": megabytes, "kept": rows, "agent_durable_ms": median(durable[1:])}
    return result | {"floor_kb": median(noise[1:]) / 1e3 if noise else None}


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 20)
    parser.add_argument("--series", action="append", choices=SERIES, help="only this one (may be repeated)")
    options = parser.parse_args()
    results = []
    for name in options.series or SERIES:
        with lab(options) as place:
            results.append(run(place, name, options.rounds))
    if options.json:
        print_json({"series": results})
        return
    for one in results:
        title = (
            f"{one['rounds']} commits of {one['title']}, {one['image_mb']:.1f} MB each (load {one['load']})"
        )
        if one["floor_kb"] is not None:
            title += f"; of a commit {one['floor_kb']:.0f} KB are random"
        print_table(f"{title}; by its agent durable after {one['agent_durable_ms']:.0f} ms", one["kept"])


if __name__ == "__main__":
    main()
