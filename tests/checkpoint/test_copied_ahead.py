"""Commits whose memory was copied ahead, compared page for page with the memory of the frozen process. With the real CRIU."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint import dump as room
from relive.checkpoint.copied_ahead import CopiedAhead, scattered_in
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import Aside, capture
from relive.checkpoint.dumped import Capture
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.images.pagemap import read_pagemap
from relive.kernel import procfs
from relive.model.commit import Trigger
from relive.store import Store
from relive.store.scattered import ScatteredPages

PAGE = 4096
EMPTY = bytes(PAGE)
NEVER_DUMPED = ("[vvar", "[vsyscall]")
PROGRAMS = Path(__file__).parent.parent / "programs"
NATIVE = Path(__file__).parent.parent.parent / "native"
MOVES = PROGRAMS / "memory_moves.c"
ONE_SAYS_READY = """
import os, signal, sys
held = bytearray(4 << 20)
held[:] = os.urandom(1 << 10) * (4 << 10)
os.close(0)
if os.getpid() != os.getpgid(0):
    signal.pause()
import time
while len(open("/proc/self/task/%d/children" % os.getpid()).read().split()) < 2:
    time.sleep(0.01)
print("ready", flush=True)
signal.pause()
"""
IDLE = """
import sys
held = bytearray(16 << 20)
held[:] = bytes(range(1, 251)) * (len(held) // 250 + 1)
print("ready", flush=True)
sys.stdin.read()
"""


IN_PIECES = """
import mmap, sys
pieces = int(sys.argv[1])
held = mmap.mmap(-1, 2 * pieces * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
for piece in range(pieces):
    held[2 * piece * mmap.PAGESIZE] = 1
print("ready", flush=True)
sys.stdin.read()
"""


class Page(bytes):
    """The content of a page; of anonymous memory or not."""

    is_anonymous = False


class Anonymous(Page):
    is_anonymous = True


Pages = dict[int, Page]
Start = Callable[..., int]


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "memory_moves"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", made, MOVES], check=True)
    return made


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []

    def begin(*command: str | Path) -> int:
        process = subprocess.Popen(
            command,
            # The kernel writes to a thread's rseq area whenever that ran, which it does for CRIU before it is compared.
            env={**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process.pid

    yield begin
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


class Taking:
    """Takes commits of a process, and reads all its memory while it stands still for them."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tools = load_settings().tools_path
        self.settings = load_settings(home=home, tools=tools, pre_copy=True)
        self.frozen: dict[int, Pages] = {}
        self.runs = 0
        look, run = room._Dump._notified, room._Dump.run

        def note(dump: Any, script: str, pid: int) -> None:
            if script == "post-dump":
                members = procfs.tree_of(dump._target.root)
                self.frozen = {member: found for member in members if (found := memory_of(member))}
            look(dump, script, pid)

        def count(dump: Any, watch: Any) -> None:
            self.runs += 1
            run(dump, watch)

        monkeypatch.setattr(room._Dump, "_notified", note)
        monkeypatch.setattr(room._Dump, "run", count)

    def commit(self, pid: int) -> dict[int, Pages]:
        """What a commit holds of the memory of each process."""
        taken, found = self.take(pid), {}
        images = taken.staging.images
        scattered = taken.memory.merge(images) if taken.memory is not None else {}
        for member in self.frozen:
            found[member] = pages_of(images, member, scattered)
        taken.discard()
        return found

    def take(self, pid: int, aside: Aside = contextlib.nullcontext) -> Capture:
        with (
            contextlib.closing(Store(self.settings.store)) as store,
            Watchdog(CriuTools(self.settings.tools_path).watchdog) as watchdog,
        ):
            return capture(
                process_target(pid),
                Trigger.MANUAL,
                settings=self.settings,
                store=store,
                watchdog=watchdog,
                aside=aside,
            )


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Taking:
    return Taking(tmp_path, monkeypatch)


def memory_of(pid: int) -> Pages:
    """All private memory of a process that stands still; what cannot be read is not in it."""
    found: Pages = {}
    if not Path(f"/proc/{pid}/maps").read_text():
        return found  # a zombie
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, _, _, inode, *name = line.split(maxsplit=5)
            if rights[3] != "p" or (name and name[0].startswith(NEVER_DUMPED)):
                continue
            first, end = (int(word, 16) for word in span.split("-"))
            kind = Anonymous if inode == "0" and "[vdso]" not in name else Page
            with contextlib.suppress(OSError):
                memory.seek(first)
                data = memory.read(end - first)
                found |= {first + at: kind(data[at : at + PAGE]) for at in range(0, len(data), PAGE)}
    return found


def pages_of(images: Path, pid: int, scattered: Mapping[str, ScatteredPages] | None = None) -> Pages:
    """What the images say that the memory of a process holds; ``scattered``: by page files' names, where it is not in them."""
    name = f"pagemap-{pid}.img"
    number, runs = read_pagemap(name, (images / name).read_bytes())
    pages = (scattered or {}).get(f"pages-{number}.img")
    data, found, at = content_of(pages or images / f"pages-{number}.img"), {}, 0
    for first, count in runs:
        for page in range(first, first + count):
            assert page * PAGE not in found
            found[page * PAGE] = Page(data[at : at + PAGE])
            at += PAGE
    assert at == len(data)
    return found


def content_of(pages: Path | ScatteredPages) -> bytes:
    if isinstance(pages, Path):
        return pages.read_bytes()
    whole = [path.read_bytes() for path in pages.files]
    return b"".join(whole[file][first * PAGE : (first + count) * PAGE] for file, first, count in pages.runs)


def differences(committed: Pages, frozen: Pages) -> list[str]:
    """Addresses of pages that are committed otherwise than they were, or not at all, though a restore would bring zeros."""
    wrong = [hex(at) for at, page in committed.items() if frozen[at] != page]
    lost = [
        hex(at) for at, page in frozen.items() if at not in committed and page.is_anonymous and page != EMPTY
    ]
    return wrong + lost


def test_an_idle_process_is_committed_as_it_stands(start: Start, taking: Taking) -> None:
    """And of its memory CRIU itself has dumped next to nothing."""
    pid = start(sys.executable, "-c", IDLE)
    taken = taking.take(pid)
    images = taken.staging.images
    dumped = len(pages_of(images, pid))
    assert taken.memory is not None
    whole = pages_of(images, pid, taken.memory.merge(images))
    taken.discard()
    assert dumped < 500
    assert len(whole) - dumped > 4096
    assert not differences(whole, taking.frozen[pid])
    taking.settings = load_settings(
        home=taking.settings.home, tools=taking.settings.tools_path, pre_copy=False
    )
    assert taking.commit(pid)[pid].keys() == whole.keys()


@pytest.mark.parametrize(("megabytes", "is_ahead"), [(10, False), (80, True)])
def test_without_a_setting_it_depends_on_how_much_there_is(
    start: Start, taking: Taking, megabytes: int, is_ahead: bool
) -> None:
    taking.settings = load_settings(home=taking.settings.home, tools=taking.settings.tools_path)
    pid = start(sys.executable, "-c", f"more = bytes(range(256)) * {megabytes << 12}\n{IDLE}")
    taken = taking.take(pid)
    assert (taken.memory is not None) is is_ahead
    taken.discard()


def test_whoever_traces_the_process_may_do_so_while_its_memory_is_copied(
    start: Start, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a fatal signal in that time would not be seen."""
    pid = start(sys.executable, "-c", IDLE)
    happened: list[str] = []
    wait = CopiedAhead.wait

    def traced_by() -> str | None:
        return procfs.status_field(pid, "TracerPid")

    def waited(copied: CopiedAhead, limit: float) -> None:
        happened.append(f"copied, traced by {traced_by()}")
        wait(copied, limit)

    @contextlib.contextmanager
    def aside() -> Iterator[None]:
        assert traced_by() == "0"
        happened.append("aside")
        yield
        assert traced_by() == "0"
        happened.append("back")

    monkeypatch.setattr(CopiedAhead, "wait", waited)
    taking.take(pid, aside).discard()
    assert happened == ["aside", "back", "copied, traced by 0", "aside", "back"]


def is_as_it_stood(taking: Taking, pid: int) -> bool:
    """Takes a commit; all processes of the tree are in it with the memory that they had."""
    committed = taking.commit(pid)
    assert committed.keys() == taking.frozen.keys() and pid in committed
    return not any(differences(pages, taking.frozen[member]) for member, pages in committed.items())


@pytest.mark.parametrize("seed", range(2))
def test_memory_that_changes_in_every_way_is_committed_as_it_stands(
    start: Start, taking: Taking, moves: Path, seed: int
) -> None:
    pid = start(moves, str(seed), "8", "64")
    for _ in range(2):
        assert is_as_it_stood(taking, pid)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_memory_is_committed_as_it_stands_whenever_the_tracker_dies(
    start: Start, taking: Taking, moves: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """For long: ``pytest -m soak -k whenever_the_tracker_dies``."""
    pid, chance = start(moves, str(seed), "12", "128"), random.Random(seed)
    wait = CopiedAhead.wait

    def killed_soon(copied: CopiedAhead, limit: float) -> None:
        delay = chance.choice([0.002, 0.03, 0.1]) * chance.random()
        threading.Timer(delay, copied._process.kill).start()
        wait(copied, limit)

    for number in range(6):
        monkeypatch.setattr(CopiedAhead, "wait", wait if number % 3 == 0 else killed_soon)
        assert is_as_it_stood(taking, pid)


@pytest.mark.parametrize("moment", ["at once", "when it is ready", "with all frozen"])
def test_without_its_tracker_a_commit_holds_all_the_same(
    start: Start, taking: Taking, moves: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    pid = start(moves, "7", "8", "64")
    wait, look = CopiedAhead.wait, room._Dump._look_frozen

    def kill(copied: CopiedAhead) -> None:
        copied._process.kill()
        copied._process.wait()

    def waited(copied: CopiedAhead, limit: float) -> None:
        if moment == "at once":
            kill(copied)
        wait(copied, limit)
        if moment == "when it is ready":
            kill(copied)

    def looked(dump: Any, **words: bool) -> None:
        if moment == "with all frozen" and dump._memory is not None:
            kill(dump._memory)
        look(dump, **words)

    monkeypatch.setattr(CopiedAhead, "wait", waited)
    monkeypatch.setattr(room._Dump, "_look_frozen", looked)
    assert is_as_it_stood(taking, pid)
    assert taking.runs == 1
    monkeypatch.undo()


def test_when_copies_are_missing_all_is_dumped_anew(
    start: Start, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(sys.executable, "-c", IDLE)
    wait = CopiedAhead.wait

    def lose_one(copied: CopiedAhead, limit: float) -> None:
        wait(copied, limit)
        copied._copied[pid] = copied._copied[pid][1:]

    monkeypatch.setattr(CopiedAhead, "wait", lose_one)
    assert is_as_it_stood(taking, pid)
    assert taking.runs == 2


def test_the_store_gives_all_of_it_back(start: Start, taking: Taking, tmp_path: Path) -> None:
    pid = start(sys.executable, "-c", IDLE)
    taken = taking.take(pid)
    with contextlib.closing(Store(taking.settings.store)) as store:
        stored = taken.store(store, [])
        target = tmp_path / "images"
        target.mkdir()
        store.images.lay_out(store.manifest(stored.id), target)
    assert not differences(pages_of(target, pid), taking.frozen[pid])
    assert len(pages_of(target, pid)) > 4096


def test_long_runs_are_left_where_they_lie_and_short_ones_are_copied_together(tmp_path: Path) -> None:
    files = tmp_path / "one", tmp_path / "other"
    content = [random.Random(number).randbytes(1000 * PAGE) for number in range(2)]
    for path, data in zip(files, content, strict=True):
        path.write_bytes(data)
    runs = [(0, 0, 5), (1, 7, 1), (0, 5, 400), (1, 0, 7), (0, 405, 100), (0, 505, 200), (1, 300, 700)]
    whole = scattered_in(files, runs, tmp_path / "short")
    assert whole.runs == ((2, 0, 6), (0, 5, 400), (2, 6, 7), (0, 405, 300), (1, 300, 700))
    assert content_of(whole) == b"".join(
        content[file][first * PAGE : (first + count) * PAGE] for file, first, count in runs
    )
    with pytest.raises(OSError, match="a copied page is missing"):
        scattered_in(files, [(1, 999, 2)], tmp_path / "short")


def test_children_are_committed_as_they_stand(start: Start, taking: Taking) -> None:
    pid = start(sys.executable, "-c", "import os\nos.fork()\nos.fork()\n" + ONE_SAYS_READY)
    assert is_as_it_stood(taking, pid)
    assert len(taking.frozen) == 4


def test_what_writes_past_the_page_tables_is_not_copied_ahead(
    start: Start, taking: Taking, tmp_path: Path
) -> None:
    """The kernel does not note what a device writes to a page that was pinned before."""
    (tmp_path / "direct").touch()
    opened = f"import os\nos.open({str(tmp_path / 'direct')!r}, os.O_RDWR | os.O_DIRECT)\n"
    pid = start(sys.executable, "-c", opened + IDLE)
    taken = taking.take(pid)
    assert len(pages_of(taken.staging.images, pid)) > 4096
    taken.discard()


def test_memory_in_many_pieces_is_copied_once(start: Start, tmp_path: Path) -> None:
    """In more than the kernel, or the tracker, collects at a time; behind their end what it found tells from where to go on."""
    pieces = 3000
    pid = start(sys.executable, "-c", IN_PIECES, str(pieces))
    words = [CriuTools(load_settings().tools_path).tracker, tmp_path, "0", str(pid)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tracker:
        assert tracker.stdout is not None
        said = [tracker.stdout.readline() for _ in range(3)]
        tracker.communicate()
    assert said == [b"tracked %d\n" % pid, b"begun\n", b"ready\n"]
    runs = struct.iter_unpack("<QQ", (tmp_path / f"{pid}.runs").read_bytes())
    single = [begin for begin, end in runs if end - begin == PAGE]
    assert len(single) >= pieces
    assert len(set(single)) == len(single)


def test_without_the_program_all_is_dumped(
    start: Start, taking: Taking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(CriuTools, "tracker", tmp_path / "missing")
    pid = start(sys.executable, "-c", IDLE)
    assert is_as_it_stood(taking, pid)


# -- the tracker itself ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracker, which dies before its ptrace call of number $DIE_AT."""
    made = tmp_path_factory.mktemp("native") / "relive-tracker"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-Wl,--wrap=ptrace"]
    sources = [NATIVE / "tracker.c", *(NATIVE / "tracker").glob("*.c"), PROGRAMS / "dies_in_ptrace.c"]
    subprocess.run(["gcc", *flags, "-o", made, *sources], check=True)
    return made


def run_tracker(program: Path, directory: Path, pid: int, die_at: int) -> tuple[int, bytes]:
    """Its status, and what it said."""
    process = subprocess.Popen(
        [program, directory, "0", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"DIE_AT": str(die_at)},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    with process.stdout as pipe:
        said = pipe.read()
    return process.wait(), said


def test_a_tracker_that_dies_anywhere_leaves_the_process_as_it_was(
    start: Start, mortal: Path, tmp_path: Path
) -> None:
    """Its registers, its signals, its memory; and the next tracker takes away what may be left open in it."""
    made = tmp_path / "keeps_registers"
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made, PROGRAMS / "keeps_registers.c"], check=True
    )
    process = subprocess.Popen([made], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin as to, process.stdout as answers:
        assert answers.readline() == b"ready\n"
        dead, at = 0, 0
        while True:
            at += 1
            status, said = run_tracker(mortal, tmp_path, process.pid, at)
            to.write(b"\n")
            to.flush()
            assert answers.readline() == b"round\n", process.wait()
            if status == 0:
                break
            assert status == -signal.SIGKILL
            run_tracker(mortal, Path("-"), process.pid, 0)
            assert not holds_userfault(process.pid)
            dead += 1
            assert dead < 200
        assert said == f"tracked {process.pid}\nbegun\nready\n".encode()
        assert dead > 12
        process.kill()


def holds_userfault(pid: int) -> bool:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path) == "anon_inode:[userfaultfd]":
                return True
    return False
