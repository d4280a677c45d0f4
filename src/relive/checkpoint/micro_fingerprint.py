"""Whether a commit may be taken on top of another: decisions over two looks at a process. Nothing here reads a file.

The rule: each object that CRIU would save must be the same as in the base, or be one that ``micro_images`` writes anew. What is not
known to be either leads to a full commit. docs/micro-commits.md has the table of what is compared.
"""

from __future__ import annotations

import re
import socket
import stat
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from relive.checkpoint.micro_record import FullCommitNeeded, NotNow, RecordedMapping, Seen
from relive.images import criu_images_pb2 as pb

__all__ = [
    "check_hidden",
    "check_mappings",
    "check_nameless",
    "check_same",
    "check_trackable",
    "nameless_files",
    "new_mappings",
    "pipe_contents",
]

_DEVICES = frozenset({"1:3", "1:5", "1:7", "1:8", "1:9"})  # null, zero, full, random, urandom
_POLLIN = 1
_ENDED = 0x2011  # POLLIN, POLLHUP and POLLRDHUP: no error, and nothing out of band
_SO_TYPE, _STREAM = "1.3", "01000000"  # as ``native/micro/socket_options.c`` writes them
_O_DIRECT = 0o40000
_IN_PIPE = re.compile(r" data=(\d+):([0-9a-f]+)$")
_CLOCK = re.compile(r"\|clockid: (\d+)\|")  # of a timerfd
_CLOCKS = {time.CLOCK_REALTIME, time.CLOCK_MONOTONIC}  # CRIU restores no others
_ANONYMOUS = frozenset(
    f"anon_inode:{kind}" for kind in ("[eventpoll]", "[eventfd]", "[signalfd]", "[timerfd]", "inotify")
)
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_SIGNALS = [number for number in range(1, 65) if number not in (9, 19)]  # as CRIU lists them
_REGULAR, _HEAP, _ANON_PRIVATE = 1, 1 << 5, 1 << 9  # of criu/include/image.h
_MAP_PRIVATE_ANONYMOUS, _MAP_NORESERVE = 0x22, 0x4000
_ADVICE = {
    "dc": 10,
    "hg": 14,
    "nh": 15,
    "dd": 16,
}  # MADV_*, as CRIU saves them; V8 keeps its heap from children
_PLAIN = frozenset({"rd", "wr", "ex", "mr", "mw", "me", "ac", "nr", *_ADVICE})
_NOT_KEPT = frozenset({"sd", "uw"})  # soft-dirty, and our own tracking
_HUGE_PAGES = "ht"
_UNKNOWN = "?"  # among flags
_OF_THE_KERNEL = "[v"
_NOT_FOLLOWED = ("/[aio]", "/anon_hugepage", "/SYSV", "/dev/zero", "[uprobes]")


def check_trackable(seen: Seen, members: Collection[int] = ()) -> None:
    """Raise FullCommitNeeded where a process has what is not followed from one commit to the next.

    Args:
        members: the processes that are in the commit.
    """
    for line in seen.lines:
        kind, _, rest = line.partition(" ")
        if kind == "children" and not {int(word) for word in rest.split()} <= set(members):
            raise FullCommitNeeded("it has child processes that are not followed")
        if kind == "timens_offsets" and re.search(r"[1-9]", re.sub(r"[a-z]+", "", rest)):
            raise FullCommitNeeded("it is in a time namespace with clocks of its own")
    for line in seen.lines:
        if line.startswith("fd ") and " goal " in line:
            _check_descriptor(line)
        elif line.startswith("fd ") and " info " in line:
            _check_state(line)
    check_nameless(nameless_files(seen), seen)
    check_mappings(seen)


