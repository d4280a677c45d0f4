"""Micro-commits of programs drawn at random, each compared with all memory as it was read in the pause by somebody else.

    python benchmarks/soak.py --count 10000 --keep soak.jsonl        goes on where it was cut off; also --for 30m
    python benchmarks/soak.py --seed 7 --life 31                     one life again, as a failure names it

A *life* is one program, committed 25 times: its kind, its words and its faults are drawn by the seed and the life's
number. Of each commit, full ones too, every page is compared with memory read by ``/proc/PID/mem`` while all threads stand
still. One of ``--restored-of`` is stored and restored in a sandbox, and the branch is compared before it runs: all pages,
shared memory, registers of all threads, position and flags of open files. Only commits on top of others are counted.

Faults, in one life of four: the tracker or CRIU is killed at any moment of a commit, the disk is full for one commit, or the
agent's part begins anew, knowing nothing of the commits before. CRIU runs code of its own in the process it holds, so a process
may die with it (``chaos.py`` counts that); such a life ends. A commit that fails by its fault is counted, and the next ones are
compared.

Exit status 1 where anything differed. When programs are scheduled is not drawn: a life that failed may need several tries.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
from _lab import load_average, print_json, print_table
from _resuming import Kept, state_of_the_tree, workplace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from checkpoint.test_micro_commits import PROGRAMS, Taking, Told
from checkpoint.test_micro_soak import OBJECTS, Restores
from checkpoint.test_micro_trees import TakingTrees
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.store.pages.page_pool import PagePool

_COMMITS = 25  # of a life
_DIFFERENCES_MOST = 10  # then a run ends
_SILENCE = 120.0  # [s] a program may take for a word
_FAULTS_OF = 4  # lives have faults
_FAULT_OF = 3  # commits of such a life
_COMPILED = ("memory_moves", "stacks_aside", "timer_states")
_NUMBER = re.compile(r"\b[0-9a-f]*\d[0-9a-f]*\b")
_REASON_MOST = 80  # characters; what stands behind them is of that commit alone
_UNITS = {"s": 1, "m": 60, "h": 3600}
_WIDE = (  # kernel objects; most lead to one full commit, and are part of the next base
    *("thread", "file behind memory", "not to children", "empty in children", "shared", "descriptor"),
    *("replace descriptor", "unlinked", "handle", "timer", "alternate stack", "directory", "mask", "name"),
    *(
        "listen",
        "connect",
        "socket option",
        "data in a pipe",
        "ended pair",
        "watch for clients",
        "huge pages",
        "regions",
    ),
    *("mode of files", "subreaper", "limit", "large", "much", "memory file", "execute"),
)


@dataclass
class Kind:
    """A program and what it is told between commits.

    Attributes:
        words: drawn from for each commit.
        rare: drawn from instead for one commit of eight.
        turns: done one after the other, and again; the next one instead for one commit of four.
        is_tree: of several processes that share memory.
        waits_in_handlers: of any signal, so of the SIGCONT by which the watchdog lets go what a killed CRIU held.
    """

    command: Callable[[Path, Path, int], tuple[str | Path, ...]]
    words: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    is_tree: bool = False
    waits_in_handlers: bool = False


def _python(name: str, *words: str) -> Callable[[Path, Path, int], tuple[str | Path, ...]]:
    return lambda _built, place, seed: (
        *(sys.executable, PROGRAMS / f"{name}.py"),
        *(word.format(place=place, seed=seed) for word in words),
    )


def _compiled(name: str, *words: str) -> Callable[[Path, Path, int], tuple[str | Path, ...]]:
    return lambda built, _place, seed: (built / name, *(word.format(seed=seed) for word in words))


KINDS = {
    "asyncio": Kind(_python("micro_asyncio", "{seed}")),
    "objects": Kind(_python("micro_traps", "{place}/written"), OBJECTS),
    "tree": Kind(_python("micro_tree", "{place}/log"), ("count",), ("open anew", "pipe"), is_tree=True),
    "stacks": Kind(_compiled("stacks_aside"), ("work",), turns=("leave", "return"), waits_in_handlers=True),
    "kernel objects": Kind(_python("micro_traps", "{place}/written"), OBJECTS, _WIDE),
    "moves": Kind(_compiled("memory_moves", "{seed}", "6", "24", "alone", "rests")),
    "timerfd": Kind(_compiled("timer_states", "descriptors"), ("set",)),
    "forks": Kind(_compiled("memory_moves", "{seed}", "6", "24")),
    "alarms": Kind(_compiled("timer_states", "alarms"), ("set",)),
    "POSIX timers": Kind(_compiled("timer_states", "timers"), ("set",)),
}


@dataclass
class Row:
    """What became of one life.

    Attributes:
        captures: commits that were compared, micro ones and full ones.
        full: full commits by their reason, numbers left out.
        failed: commits that ended in an error, each by a fault.
        died: the program died with CRIU.
        difference: None: there was none.
    """

    life: int
    kind: str
    seed: int
    captures: int = 0
    micro: int = 0
    full: Counter[str] = field(default_factory=Counter)
    restored: int = 0
    restored_micro: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    died: bool = False
    difference: str | None = None
    seconds: float = 0.0


def _faults(
    taking: Taking, hits: Counter[str]
) -> dict[str, Callable[[float], contextlib.AbstractContextManager[None]]]:
    """Each, told how late, holds while one commit is taken, and is counted where it hit something."""

    @contextlib.contextmanager
    def later(act: Callable[[], None], delay: float) -> Iterator[None]:
        timer = threading.Timer(delay, act)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def kill_tracker() -> None:
        tracker = taking.micro._tracker
        if tracker is not None:
            tracker._process.kill()
            hits["tracker"] += 1

    @contextlib.contextmanager
    def killed_criu(delay: float) -> Iterator[None]:
        taking.begin_anew()  # so that there is one
        over = threading.Event()

        def kill() -> None:
            while not over.wait(0.001):
                for pid in procfs.tree_of(os.getpid()):
                    with contextlib.suppress(OSError):
                        if Path(f"/proc/{pid}/comm").read_text().startswith("criu") and not over.wait(delay):
                            os.kill(pid, signal.SIGKILL)
                            hits["criu"] += 1
                            return

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def full_disk(_delay: float) -> Iterator[None]:
        def fail(*_words: Any) -> None:
            hits["disk"] += 1
            raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PagePool, "add_changed", fail)
            yield

    @contextlib.contextmanager
    def new_agent(_delay: float) -> Iterator[None]:
        taking.begin_anew()
        hits["agent"] += 1
        yield

    return {
        "tracker": lambda delay: later(kill_tracker, delay),
        "criu": killed_criu,
        "disk": full_disk,
        "agent": new_agent,
    }


def _ask(told: Told, word: str) -> None:
    """Have it done; a program that does not come back to it is ended, and counts as one that differs."""
    limit = threading.Timer(_SILENCE, told.process.kill)
    limit.start()
    try:
        told.ask(word)  # its answer may be an empty line
        assert not limit.finished.is_set(), f"it did not answer {word!r} within {_SILENCE:g} s"
    finally:
        limit.cancel()


class _Life:
    """One program, committed until its commits are taken, ``most`` are micro-commits, or ``until`` has come."""

    def __init__(self, row: Row, built: Path, place: Path, options: argparse.Namespace, most: int) -> None:
        self._row, self._built, self._place = row, built, place
        self._restored_of, self._until, self._most = options.restored_of, options.until, most
        self._choose = random.Random(row.seed)

    def run(self) -> None:
        row, kind, began = self._row, KINDS[self._row.kind], time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            taking = (TakingTrees if kind.is_tree else Taking)(self._place / "home", patch)
            try:
                told = Told(*kind.command(self._built, self._place, row.seed))
                try:
                    self._commit_all(taking, told, Restores(taking, row.seed, patch, self._restored_of))
                finally:
                    told.end()
            except Exception:
                row.difference = traceback.format_exc()
            finally:
                taking.close()
        row.seconds = time.monotonic() - began

    def _commit_all(self, taking: Taking, told: Told, restores: Restores) -> None:
        row, kind, choose = self._row, KINDS[self._row.kind], self._choose
        faults = _faults(taking, row.faults)
        if kind.waits_in_handlers:
            del faults["criu"]
        turns = itertools.cycle(kind.turns)
        has_faults = choose.randrange(_FAULTS_OF) == 0
        for _ in range(_COMMITS):
            if time.monotonic() > self._until or row.micro >= self._most:
                return
            words = kind.rare if kind.rare and choose.randrange(8) == 0 else kind.words
            if kind.turns and choose.randrange(4) == 0:
                _ask(told, next(turns))
            elif words:
                _ask(told, choose.choice(words))
            name = choose.choice(list(faults)) if has_faults and choose.randrange(_FAULT_OF) == 0 else None
            delay = choose.choice([0.003, 0.03, 0.3]) * choose.random()
            taking.micro._refusals = 0
            try:
                with faults[name](delay) if name else contextlib.nullcontext():
                    is_micro = taking.commit(told.pid)
            except ReliveError:
                if name is None:
                    raise
                row.failed += 1
            else:
                assert any(taking.frozen.values()), "nothing was compared"
                row.captures += 1
                row.micro += is_micro
                if not is_micro:
                    row.full[_NUMBER.sub("N", str(taking.micro.reason))[:_REASON_MOST]] += 1
            row.restored, row.restored_micro = restores.restored, restores.on_top
            if told.process.poll() is not None:
                assert name == "criu", f"the program ended with {told.process.poll()}"
                row.died = True
                return


def life(number: int, seed: int, built: Path, options: argparse.Namespace, most: int) -> Row:
    """Live it, compared to its end or to its first difference."""
    drawn = random.Random(f"{seed} {number}").randrange(1 << 32)
    row = Row(number, options.kinds[number % len(options.kinds)], drawn)
    with workplace(Path("/var/tmp"), "relive-soak-life-", lambda _place: None) as place:
        _Life(row, built, place, options, most).run()
    return row


def build(into: Path) -> None:
    for name in _COMPILED:
        source = PROGRAMS / f"{name}.c"
        subprocess.run(["gcc", "-O1", "-pthread", "-o", into / name, source], check=True)


def _duration(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smh])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s, 30m, 2h")
    return int(found[1]) * _UNITS[found[2]]


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each kind, and one for all."""
    lines = []
    for kind in [*KINDS, "all"]:
        group = [row for row in rows if kind in (row["kind"], "all")]
        if group:
            sums = {key: sum(row[key] for row in group) for key in ("captures", "micro")}
            line = {"kind": kind, "lives": len(group), **sums, "full": sums["captures"] - sums["micro"]}
            for key in ("restored", "restored_micro", "failed", "died"):
                line[key] = sum(row[key] for row in group)
            line["faults"] = sum(sum(row["faults"].values()) for row in group)
            line["differences"] = sum(row["difference"] is not None for row in group)
            lines.append(line)
    return lines


