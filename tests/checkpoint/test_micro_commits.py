"""Commits on top of others, compared page for page with the memory of the process that stands still. With the real CRIU."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from checkpoint.test_copied_ahead import Pages, differences, memory_of, pages_of
from relive.checkpoint import dump as room
from relive.checkpoint import expected_files
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.dump import capture
from relive.checkpoint.dumped import Capture
from relive.checkpoint.kernel_trust import KernelTrust
from relive.checkpoint.micro_commits import MicroCommits
from relive.checkpoint.micro_tracker import MicroTracker
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.target import process_target
from relive.checkpoint.watchdog import Watchdog
from relive.config import load_settings
from relive.errors import DiskFull
from relive.kernel import procfs
from relive.model.commit import Trigger
from relive.store import Store
from relive.store.held_images import HeldImages
from relive.store.pages.page_pool import PagePool, PooledPages
from support.waiting import eventually

TRIES = 10
PROGRAMS = Path(__file__).parent.parent / "programs"


def kernel_says(*prefix: str) -> str:
    """Whether a tracker can read the kernel's objects here: "ok", or why not."""
    tools = CriuTools(load_settings().tools_path)
    said = subprocess.run([*prefix, tools.micro, "kernel"], check=True, capture_output=True, text=True)
    return said.stdout.strip()