def check_mappings(seen: Seen) -> None:
    """Raise FullCommitNeeded where a process has memory that is not followed."""
    if any("ss" in flags for flags in seen.flags.values()):
        raise FullCommitNeeded("it has shadow stacks")
    for mapping in seen.mappings:
        if mapping.is_segment and _HUGE_PAGES in seen.flags.get(mapping.start, ()):
            raise FullCommitNeeded(f"it has huge pages of a pool: {mapping.name}")
        # What is shared with a file belongs to the file, in a full commit too. A memfd that is neither open (see above) nor mapped
        # shared cannot be written by the process.
        if mapping.is_shared_memory:
            continue
        is_of_a_file = mapping.name.startswith("/") and not mapping.name.endswith(" (deleted)")
        if mapping.name.startswith(_NOT_FOLLOWED) or ("s" in mapping.rights and not is_of_a_file):
            raise FullCommitNeeded(f"it has shared or special memory: {mapping.name or mapping.line}")


def _check_descriptor(line: str) -> None:
    head, _, goal = line.partition(" goal ")
    words = head.split()
    number, facts = words[1], _pairs(words[2:])
    mode, flags = int(facts["mode"], 8), int(facts["flags"], 8)
    kind = stat.S_IFMT(mode)
    if flags & _O_DIRECT:
        raise FullCommitNeeded(f"descriptor {number} is open with O_DIRECT")
    if kind == stat.S_IFCHR and facts["special"] not in _DEVICES:
        raise FullCommitNeeded(f"descriptor {number} is of a device: {goal}")
    if kind == stat.S_IFBLK:
        raise FullCommitNeeded(f"descriptor {number} is of a device: {goal}")
    if kind == 0 and goal not in _ANONYMOUS:
        raise FullCommitNeeded(f"descriptor {number} is {goal}")


def nameless_files(seen: Seen) -> dict[int, str]:
    """Descriptors of regular files without a name, and where they lead."""
    found = {}
    for line in seen.lines:
        head, told, goal = line.partition(" goal ")
        if told and line.startswith("fd "):
            _, number, *words = head.split()
            facts = _pairs(words)
            is_regular = stat.S_IFMT(int(facts["mode"], 8)) == stat.S_IFREG
            if is_regular and (facts["links"] == "0" or goal.endswith(" (deleted)")):
                found[int(number)] = goal
    return found


def check_nameless(nameless: Mapping[int, str], seen: Seen) -> None:
    """Raise FullCommitNeeded where such a file holds something.

    One in which nothing is may stand for its times only, as those by which a worker of gunicorn says that it lives.
    """
    for number, goal in nameless.items():
        _, size = seen.positions.get(number, (0, -1))
        if number not in seen.ghosts or size or goal.startswith("/memfd:"):
            raise FullCommitNeeded(f"descriptor {number} is of a file without a name: {goal}")


def _check_state(line: str) -> None:
    number = line.split(maxsplit=2)[1]
    facts = dict(re.findall(r" ([a-z.0-9]+)=(-?[0-9a-f]*)", line))
    if "hidden" in facts:
        raise FullCommitNeeded(f"descriptor {number} cannot be looked into")
    clock = _CLOCK.search(line)
    if clock is not None and int(clock[1]) not in _CLOCKS:
        raise FullCommitNeeded(f"descriptor {number} is a timer of clock {clock[1]}")
    if "data" in facts:  # what lies in a pipe is compared, byte for byte
        return
    if facts.get("in", "0") not in ("0", "-1") or facts.get("out", "0") not in ("0", "-1"):
        raise NotNow(f"there is data in descriptor {number}")
    if "family" not in facts:
        return
    family = int(facts["family"])
    if family not in _FAMILIES:
        raise FullCommitNeeded(f"descriptor {number} is a socket of family {family}")
    if facts["peer"] and family != socket.AF_UNIX:
        raise FullCommitNeeded(f"descriptor {number} is connected")
    if int(facts["ready"], 16) & _POLLIN and not _has_ended(facts):
        raise NotNow(f"something waits in descriptor {number}")


def _has_ended(facts: Mapping[str, str]) -> bool:
    """A stream of which both ways are closed and all was read, as it stays for ever: Java keeps one to put it over others.

    Not of packets: of those an empty one may wait.
    """
    return (
        int(facts["family"]) == socket.AF_UNIX
        and facts.get(_SO_TYPE) == _STREAM
        and facts["in"] == "0"
        and int(facts["ready"], 16) == _ENDED
    )