def _sum(rows: list[dict[str, Any]], key: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row[key])
    return dict(total.most_common())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000, help="micro-commits in all")
    parser.add_argument("--for", dest="limit", type=_duration, default=float("inf"), help="at most so long")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--life", type=int, help="only this one")
    parser.add_argument("--kinds", default=",".join(KINDS), help="by commas")
    parser.add_argument("--restored-of", type=int, default=10, help="one of so many commits is restored")
    parser.add_argument(
        "--keep", type=Path, help="a file of lives; a run with the same options goes on from it"
    )
    parser.add_argument("--no-nice", action="store_true", help="with the priority it was started with")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    if options.keep and options.seed is None:
        parser.error("--keep needs --seed: a run without one draws another each time")
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if not options.no_nice:
        os.nice(19)
    options.until = time.monotonic() + options.limit
    asked = {"seed": seed, "kinds": options.kinds, "restored_of": options.restored_of}
    kept = Kept(options.keep, asked, "life")
    numbers = (number for number in itertools.count() if number not in kept.rows)
    if options.life is not None:
        numbers = iter([options.life])
    print(f"seed {seed}, {len(kept.rows)} lives kept, load {load_average()}", file=sys.stderr, flush=True)
    with workplace(Path("/var/tmp"), "relive-soak-built-", lambda _place: None) as built:
        build(built)
        for number in numbers:
            most = options.count - sum(row["micro"] for row in kept.rows.values())
            differing = sum(row["difference"] is not None for row in kept.rows.values())
            if most <= 0 or differing >= _DIFFERENCES_MOST or time.monotonic() > options.until:
                break
            row = kept.add(vars(life(number, seed, built, options, most)))
            print(
                f"life {number}, {row['kind']}: {row['micro']} micro of {row['captures']}, {row['restored']} restored, "
                f"{row['seconds']:.0f} s{', DIFFERS' if row['difference'] else ''}",
                file=sys.stderr,
                flush=True,
            )
    rows = list(kept.rows.values())
    found = {"full": _sum(rows, "full"), "faults": _sum(rows, "faults")}
    told = [row for row in rows if row["difference"]]
    if options.json:
        print_json(
            {"seed": seed, "tree": state_of_the_tree(), "table": table(rows), **found, "differing": told}
        )
    else:
        print_table(f"{state_of_the_tree()}, seed {seed}, load {load_average()}", table(rows))
        print_table(
            "full commits", [{"reason": reason, "commits": count} for reason, count in found["full"].items()]
        )
        print_table("faults", [{"fault": name, "commits": count} for name, count in found["faults"].items()])
        for row in told:
            print(f"\nDIFFERENCE: --seed {seed} --life {row['life']} ({row['kind']})\n{row['difference']}")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