class Told:
    """A process that does what it is told."""

    def __init__(self, *command: str | Path) -> None:
        self.process = subprocess.Popen(
            command,
            # The kernel writes to a thread's rseq area whenever that ran, which it does for CRIU before it is compared.
            env={**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        assert self.hear() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def ask(self, word: str) -> str:
        self.begin(word)
        return self.hear()

    def rest(self) -> None:
        """Wait until it reads what it is told next; until then its memory changes."""
        doing = Path(f"/proc/{self.pid}/syscall")
        eventually(lambda: doing.read_text().startswith("0 0x0 "), "it reads its standard input")

    def begin(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Taking:
    """Takes commits of a tree, and reads all memory of its processes while they stand still for them.

    Attributes:
        reasons: of all commits that were refused.
        captures: names of all that were taken.
        committed: of each process the pages of the last commit.
        waits: each commit waits for us in its pause, whatever is known of files; else memory is read when it is over.
    """

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = load_settings(home=home, tools=load_settings().tools_path, micro=True)
        self.store = Store(self.settings.store)
        tools = CriuTools(self.settings.tools_path)
        self.micro = self._new_micro()
        self._watchdog = Watchdog(tools.watchdog)
        self.frozen: dict[int, Pages] = {}
        self.committed: dict[int, Pages] = {}
        self.before: Mapping[
            str, PooledPages
        ] = {}  # of the commit before, whose hashes the next one's go on from
        self.reasons: list[str] = []
        self.captures: list[str] = []
        self.waits = True
        refused = MicroCommits._refused

        def hear(micro: MicroCommits, refusal: Exception) -> None:
            self.reasons.append(str(refusal))
            refused(micro, refusal)

        monkeypatch.setattr(MicroCommits, "_refused", hear)
        collect = room._Dump._collect_open_files

        def note(dump: Any) -> None:
            self.note(dump._target.root)
            collect(dump)

        expected = room._Dump._expected
        monkeypatch.setattr(room._Dump, "_expected", lambda dump: None if self.waits else expected(dump))
        monkeypatch.setattr(room._Dump, "_collect_open_files", note)

    def _new_micro(self) -> MicroCommits:
        tools, home = CriuTools(self.settings.tools_path), self.settings.home
        return MicroCommits(tools, self.store, KernelTrust(home), SuspectCaptures(home))

    def begin_anew(self) -> None:
        """Go on as another agent would, which knows nothing of the commits before."""
        self.micro.close()
        self.micro = self._new_micro()

    def note(self, root: int) -> None:
        self.frozen = {pid: memory_of(pid) for pid in procfs.tree_of(root)}

    def take(self, pid: int) -> Capture:
        return capture(
            process_target(pid),
            Trigger.MANUAL,
            settings=self.settings,
            store=self.store,
            watchdog=self._watchdog,
            micro=self.micro,
        )

    def commit(self, pid: int) -> bool:
        """Take one, which has to hold all memory as it was; whether it was taken on top of another."""
        self.micro.reason = "a full commit"
        taken = self.take(pid)
        self.captures.append(taken.name)
        if taken.held is not None:
            self.write_out(taken.held, taken.staging.images)
        if self.micro.reason is None and not self.waits:
            self.note(pid)
        self.check(taken.staging.images)
        self.done(taken)
        assert taken.full_because == self.micro.reason
        return self.micro.reason is None

    def done(self, taken: Capture) -> None:
        """With what was compared."""
        taken.discard()

    def check(self, images: Path) -> None:
        self.committed = {pid: pages_of(images, pid) for pid, frozen in self.frozen.items() if frozen}
        for pid, committed in self.committed.items():
            assert not differences(committed, self.frozen[pid])

    def write_out(self, held: HeldImages, images: Path) -> None:
        for name, small in held.small.items():
            (images / name).write_bytes(small)
        for name, pages in held.pages.items():
            data = pages.window(0, len(pages)).tobytes()
            assert pages.hashed(len(data), self.before.get(name)) == blake3(data).hexdigest()
            (images / name).write_bytes(data)
        self.before = held.pages

    def base(self, pid: int) -> None:
        """Take full commits until the next could be taken on top; on a loaded machine a thread may not stop in time."""
        for _ in range(TRIES):
            self.micro._refusals = 0  # each is a try, however often it was refused before
            self.commit(pid)
            if self.micro._base is not None:
                return
        pytest.fail(str(self.micro.reason))

    def follow(self, told: Told, *words: str) -> None:
        """Have words done, and take a commit on top; once more where a full one was taken."""
        for _ in range(TRIES):
            self.micro._refusals = 0
            for word in words:
                told.ask(word)
            if not self.waits:
                told.rest()
            if self.commit(told.pid):
                return
        pytest.fail(str(self.micro.reason))

    def close(self) -> None:
        self.micro.close()
        self._watchdog.close()
        self.store.close()


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "memory_moves"
    source = PROGRAMS / "memory_moves.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", made, source], check=True)
    return made


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    found = Told(sys.executable, PROGRAMS / "micro_traps.py", tmp_path / "written")
    yield found
    found.end()


def test_commits_follow_each_other_while_a_process_works(told: Told, taking: Taking) -> None:
    assert not taking.commit(told.pid)
    for _ in range(5):
        taking.follow(told, "count")
    assert int(told.ask("count")) >= 6


def test_nobody_is_waited_for_where_files_are_as_they_were(
    told: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking.base(told.pid)
    taking.waits = False
    for words, waited in (["objects"], False), (["write"], True), (["objects"], False):
        # On a loaded machine a commit begins much later than 20 ms after the write.
        monkeypatch.setattr(expected_files, "CLOCK_GRAIN_NS", 3_600_000_000_000 if waited else 20_000_000)
        for _ in range(TRIES):
            taking.follow(told, *words)
            if taking.micro.waits is waited:
                break
        else:
            pytest.fail(f"{words}: {waited} is not seen")
    assert not taking.reasons


@pytest.mark.parametrize(
    "words",
    [
        ("objects",),
        ("map", "unmap", "give back", "free"),
        ("huge pages", "move"),
        ("not to children",),
        ("regions",),
        ("write", "mask", "break", "timer"),
    ],
    ids=" ".join,
)
def test_changes_of_memory_files_and_masks_are_followed(
    told: Told, taking: Taking, words: tuple[str, ...]
) -> None:
    taking.base(told.pid)
    taking.follow(told, *words)
    taking.follow(told, "count")
    assert int(told.ask("count")) >= 2


def test_what_is_given_back_with_its_page_tables_is_not_taken_for_unchanged(
    told: Told, taking: Taking
) -> None:
    told.ask("large")
    taking.base(told.pid)
    taking.follow(told, "count")
    taking.follow(told, "give large back")


def test_what_was_written_to_a_file_s_mapping_right_behind_other_memory_stays(
    told: Told, taking: Taking
) -> None:
    """It is in no later commit's written pages, so each has to know from the one before that it is not the file's."""
    told.ask("file behind memory")
    maps = Path(f"/proc/{told.pid}/maps").read_text().splitlines()
    [start] = [int(line.split("-")[0], 16) for line in maps if line.endswith("micro_traps.py")]
    taking.base(told.pid)
    for _ in range(3):
        taking.follow(told, "count")
        assert taking.committed[told.pid].get(start) == bytes([7]) * 4096


def test_a_byte_that_stays_in_a_pipe_is_none_that_is_under_way(told: Told, taking: Taking) -> None:
    """libuv keeps one as a lock."""
    told.ask("data in a pipe")
    taking.base(told.pid)
    taking.follow(told, "count")
    assert int(told.ask("count")) >= 2


def test_a_stream_that_has_ended_stays_as_it_is(told: Told, taking: Taking) -> None:
    """Java keeps one, of which poll says for ever that it can be read."""
    told.ask("ended pair")
    taking.base(told.pid)
    taking.follow(told, "count")
    assert int(told.ask("count")) >= 2


@pytest.mark.parametrize(
    ("before", "word", "reason"),
    [
        ("nothing", "execute", ""),
        ("nothing", "thread", "threads have begun or ended"),
        ("nothing", "empty in children", "advice"),
        ("nothing", "shared", "a mapping is new"),
        ("nothing", "memory file", "something has changed"),
        ("nothing", "descriptor", "something has changed"),
        ("nothing", "replace descriptor", "something has changed"),
        ("nothing", "unlinked", "something has changed"),
        ("handle", "handle otherwise", "action has changed"),
        ("nothing", "alternate stack", "altstack has changed"),
        ("nothing", "directory", "something has changed"),
        ("nothing", "mode of files", "something has changed"),
        ("nothing", "name", "something has changed"),
        ("nothing", "subreaper", "subreaper has changed"),
        ("nothing", "death signal", "pdeath_sig has changed"),
        ("nothing", "not dumpable", "dumpable has changed"),
        ("nothing", "limit", "something has changed"),
        ("nothing", "listen", "something has changed"),
        ("nothing", "socket option", "something has changed"),
        ("nothing", "data in a pipe", "something has changed"),
        ("nothing", "watch for clients", "watches has changed"),
    ],
)
def test_what_is_not_followed_leads_to_a_full_commit(
    told: Told, taking: Taking, before: str, word: str, reason: str
) -> None:
    """And the commit that is taken instead holds all as it is."""
    told.ask(before)
    taking.base(told.pid)
    taking.reasons.clear()
    if word == "execute":
        assert told.ask(word) == "ready"
    else:
        told.ask(word)
    assert not taking.commit(told.pid)
    assert any(reason in said for said in taking.reasons)
    assert told.ask("count") == "1"


@pytest.mark.parametrize("seed", range(2))
def test_memory_that_changes_in_every_way_is_committed_as_it_stands(
    taking: Taking, moves: Path, seed: int
) -> None:
    process = Told(moves, str(seed), "6", "24", "alone", "rests")
    try:
        taking.base(process.pid)
        on_top = 0
        for _ in range(10 * TRIES):
            # What advice a mapping has is read after the pause. Of one that is gone by then nothing is known, and a full commit is
            # taken; that is so where it was paused amid changes, and it is tried again at once.
            taking.micro._refusals = 0
            on_top += taking.commit(process.pid)
            if on_top == 3:
                break
    finally:
        process.end()
    assert on_top == 3


def test_a_tracker_with_real_time_priority_looks_with_two_threads_and_finds_the_same(
    told: Told, taking: Taking
) -> None:
    policy, ordinary = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("no real-time priority can be had here")
    try:
        told.ask("large")
        taking.base(told.pid)
    finally:
        os.sched_setscheduler(0, policy, ordinary)
    tracker = taking.micro._tracker
    for words in (["count"], ["objects", "map"], ["give back"], ["write"], ["count"]):
        taking.follow(told, *words)
    assert taking.micro._tracker is tracker and tracker is not None
    threads = os.listdir(f"/proc/{tracker.pid}/task")
    assert len(threads) == (2 if os.cpu_count() != 1 and kernel_says() == "ok" else 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 140))
def test_memory_is_committed_as_it_stands_for_long(taking: Taking, moves: Path, seed: int) -> None:
    """``pytest -m soak tests/checkpoint/test_micro_commits.py -k for_long``."""
    words = ["alone"] if seed % 4 else []
    process = Told(moves, str(seed), "6", "24", *words)
    try:
        for _ in range(250):
            taking.commit(process.pid)
    finally:
        process.end()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(200, 260))