def _pairs(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=False))


def pipe_contents(seen: Seen) -> dict[int, bytes]:
    """Of each pipe that holds something, by its number."""
    found = {}
    for line in seen.lines:
        told = _IN_PIPE.search(line)
        if told is not None and line.startswith("fd "):
            found[int(told[1])] = bytes.fromhex(told[2])
    return found


def check_same(base: Seen, now: Seen) -> None:
    """Raise FullCommitNeeded where what is compared word for word differs, or a signal is pending.

    In the base one may be: it has come by now.
    """
    if now.pending:
        raise NotNow(f"a signal is pending: {now.pending[0]}")
    if base.lines == now.lines:
        return
    before, after = set(base.lines), set(now.lines)
    begun, ended = _threads(after) - _threads(before), _threads(before) - _threads(after)
    if begun or ended:  # so are all their lines, of which none says that
        raise FullCommitNeeded(f"threads have begun or ended: {len(begun)} and {len(ended)}")
    changed = next(iter(sorted(after - before) or sorted(before - after)), "their order")
    raise FullCommitNeeded(f"something has changed: {changed[:160]}")


def _threads(lines: Iterable[str]) -> set[str]:
    return {line.split(" ", 2)[1] for line in lines if line.startswith("thread ")}


def check_hidden(now: Seen, cores: dict[int, pb.CoreEntry], memory: pb.MmEntry) -> int:
    """Raise FullCommitNeeded where what the process told differs from the base's images; returns its break (brk(2)).

    Args:
        cores: by the number of the thread inside; the one with ``tc`` is the first.
    """
    task = next(core.tc for core in cores.values() if core.HasField("tc"))
    actions = dict(zip(_SIGNALS, task.sigactions, strict=True))
    hidden = [line.split() for line in now.hidden]
    for kind, *words in hidden:
        _check_one(kind, words, cores, task, actions, memory)
    breaks = [int(words[0], 16) for kind, *words in hidden if kind == "brk"]
    stacks = {int(words[0]) for kind, *words in hidden if kind == "altstack"}
    if len(breaks) != 1 or stacks != set(cores):
        raise FullCommitNeeded("not all threads answered")
    return breaks[0]


def _check_one(
    kind: str,
    words: list[str],
    cores: dict[int, pb.CoreEntry],
    task: pb.TaskCoreEntry,
    actions: dict[int, pb.SaEntry],
    memory: pb.MmEntry,
) -> None:
    expected: tuple[int, ...]
    if kind == "altstack":
        sas = cores[int(words[0])].thread_core.sas
        expected = (sas.ss_sp, sas.ss_flags, sas.ss_size)
        found = tuple(int(word, 16) for word in words[1:])
    elif kind == "tid_address":
        expected, found = (cores[int(words[0])].thread_info.clear_tid_addr,), (int(words[1], 16),)
    elif kind == "pdeath_sig":
        expected, found = (cores[int(words[0])].thread_core.pdeath_sig,), (int(words[1]),)
    elif kind == "securebits":
        expected, found = (cores[int(words[0])].thread_core.creds.secbits,), (int(words[1], 16),)
    elif kind == "rseq":
        rseq = cores[int(words[0])].thread_core.rseq_entry
        expected = (rseq.rseq_abi_pointer, rseq.rseq_abi_size, rseq.signature)
        found = tuple(int(word, 16) for word in words[1:])
    elif kind == "subreaper":
        expected, found = (int(task.child_subreaper),), (int(words[0]),)
    elif kind == "dumpable":
        expected, found = (memory.dumpable if memory.HasField("dumpable") else 1,), (int(words[0]),)
    elif kind == "membarrier":
        expected, found = (task.membarrier_registration_mask,), (int(words[0], 16),)
    elif kind == "action":
        action = actions[int(words[0])]
        expected = (action.sigaction, action.flags, action.restorer, action.mask)
        found = tuple(int(word, 16) for word in words[1:])
    else:
        return
    if expected != found:
        raise FullCommitNeeded(f"{kind} has changed: {expected} to {found}")


