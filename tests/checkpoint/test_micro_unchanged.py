"""What is told of a process again because the kernel's objects did not change is what is found by asking. With the real tracker.

Each thing that can change does so once. Where this host cannot read the kernel all is asked, and nothing is tested.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.micro_record import FullCommitNeeded, MicroRecord, Seen, read_record
from relive.checkpoint.micro_tracker import MicroTracker
from relive.config import load_settings
from support.waiting import eventually

from .test_micro_commits import kernel_says

PROGRAM = Path(__file__).parent.parent / "programs" / "facts_change.py"
# Nothing of it is told, or not here: advice is told apart. Signal masks are read with the registers.
UNSEEN = frozenset({"advice", "opened again", "local backlog", "block", "lingers in FIN"})
TIMESTAMP = 10  # among the words of a connection's numbers
TO_COMPARE = "all, to compare"


class Changing:
    def __init__(self, directory: Path, *words: str, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, PROGRAM, *words],
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        assert self.process.stdout is not None
        ready, *self.words = self.process.stdout.readline().strip().split("|")
        assert ready == "ready"

    def change(self, word: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        assert self.process.stdout.readline().strip() == "done", word
        # Until it reads what it is told next its memory changes.
        doing = Path(f"/proc/{self.process.pid}/syscall")
        eventually(lambda: doing.read_text().startswith("0 0x0 "), "it reads its standard input")

    def links(self) -> dict[int, str]:
        return {int(one.name): os.readlink(one) for one in Path(f"/proc/{self.process.pid}/fd").iterdir()}

    def anonymous(self) -> list[int]:
        return [number for number, goal in self.links().items() if goal.startswith("anon_inode:")]

    def sockets(self) -> set[str]:
        return {f"descriptor {number}" for number, goal in self.links().items() if goal.startswith("socket:")}

    def number_of(self, name: str) -> int:
        """The last that leads to a file of that name."""
        return max(number for number, goal in self.links().items() if goal.endswith("/" + name))

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Changing]:
    (tmp_path / "empty").mkdir()
    found = Changing(tmp_path / "empty")
    yield found
    found.end()


class Tracking:
    """A tracker. ``begin`` has it forget all, and asks everything."""

    def __init__(self, pid: int, directory: Path) -> None:
        self._tracker = MicroTracker(CriuTools(load_settings().tools_path), [pid], is_capsule=False)
        self._file = directory / "record"

    def begin(self) -> Seen:
        self._tracker.begin_base()
        self._tracker.look(self._file)
        return self.commit().seen

    def commit(self) -> MicroRecord:
        if self._tracker.stop(self._file):
            self._tracker.go()
        return read_record(self._file)

    def close(self) -> None:
        self._tracker.close()


def joined(seen: Seen) -> list[tuple[int, int, str, str]]:
    """Mappings; what is new is one of its own until a tracker follows it, and then one with its neighbour."""
    found: list[tuple[int, int, str, str]] = []
    for one in seen.mappings:
        start = one.start
        if found and not one.inode and found[-1][1:] == (start, one.rights, one.name):
            start = found.pop()[0]
        found.append((start, one.end, one.rights, one.line if one.inode else one.name))
    return found


def numbers(seen: Seen) -> list[list[int]]:
    """Where connections stand, without their timestamps."""
    return sorted(words[:TIMESTAMP] + words[TIMESTAMP + 1 :] for words in seen.streams)


def hidden_of(seen: Seen) -> list[list[str]]:
    """What the process told; of what is left of its interval timers only whether there is something."""
    found = [line.split() for line in seen.hidden]
    for words in found:
        if words[0] == "interval_timers":
            words[3::4] = [str(bool(int(left))) for left in words[3::4]]
            words[4::4] = ["" for _ in words[4::4]]
    return found


def differences(one: Seen, other: Seen) -> list[object]:
    """All that is told of a process but for the clocks of connections, what is left of timers, and advice, read later."""
    found: list[object] = []
    if hidden_of(one) != hidden_of(other):
        found += [hidden_of(one), hidden_of(other)]
    for name in ("lines", "connections"):
        found += [fact for fact in getattr(one, name) if fact not in getattr(other, name)]
        found += [fact for fact in getattr(other, name) if fact not in getattr(one, name)]
    if joined(one) != joined(other):
        found += [joined(one), joined(other)]
    if numbers(one) != numbers(other):
        found += [numbers(one), numbers(other)]
    for name in ("positions", "watched", "ghosts", "pending", "pid", "inside"):
        if getattr(one, name) != getattr(other, name):
            found += [getattr(one, name), getattr(other, name)]
    return found


@pytest.fixture
def tracking(changing: Changing, tmp_path: Path) -> Iterator[Tracking]:
    found = Tracking(changing.process.pid, tmp_path)
    yield found
    found.close()


needs_kernel = pytest.mark.skipif(kernel_says() != "ok", reason="the kernel's objects cannot be read here")


@needs_kernel
def test_each_change_is_told_as_if_all_was_asked(changing: Changing, tracking: Tracking) -> None:
    asked = tracking.begin()
    assert "process" in asked.asked
    for word in changing.words:
        again = tracking.commit().seen
        assert not differences(again, asked), f"nothing was changed before {word!r}"
        changing.change(word)
        changed = tracking.commit().seen
        assert differences(changed, asked) or word in UNSEEN, word
        asked = tracking.begin()
        assert not differences(changed, asked), word


@pytest.fixture
def changing_connection(tmp_path: Path) -> Iterator[Changing]:
    (tmp_path / "empty").mkdir()
    found = Changing(tmp_path / "empty", "connection")
    yield found
    found.end()


@pytest.fixture
def tracking_connection(changing_connection: Changing, tmp_path: Path) -> Iterator[Tracking]:
    found = Tracking(changing_connection.process.pid, tmp_path)
    yield found
    found.close()


@needs_kernel
def test_each_change_of_a_connection_is_told_as_if_all_was_asked(
    changing_connection: Changing, tracking_connection: Tracking
) -> None:
    """Options, bytes in either queue, urgent ones, ends, another connection of the same number."""
    tracking, known = tracking_connection, 0
    asked = tracking.begin()
    for word in changing_connection.words:
        again = tracking.commit().seen
        known += bool(again.streams) and not any("descriptor" in one for one in of_sockets(again))
        assert not differences(again, asked), f"nothing was changed before {word!r}"
        changing_connection.change(word)
        changed = tracking.commit().seen
        assert differences(changed, asked) or word in UNSEEN, word
        asked = tracking.begin()
        assert not differences(changed, asked), word
    assert known > len(changing_connection.words) // 2


def of_sockets(seen: Seen) -> list[str]:
    """Of which connections something was asked."""
    return [one for one in seen.asked if any(one == f"descriptor {c.descriptor}" for c in seen.connections)]


@needs_kernel
def test_a_connection_that_goes_on_is_asked_once(
    changing_connection: Changing, tracking_connection: Tracking
) -> None:
    """Once, and once more to compare; with bytes that wait again."""
    changing_connection.change("connected")
    tracking_connection.begin()
    tracking_connection.commit()
    before = tracking_connection.commit().seen
    for word in ("asked and answered", "asked and answered again"):
        for _ in range(5):  # on a busy machine the last bytes may not be acknowledged by then
            changing_connection.change(word)
            seen = tracking_connection.commit().seen
            if not of_sockets(seen):
                break
        assert len(seen.streams) == 2
        assert not of_sockets(seen)
        assert numbers(seen) != numbers(before)
        before = seen
    changing_connection.change("asked")
    assert of_sockets(tracking_connection.commit().seen)


@pytest.fixture
def changing_apart(tmp_path: Path) -> Iterator[Changing]:
    """In a network of its own, whose settings are nobody else's."""
    (tmp_path / "empty").mkdir()
    apart = ("unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    found = Changing(tmp_path / "empty", "connection", prefix=apart)
    yield found
    found.end()


@needs_kernel
@pytest.mark.parametrize(
    "setting", ["ip_default_ttl", "tcp_keepalive_time", "tcp_keepalive_intvl", "tcp_keepalive_probes"]
)
def test_what_a_connection_has_of_its_network_is_not_missed(
    changing_apart: Changing, tmp_path: Path, setting: str
) -> None:
    changing_apart.change("connected")
    tracking = Tracking(changing_apart.process.pid, tmp_path)
    try:
        tracking.begin()
        for _ in range(2):
            before = tracking.commit().seen
        assert not of_sockets(before)
        changed = f"echo 77 > /proc/sys/net/ipv4/{setting}"
        subprocess.run(
            ["nsenter", "-t", str(changing_apart.process.pid), "-n", "sh", "-c", changed], check=True
        )
        after = tracking.commit().seen
        assert differences(after, before)
        assert not differences(after, tracking.begin())
    finally:
        tracking.close()


@needs_kernel
def test_sockets_that_somebody_lists_are_not_asked(changing_apart: Changing, tmp_path: Path) -> None:
    """By sock_diag(7), as ss and CRIU do: it gives each socket that has none a cookie, of which nothing is told."""
    changing_apart.change("connected")
    tracking = Tracking(changing_apart.process.pid, tmp_path)
    try:
        tracking.begin()
        for _ in range(2):
            before = tracking.commit().seen
        known = changing_apart.sockets() - set(before.asked)
        assert len(known) == 7  # two of the connection, and five others; one without is always asked
        lists = f"nsenter -t {changing_apart.process.pid} -n ss --all --tcp --udp --unix".split()
        found = subprocess.run(lists, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert {line.split()[0] for line in found.splitlines()} >= {"tcp", "udp", "u_str"}
        after = tracking.commit().seen
        assert not known & set(after.asked)
        assert not differences(after, before)
    finally:
        tracking.close()


@needs_kernel
def test_a_clock_of_a_connection_is_that_of_the_kernel(
    changing_connection: Changing, tracking_connection: Tracking
) -> None:
    changing_connection.change("connected")
    first = timestamps(tracking_connection.begin())
    for _ in range(3):
        record = tracking_connection.commit()
    assert not of_sockets(record.seen)
    later = timestamps(record.seen)
    asked = timestamps(tracking_connection.begin())
    for inode, stamp in first.items():
        assert stamp <= later[inode] <= asked[inode]


def timestamps(seen: Seen) -> dict[int, int]:
    return {words[0]: words[TIMESTAMP] for words in seen.streams}


@needs_kernel
def test_all_is_asked_now_and_then(changing: Changing, tracking: Tracking) -> None:
    """In the first commit in which something is known, and in each 256th after it."""
    tracking.begin()
    compared = [TO_COMPARE in tracking.commit().seen.asked for _ in range(514)]
    assert [number for number, whether in enumerate(compared) if whether] == [0, 256, 512]


@needs_kernel
def test_what_did_not_change_is_not_asked(changing: Changing, tracking: Tracking) -> None:
    always = {f"descriptor {number}" for number in changing.anonymous()}
    assert tracking.begin().asked
    assert set(tracking.commit().seen.asked) == always | {TO_COMPARE, "advice"}
    assert set(tracking.commit().seen.asked) == always
    changing.change("flags")
    asked = set(tracking.commit().seen.asked) - {"advice"}  # the program may have taken memory meanwhile
    assert asked == always | {f"descriptor {changing.number_of('file')}"}
    changing.change("new")
    new = changing.number_of("second")
    for _ in range(2):  # it was in no plan, or it was told the first time
        assert f"descriptor {new}" in tracking.commit().seen.asked


@needs_kernel
def test_advice_for_memory_is_asked_only_when_mappings_may_have_changed(
    changing: Changing, tracking: Tracking
) -> None:
    tracking.begin()
    assert TO_COMPARE in tracking.commit().seen.asked  # and advice with it
    before = tracking.commit().seen
    assert "advice" not in before.asked and before.flags
    changing.change("advice")
    changed = tracking.commit().seen
    assert "advice" in changed.asked
    own = [
        start
        for start, flags in changed.flags.items()
        if "dc" in flags and "dc" not in before.flags.get(start, frozenset())
    ]
    assert len(own) == 1
    again = tracking.commit().seen
    assert "advice" not in again.asked and again.flags == changed.flags


@needs_kernel
def test_a_mapped_file_that_was_renamed_between_two_commits_is_noticed(
    changing: Changing, tracking: Tracking
) -> None:
    changing.change("mapping of a file")
    tracking.begin()
    for _ in range(2):  # in the first all is asked, which makes mappings count as changed
        assert any(one.name.endswith("/mapped") for one in tracking.commit().seen.mappings)
    mapped = Path(f"/proc/{changing.process.pid}/cwd/mapped").resolve()
    mapped.rename(mapped.with_name("renamed"))
    with pytest.raises(FullCommitNeeded, match="renamed"):
        tracking.commit()


@needs_kernel
def test_of_threads_that_do_not_share_all_everything_is_asked(changing: Changing, tracking: Tracking) -> None:
    """What the first one has would be told of all."""
    tracking.begin()
    assert "process" not in tracking.commit().seen.asked
    changing.change("own directories of a thread")
    tracking.begin()
    for _ in range(2):
        assert "process" in tracking.commit().seen.asked


def test_a_host_whose_kernel_cannot_be_read_says_why() -> None:
    assert "BPF" in kernel_says("setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-all")
