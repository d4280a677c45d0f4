"""Which looks at a process allow a commit on top of another."""

from __future__ import annotations

import pytest

from relive.checkpoint.micro_fingerprint import check_same, check_trackable, new_mappings
from relive.checkpoint.micro_record import FullCommitNeeded, NotNow, Seen
from relive.images import criu_images_pb2 as pb

FD = "fd 3 mode {mode} device fe00 inode 5 links {links} special {special} flags {flags} same -1 goal {goal}"
INFO = "fd 3 info pos:\t0|flags:\t02| "
PLAIN = "rd wr mr mw me ac sd"


def descriptor(
    mode: str = "100644",
    links: str = "1",
    special: str = "0:0",
    flags: str = "100001",
    goal: str = "/var/log/x",
) -> str:
    return FD.format(mode=mode, links=links, special=special, flags=flags, goal=goal)


def seen(*lines: str) -> Seen:
    found = Seen()
    found.read("\n".join(lines))
    return found


@pytest.mark.parametrize(
    "line",
    [
        "children ",
        "timers ID: 0|signal: 14/00|",
        "timens_offsets monotonic           0         0|boottime            0         0|",
        descriptor(),
        descriptor(mode="20666", special="1:3", goal="/dev/null"),
        descriptor(mode="600", goal="anon_inode:[eventpoll]"),
        INFO + "name=02 peer= family=2 in=-1 out=-1 ready=0",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=0",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=2011 1.3=01000000",
        INFO + "in=0 size=65536",
        INFO + "ino:\t9|clockid: 1| owner=0 signal=0",
        "=map 1000-2000 rw-s 00000000 fe:00 7 /var/lib/ring",
        "=map 1000-2000 r--p 00000000 00:01 7 /memfd:code (deleted)",
        "=map 1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)",
    ],
)
def test_what_is_followed(line: str) -> None:
    check_trackable(seen(line))


NAMELESS = descriptor(links="0", goal="/tmp/beat (deleted)")
GHOST = "=ghost 3 0 0 10 5 20 6"


def test_processes_of_the_same_tree_are_followed() -> None:
    check_trackable(seen("children 17 18 "), {5, 17, 18})
    with pytest.raises(FullCommitNeeded, match="not followed"):
        check_trackable(seen("children 17 18 "), {5, 17})


def test_a_file_without_a_name_is_followed_where_nothing_is_in_it() -> None:
    found = seen(NAMELESS, "=position 3 0 0", GHOST)
    check_trackable(found)
    assert found.ghosts[3].modified == (20, 6)
    for lines in ((NAMELESS, "=position 3 0 1", GHOST), (NAMELESS, "=position 3 0 0"), (NAMELESS, GHOST)):
        with pytest.raises(FullCommitNeeded, match="without a name"):
            check_trackable(seen(*lines))


def test_the_first_thread_says_which_process_it_is() -> None:
    found = seen("thread 50 Name:\tx", "thread 50 NSpid:\t50\t7", "thread 51 NSpid:\t51\t8")
    assert (found.pid, found.inside) == (50, 7)


@pytest.mark.parametrize(
    "line",
    [
        "children 17 ",
        "timens_offsets monotonic           5         0|boottime            0         0|",
        descriptor(links="0"),
        descriptor(goal="/tmp/x (deleted)"),
        descriptor(goal="/memfd:x (deleted)"),
        descriptor(flags="140001"),
        descriptor(mode="20620", special="88:1", goal="/dev/pts/1"),
        descriptor(mode="60660", special="fe:0", goal="/dev/vda"),
        descriptor(mode="600", goal="anon_inode:[io_uring]"),
        INFO + "name=02 peer=0200 family=2 in=0 out=0 ready=0",
        INFO + "name=02 peer= family=2 in=-1 out=-1 ready=1",
        INFO + "name=10 peer= family=16 in=0 out=0 ready=0",
        INFO + "name=01 peer=0100 family=1 in=4 out=0 ready=1",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=2011 1.3=05000000",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=2013 1.3=01000000",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=2019 1.3=01000000",
        INFO + "name=01 peer=0100 family=1 in=0 out=0 ready=2001 1.3=01000000",
        INFO + "name=01 peer= family=1 in=-1 out=-1 ready=2011 1.3=01000000",
        INFO + "hidden=1",
        INFO + "ino:\t9|clockid: 7| owner=0 signal=0",
        "=map 1000-2000 rw-s 00000000 00:01 7 /memfd:x (deleted)",
        "=map 1000-2000 rw-p 00000000 00:01 7 /anon_hugepage (deleted)",
    ],
)
def test_what_is_not_followed(line: str) -> None:
    with pytest.raises(FullCommitNeeded):
        check_trackable(seen(line))


def test_each_word_counts() -> None:
    check_same(seen("a 1", "=position 3 0 0"), seen("a 1", "=position 3 9 9"))
    for other in (seen("a 2"), seen("a 1", "b"), seen()):
        with pytest.raises(FullCommitNeeded):
            check_same(seen("a 1"), other)