def new_mappings(base: Seen, now: Seen, entries: Iterable[pb.VmaEntry]) -> list[pb.VmaEntry]:
    """The mappings of a commit, from those of its base: memory that is private and in no file may come, go and change.

    Raises:
        FullCommitNeeded: another mapping has changed.
    """
    known = {(one.start, one.end): one for one in base.mappings}
    by_span = {(one.start, one.end): one for one in entries}
    own = [(one.start, one.end) for one in base.mappings if one.name.startswith(_OF_THE_KERNEL)]
    found: list[pb.VmaEntry] = []
    for mapping in now.mappings:
        span = (mapping.start, mapping.end)
        before = known.get(span)
        is_same = before is not None and before.line == mapping.line and _have_same_flags(now, base, mapping)
        if mapping.name.startswith(_OF_THE_KERNEL):
            if not is_same:
                raise FullCommitNeeded(f"{mapping.name} has changed")
        elif is_same:
            if span not in by_span:
                raise FullCommitNeeded(f"CRIU has no mapping {mapping.line}")
            found.append(by_span[span])
        else:
            found.append(_new_mapping(mapping, _flags(now, mapping), base, by_span))
    gone = {one.line for one in base.mappings} - {one.line for one in now.mappings}
    for line in gone:
        if line.split(maxsplit=5)[4] != "0":
            raise FullCommitNeeded(f"a mapping of a file is gone: {line}")
    # CRIU may take two neighbours for one, as [vvar] and [vvar_vclock]: the vDSO reads the second.
    found += [one for one in by_span.values() if any(start <= one.start < end for start, end in own)]
    return sorted(found, key=lambda one: one.start)


def _have_same_flags(now: Seen, base: Seen, mapping: RecordedMapping) -> bool:
    if now.flags.get(mapping.start) == base.flags.get(mapping.start):
        return True
    return _flags(now, mapping) == _flags(base, mapping)


def _flags(seen: Seen, mapping: RecordedMapping) -> frozenset[str]:
    return seen.flags.get(mapping.start, frozenset({_UNKNOWN})) - _NOT_KEPT


def _new_mapping(
    mapping: RecordedMapping, flags: frozenset[str], base: Seen, by_span: dict[tuple[int, int], pb.VmaEntry]
) -> pb.VmaEntry:
    name = mapping.name
    if (
        mapping.inode
        or mapping.rights[3] != "p"
        or not (name in ("", "[heap]", "[stack]") or name.startswith("[anon:"))
    ):
        raise FullCommitNeeded(f"a mapping is new or has changed: {mapping.line}")
    protection = sum(bit for bit, letter in ((1, "r"), (2, "w"), (4, "x")) if letter in mapping.rights)
    if name == "[stack]":
        before = next((one for one in base.mappings if one.name == "[stack]"), None)
        if before is None or before.end != mapping.end or flags != _flags(base, before):
            raise FullCommitNeeded("the stack has changed")
        entry = pb.VmaEntry()
        entry.CopyFrom(by_span[before.start, before.end])
        entry.start, entry.prot = mapping.start, protection
        return entry
    if _UNKNOWN in flags:
        raise NotNow(
            f"advice for a mapping is not known, it was gone or another one when it was asked: {mapping.line}"
        )
    if not flags <= _PLAIN:
        raise FullCommitNeeded(
            f"a mapping has been given advice: {mapping.line}, {' '.join(sorted(flags - _PLAIN))}"
        )
    advice = sum(1 << bit for name, bit in _ADVICE.items() if name in flags)
    return pb.VmaEntry(
        madv=advice or None,
        start=mapping.start,
        end=mapping.end,
        pgoff=0,
        shmid=0,
        prot=protection,
        flags=_MAP_PRIVATE_ANONYMOUS | (_MAP_NORESERVE if "nr" in flags else 0),
        status=_REGULAR | _ANON_PRIVATE | (_HEAP if name == "[heap]" else 0),
        fd=-1,
    )