def test_nothing_is_lost_whenever_the_tracker_dies(taking: Taking, moves: Path, seed: int) -> None:
    """``pytest -m soak tests/checkpoint/test_micro_commits.py -k tracker_dies``: 3,600 kills at any moment of a commit."""
    process, chance = Told(moves, str(seed), "4", "16", "alone"), random.Random(seed)
    try:
        for number in range(120):
            if number % 2:
                tracker = taking.micro._tracker
                if tracker is not None:
                    threading.Timer(
                        chance.choice([0.001, 0.01, 0.1]) * chance.random(), tracker._process.kill
                    ).start()
            taking.commit(process.pid)
            assert process.process.poll() is None
    finally:
        process.end()


@pytest.mark.parametrize("moment", ["before", "stop", "go"])
def test_without_its_tracker_a_full_commit_is_taken(
    told: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    taking.base(told.pid)
    told.ask("objects")

    def kill(tracker: MicroTracker) -> None:
        tracker._process.kill()
        tracker._process.wait()

    assert taking.micro._tracker is not None
    stop, go = MicroTracker.stop, MicroTracker.go
    if moment == "before":
        kill(taking.micro._tracker)
    elif moment == "stop":
        monkeypatch.setattr(MicroTracker, "stop", lambda one, target: (stop(one, target), kill(one)))
    else:
        monkeypatch.setattr(MicroTracker, "go", lambda one: (kill(one), go(one)))
    taking.commit(told.pid)
    monkeypatch.setattr(MicroTracker, "stop", stop)
    monkeypatch.setattr(MicroTracker, "go", go)
    taking.follow(told, "count")
    assert int(told.ask("count")) >= 2


def test_a_full_disk_is_said_and_nothing_is_built_on_what_was_not_written(
    told: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking.base(told.pid)
    told.ask("objects")
    told.ask("much")
    add = PagePool.add_changed

    def fail(*_words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PagePool, "add_changed", fail)
    with pytest.raises(DiskFull):
        taking.take(told.pid)
    kept = [path.stat().st_size for path in taking.micro._told._files]
    assert kept
    assert max(kept) <= 4 << 20, "what had changed stays in memory"
    monkeypatch.setattr(PagePool, "add_changed", add)
    assert not taking.commit(told.pid)
    taking.follow(told, "count")


def test_a_full_disk_stops_the_process_no_second_time(
    told: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran again when the pages were to be written, and the tracker held nothing that the watchdog had to free."""
    told.ask("count continues")
    taking.base(told.pid)

    def fail(*_words: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PagePool, "add_changed", fail)
    told.ask("objects")
    with pytest.raises(DiskFull):
        taking.take(told.pid)
    assert told.ask("continued") == "0"


def test_a_process_with_a_userfaultfd_of_its_own_is_committed_whole(told: Told, taking: Taking) -> None:
    """CRIU cannot dump one either, so all that is to be seen is that the process is left alone."""
    told.ask("userfaultfd")
    taking.micro.begin_base(process_target(told.pid))
    assert "userfaultfd" in (taking.micro.reason or "")
    assert told.ask("count") == "1"


def test_what_is_longer_than_is_read_is_not_taken_for_unchanged(told: Told, taking: Taking) -> None:
    told.ask("watch much")
    taking.reasons.clear()
    for _ in range(2):
        assert not taking.commit(told.pid)
    assert any("longer" in said for said in taking.reasons)
    assert told.ask("count") == "1"


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    native, made = PROGRAMS.parent.parent / "native", tmp_path_factory.mktemp("programs") / "scans_pieces"
    rooms = [*(native / "micro").glob("*.c"), *(native / "tracker").glob("*.c")]
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-ffunction-sections", "-Wl,--gc-sections"]
    subprocess.run(["gcc", *flags, "-o", made, PROGRAMS / "scans_pieces.c", *rooms], check=True)
    return made


@pytest.mark.parametrize("pieces", [1, 511, 512, 513, 600, 3000])
def test_memory_in_many_pieces_is_found_once_and_in_order(scans: Path, pieces: int) -> None:
    """Also where there are more than the kernel collects at a time."""
    said = subprocess.run([scans, str(pieces)], check=True, capture_output=True, text=True).stdout
    assert said.split() == [str(pieces), "0"]