def test_a_signal_may_be_pending_in_the_base_only() -> None:
    pending = seen("a 1", "=pending 5 ShdPnd:\t0000000000004000")
    check_same(pending, seen("a 1"))
    with pytest.raises(NotNow, match="ShdPnd"):
        check_same(seen("a 1"), pending)


def test_a_thread_that_begins_or_ends_is_called_so() -> None:
    one, two = ("thread 7 CapAmb:\t0", "thread 7 Name:\tx"), ("thread 8 CapAmb:\t0", "thread 8 Name:\tx")
    for base, now, told in (
        (one, (*one, *two), "1 and 0"),
        ((*one, *two), one, "0 and 1"),
        (one, two, "1 and 1"),
    ):
        with pytest.raises(FullCommitNeeded, match=f"threads have begun or ended: {told}$"):
            check_same(seen(*base), seen(*now))
    with pytest.raises(FullCommitNeeded, match="something has changed: thread 7 CapAmb:\t1"):
        check_same(seen(*one), seen("thread 7 CapAmb:\t1", one[1]))


def area(
    start: int, end: int, rights: str = "rw-p", rest: str = "00:00 0", flags: str = PLAIN
) -> tuple[str, str]:
    return f"=map {start:x}-{end:x} {rights} 00000000 {rest}", f"=flags {start:x} {flags}"


def entry(start: int, end: int) -> pb.VmaEntry:
    return pb.VmaEntry(start=start, end=end, pgoff=0, shmid=0, prot=3, flags=0x22, status=0x201, fd=-1)


LIBRARY = area(0x9000, 0xA000, "r-xp", "fe:00 5 /lib/x.so", "rd ex mr mw me")
BASE = seen(*area(0x1000, 0x3000), *LIBRARY)
ENTRIES = [entry(0x1000, 0x3000), entry(0x9000, 0xA000)]


def spans(now: Seen) -> list[tuple[int, int, int]]:
    return [(one.start, one.end, one.prot) for one in new_mappings(BASE, now, ENTRIES)]


def test_private_memory_may_grow_come_go_and_change_its_rights() -> None:
    assert spans(seen(*area(0x1000, 0x4000), *LIBRARY))[0] == (0x1000, 0x4000, 3)
    assert spans(seen(*LIBRARY)) == [(0x9000, 0xA000, 3)]
    assert spans(seen(*area(0x1000, 0x3000, "r--p"), *LIBRARY))[0] == (0x1000, 0x3000, 1)
    [made, _] = new_mappings(BASE, seen(*area(0x5000, 0x6000, flags=PLAIN + " dc hg nr"), *LIBRARY), ENTRIES)
    assert (made.flags, made.madv, made.status) == (0x4022, 1 << 14 | 1 << 10, 0x201)


def test_what_the_kernel_gives_stays_as_criu_has_saved_it() -> None:
    """Also where two neighbours are one for CRIU: without the second whoever reads the time dies in a branch."""
    data = (
        area(0x20000, 0x24000, "r--p", "00:00 0 [vvar]", "rd mr"),
        area(0x24000, 0x26000, "r--p", "00:00 0 [vvar_vclock]", "rd mr"),
    )
    now = seen(*area(0x1000, 0x3000), *LIBRARY, *data[0], *data[1])
    made = new_mappings(now, now, [*ENTRIES, entry(0x20000, 0x26000)])
    assert [(one.start, one.end) for one in made] == [(0x1000, 0x3000), (0x9000, 0xA000), (0x20000, 0x26000)]


@pytest.mark.parametrize(
    "now",
    [
        seen(*area(0x1000, 0x3000)),
        seen(*area(0x1000, 0x3000), *area(0x9000, 0xA000, "rwxp", "fe:00 5 /lib/x.so")),
        seen(*area(0x1000, 0x3000), *LIBRARY, *area(0xB000, 0xC000, "r-xp", "fe:00 6 /lib/y.so")),
        seen(*area(0x1000, 0x3000, flags=PLAIN + " wf"), *LIBRARY),
        seen(*area(0x1000, 0x3000, flags=PLAIN + " lo"), *LIBRARY),
    ],
    ids=[
        "library gone",
        "library changed",
        "another library",
        "empty in children",
        "locked",
    ],
)
def test_other_mappings_may_not(now: Seen) -> None:
    with pytest.raises(FullCommitNeeded):
        new_mappings(BASE, now, ENTRIES)


def test_memory_that_is_not_seen_afterwards_is_no_reason_to_try_seldomer() -> None:
    """It went right after the pause, as engines of languages have it now and then."""
    with pytest.raises(NotNow, match="not known"):
        new_mappings(BASE, seen(area(0x1000, 0x3000)[0], *LIBRARY), ENTRIES)
