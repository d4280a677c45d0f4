"""What the look at a laid-out layer costs before a branch reads it: 50 MiB in few and in many files.

    python benchmarks/trees.py [--rounds 9]

Interleaved; the median of each. "stat" is what each use pays, "contents" what one use a minute pays more, "seal" what laying it out
pays once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from relive.store.layer_checksums import is_as_sealed, seal

SIZE = 50 << 20  # [bytes]
COUNTS = (10, 200, 2000)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    top = Path(tempfile.mkdtemp(prefix="relive-trees-", dir="/var/tmp"))
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for count in COUNTS:
        tree = top / str(count) / "tree"
        tree.mkdir(parents=True)
        for number in range(count):
            (tree / f"{number:05}").write_bytes(os.urandom(SIZE // count))
    for _ in range(rounds):
        for count in COUNTS:
            tree, place = top / str(count) / "tree", top / str(count) / "seal"
            found[count, "seal"].append(seconds(partial(seal, tree, place)))
            for word, every_byte in (("stat", False), ("contents", True)):
                look = partial(is_as_sealed, tree, place, every_byte=every_byte)
                found[count, word].append(seconds(look))
    shutil.rmtree(top)
    print(f"{'files':>6}{'stat':>12}{'contents':>12}{'seal':>12}")
    for count in COUNTS:
        middles = [statistics.median(found[count, word]) * 1000 for word in ("stat", "contents", "seal")]
        print(f"{count:6}" + "".join(f"{one:9.1f} ms" for one in middles))


if __name__ == "__main__":
    main()
