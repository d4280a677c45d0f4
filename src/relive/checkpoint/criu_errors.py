"""What CRIU says when it fails, translated: which error it is, why, and what to do.

CRIU's own sentence is always kept as the cause. A failure that no rule knows is reported as ``criu-unknown`` and makes
Relive's own tests fail, so that the table stays complete for what is tested.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "NOT_THE_TARGET",
    "UNKNOWN_NOTED_IN",
    "UNKNOWN_REMEDY",
    "CriuExplanation",
    "explain",
    "is_harmless",
    "read_error_lines",
    "without_harmless",
]

_LINE = re.compile(r"^(?:\([\d.]+\)\s*)?(?:\s*\d+: )?Error \((?P<place>[^)]*)\):\s+(?P<text>.*)$")
_PART = re.compile(r"^[\w/-]+:\s+")  # many sentences begin with the part of CRIU that speaks, as "unix: "
UNKNOWN_NOTED_IN = "_RELIVE_UNKNOWN_FAILURES"  # variable: a file that failures without a rule are appended to
UNKNOWN_REMEDY = "run `relive doctor`; if it finds nothing, report this with the log named above"
_NOT_SUSPENDED = "suspending seccomp failed"
_GIVEN_UP = re.compile(r"^Unable to detach from \d+: No such process$")  # it let the process run at once
# Reasons that say nothing about what the target holds: the same commit may succeed a moment later.
NOT_THE_TARGET = frozenset(
    {
        "criu-bug",
        "criu-unknown",
        "criu-killed",
        "no-memory",
        "slow",
        "process-gone",
        "tcp-changed",
        "unix-in-flight",
        "not-permitted",
        "under-a-filter",
    }
)


@dataclass(frozen=True, slots=True)
class CriuExplanation:
    """A CRIU failure in words.

    Attributes:
        reason: stable kebab-case name of the rule, ``criu-unknown`` when none fits.
        what: what the target or the commit holds that does not go.
        sentence: CRIU's own.
        remedy: what to do next.
    """

    reason: str
    what: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class _Rule:
    reason: str
    pattern: str
    what: str
    remedy: str


_KILLED = (
    "CRIU, or a process that it was making, was killed in the middle of it",
    "do it again; if it happens again, `dmesg` tells whether the kernel was short of memory",
)
# The first rule that fits any line wins, so special ones stand before general ones. Patterns are pieces of the messages in
# CRIU 4.2.1's source (pr_err, and pr_perror, which adds ": " and the system's error text at the end of the line).
_RULES = (
    _Rule(
        "criu-bug",
        r"BUG at criu/",
        "CRIU ran into a fault of its own and ended",
        "commit again: mostly something on the host changed in that moment, such as a control group that went away",
    ),
    _Rule("criu-killed", r"^CRIU ended with status (?:-9|-15|None|137|143) ", *_KILLED),
    _Rule(
        "io-uring",
        r"anon_inode:\[?io_uring",
        "it uses io_uring, which CRIU cannot save",
        "start it with `relive run`, which hides io_uring so that the service falls back to epoll",
    ),
    _Rule(
        "no-space",
        r": (?:No space left on device|Disk quota exceeded)$|^Img trimmed \d",
        "the disk is full",
        "free space where RELIVE_HOME lies; what was stored before is unharmed",
    ),
    _Rule(
        "no-memory",
        r": Cannot allocate memory$|^(?:Not enough|Out of) memory",
        "this machine has too little free memory for it",
        "free memory, or lower `--memory` of what else runs here",
    ),
    _Rule(
        "slow",
        r"^Timeout reached\. Try to interrupt|^FATAL: Unable to interrupt the current operation",
        "it did not end within its time limit",
        "raise `commit_limit` or `restore_limit` in relive.toml; a process in state D (`ps`) waits for a disk or a network",
    ),
    _Rule(
        "half-unix-stream",
        r"^Can't dump half of stream unix connection|^External socket is used|^Unix socket \S+ without peer"
        r"|^Unix socket \S+ with unreachable peer|^Can't dump name-less external socket|^Dangling connection \d"
        r"|^FATAL: Peer \d+ unresolved for \d+",
        "it holds a unix socket whose other end is in a process outside of the target",
        "close that connection, commit a tree that holds both ends, or let it connect over TCP",
    ),
    _Rule(
        "tcp-changed",
        r"^recv failed \(\d+, want \d+\)",
        "one of its TCP connections lost what it held in the moment in which CRIU read it, as when the other end reset it",
        "commit again in a moment",
    ),
    _Rule(
        "unix-in-flight",
        r"^In-flight connection on non-listening socket|^Non-empty write queue on an in-flight|^Found a closed in-flight",
        "a connection to one of its unix sockets has not been accepted yet and holds data already",
        "commit again in a moment",
    ),
    _Rule(
        "traced",
        r"^Unseizable non-zombie \d+ found|^Can't dump the \d+ thread with a pending SIGTRAP|has uprobes vma",
        "a debugger or tracer is attached to it",
        "detach gdb, strace, perf or py-spy --native from it and commit again",
    ),
    _Rule(
        "under-a-filter",
        rf"^{_NOT_SUSPENDED}",
        "Relive is under a filter of system calls (seccomp), a container's for example, and so may not suspend that of the service",
        "run Relive where there is none: in a container with --privileged, or --security-opt seccomp=unconfined",
    ),
    _Rule(
        "relive-inside",
        r"^The criu itself is within dumped tree",
        "Relive itself runs below it",
        "name the service, not what started this command",
    ),
    _Rule(
        "stopped-thread",
        r"^Individually stopped threads not supported|^SEIZE \d+: unsupported stop signal",
        "one of its threads is stopped and others are not",
        "send it SIGCONT (`kill -CONT`) and commit again",
    ),
    _Rule(
        "signalled",
        r"^Unexpected \d+ task interruption, aborting",
        "a signal came to one of its processes in the moment in which CRIU ran code there",
        "commit again in a moment",
    ),
    _Rule(
        "ghost-too-large",
        r"^Can't dump ghost file .* increase limit",
        "it holds an open but deleted file larger than the limit",
        "raise `ghost_limit` in relive.toml (bytes)",
    ),
    _Rule(
        "outside-mount",
        r"^Can't lookup mount=-?\d+ for fd=-?\d+|^The -?\d+ mount is not found for ghost"
        r"|^Open files on overmounted mounts are not supported",
        "it has a file open that lies in another mount namespace or under another mount, such as a log of its launcher",
        "start it with `relive run`, which gives it files of its own",
    ),
    _Rule(
        "link-remap",
        r"^Can't (?:create|note) link.remap|^Can't link remap to",
        "it holds a deleted file that still has another name",
        "close that file, or keep its first name",
    ),
    _Rule(
        "descriptors-full",
        r": Too many open files$|^Parasite failed to drain descriptors|^Can't retrieve FDs? from socket",
        "its table of file descriptors is full, and CRIU needs four free ones in it",
        "raise its RLIMIT_NOFILE (`ulimit -n`)",
    ),
    _Rule(
        "limits-of-other-user",
        r"^Can't get rlimit \d+",
        "it belongs to another user and this kernel does not let CRIU read its limits",
        "run `make setup` again, so that the library that works around this is in place",
    ),
    _Rule(
        "terminal",
        r"^Don't have tty to inherit session from|^Found dangling tty|^No task found with sid|^Unable to find a tty driver"
        r"|^Too many external terminals|^Found slave peer index|^Only one slave external peer",
        "it holds a terminal that belongs to a session outside of it",
        "start it with `relive run`, or without a terminal (`setsid CMD </dev/null >log 2>&1`)",
    ),
    _Rule(
        "session-outside-namespace",
        r"^A session leader of .* is outside of its pid namespace",
        "its session began outside of its PID namespace (as under `podman exec` or `nsenter`), where CRIU cannot name it",
        "start it with `setsid CMD`, or with `relive run`",
    ),
    _Rule(
        "session-outside",
        r"^The root process \d+ is not a session leader|^Can't find a session leader"
        r"|^Can't figure out which sid|^Can't restore [sp]g?id \(|^Requested sid \d+ doesn't match",
        "its session leader is not part of the tree",
        "commit the tree that holds the session leader, or start it with `relive run`",
    ),
    _Rule(
        "file-locks",
        r"^Some file locks are hold|^Dump file lock failed|^Unknown (?:file )?lock|^Unknown lock option|^Unresolved lock"
        r"|^Invalid (?:file lock info|lock entry|file lease)|^Can not set (?:flock|posix lock|ofd lock)|\b[Ll]eases?\b",
        "it holds a file lock or lease of a kind that cannot be saved",
        "wait until it releases the lock, or keep the locked file within the capsule",
    ),
    _Rule(
        "shared-memory-outside",
        r"^Task \d+ with SysVIPC shmem map \S+ doesn't live in IPC ns",
        "it has System V shared memory that other programs of this machine can reach too",
        "start it with `relive run`, which gives it an IPC namespace of its own",
    ),
    _Rule(
        "nested-namespace",
        r"^Can't dump nested \S+ namespace|^Nested mount namespaces are not supported"
        r"|^\d+:\S+ doesn't have a proper root mount"
        r"|^Can't dump a pid namespace without the process init|^Unable to dump more than one netns"
        r"|^Can't restore sub-task in NS|^Unable to convert uid or gid",
        "it has processes in namespaces of their own",
        "commit the inner tree by its own pid, or use the container engine",
    ),
    _Rule(
        "epoll-closed",
        r"^Escaped/closed fd descriptor|^Dump eventpoll \(pid: \d+\) failed",
        "it watches a descriptor with epoll that it has closed, while another process still has it open",
        "report this with the program's name; commits work again once that other process closes it",
    ),
    _Rule(
        "pidfd-outside",
        r"^pidfd pid \d+ is not a part of process tree|^PIDFD_THREAD flag is currently not supported",
        "it holds a descriptor of a process outside of the target (pidfd)",
        "commit a tree that holds both processes",
    ),
    _Rule(
        "watched-file",
        r"^Can't find suitable path for handle|^Can't dump that handle|^Unable to lookup a mount by dev",
        "it watches a file with inotify or fanotify that CRIU cannot find again",
        "end that watch; polling instead of inotify helps where the program offers it",
    ),
    _Rule(
        "seccomp",
        r"^Can't (?:fetch|collect) filter on|^Can't fetch seccomp metadata",
        "the kernel does not show CRIU the seccomp filter that it runs under",
        "run Relive as root with CAP_SYS_ADMIN and outside of a seccomp filter",
    ),
    _Rule(
        "unsupported-file",
        r"^Can't dump file \d+ of that type|^Unknown file type \d|^Unknown shit |^Can't handle non-regular mapping"
        r"|^Unsupported mapping found|does not currently support dumping BPF map type|^Net namespace is required to dump tun"
        r"|^The path \[.*\] is not supported|^Ring size is not aligned|^Strange file mapped at",
        "it has a file open or mapped of a kind that CRIU cannot save",
        "docs/limits.md lists these kinds; close the file or turn the feature off that uses it",
    ),
    _Rule(
        "unsupported-socket",
        r"^Unsupported (?:proto|socket family|socket type|type \()|^BUG! Unknown socket collected|^Unknown pair family"
        r"|^Can't dump (?:corked dgram|\d+ inet) socket|^Unknown socket family|^Unknown (?:inet|state \d+ for unix) socket"
        r"|^Sockets \(family \d+ proto \d+\) are not collected|^Multiple MC membership|^The netlink socket \S+ (?:has|is)"
        r"|^The socket has data to read|^Unable to dump a socket from an external network namespace",
        "it has a socket of a kind that CRIU cannot save",
        "docs/limits.md lists these kinds",
    ),
    _Rule(
        "process-gone",
        r" on procfs: |: No such process$|^A root task is dead|^zombie \d+ \(comm .*\) found|^Zombie"
        r"|^SEIZE \d+: (?:can't|task not stopped)|^Task pid reused while suspending|^Unexpected (?:child|exit code) "
        r"|^\d+ (?:was (?:killed|stopped) by \d+|exited with -?\d+) unexpectedly|^Invalid pid:",
        "a process of the tree ended while it was being committed, or is no living process",
        "commit again, or name another process",
    ),
    _Rule(
        "file-changed",
        r"^File .* has bad (?:size|mode|build-ID)|^Can't open file .* on restore|^Can't open file .*: No such file"
        r"|^Can't (?:find regfile|link \S+ -> )|^Can't open (?:cwd|root)$|^Can't change (?:cwd|root)"
        r"|^Can't open \S+: No such file or directory$",
        "a file that it had open is not what it was when the commit was taken",
        "bring that file back. A commit holds no programs or libraries of the host. It holds all files of a service only in a "
        "capsule, and whole volumes only with --with-volumes",
    ),
    _Rule(
        "address-unavailable",
        r"^Can't (?:bind|connect) inet socket|^Can't bind (?:netlink|packet) socket|: Cannot assign requested address$",
        "an address that it had bound does not exist in the sandbox, or is taken there",
        "report this: the sandbox should have been given that address",
    ),
    _Rule(
        "unix-path",
        r"^(?:ghost: )?Can't bind (?:id|on socket id) \S+ ino ",
        "the directory of one of its unix sockets does not exist in the sandbox",
        "commit services in a capsule, which keeps their directories",
    ),
    _Rule(
        "pid-in-use",
        r"^Can't fork for \d+: File exists|^Pid \d+ do not match expected|^First PID in a PID namespace|^Setting PID failed",
        "a process number that it needs is taken in the sandbox",
        "try again; if it stays so, run `relive doctor`",
    ),
    _Rule(
        "cpu",
        r"^(?:CPU|FPU) .*(?:mismatch|not supported|unsupported)|^Core march mismatch",
        "it was committed on a processor with features that this one lacks",
        "restore it on a machine like the first one",
    ),
    _Rule(
        "image-damaged",
        r"[Mm]agic doesn't match for|^Unexpected EOF|^Failed unpacking object|^Wrong object requested"
        r"|^Read \d+ bytes while \d+ expected|^Can't read \d+ bytes from file|^Unable to open \S+\.img|^Can't open core data"
        r"|[Ii]mages? (?:is |are )?corrupt|corrupted image\?|^Corrupted |^Reached EOF unexpectedly|^Core .* data missed"
        r"|^Too old image|^Not supported images version|^Unknown image format|^Page entry address|^Can't read pages data"
        r"|^Can't read mapping page|^VMA-s are not sorted",
        "an image file of the commit is missing or damaged",
        "restore another commit (`relive log`)",
    ),
    _Rule(
        "vdso",
        r"[Vv](?:dso|DSO)",
        "this CRIU does not know this kernel's vDSO",
        "run `make setup`, which builds a CRIU that does",
    ),
    _Rule(
        "not-permitted",
        r": (?:Operation not permitted|Permission denied)$|^You need to be root",
        "the kernel refused CRIU something",
        "run as root with all capabilities; `relive doctor` names what is missing",
    ),
    # The last: when one process fails, CRIU itself kills the others, and says so.
    _Rule("criu-killed", r"^\d+ killed by signal (?:9|15): ", *_KILLED),
)


def is_harmless(sentence: str) -> bool:
    """CRIU reports it as an error and goes on.

    Without CAP_SYS_RESOURCE it may not raise its own limit of open files; under a filter (``sandbox.builder``) it may not suspend
    those of others, which then allow what it does (``images.sandbox_filters``).
    """
    return any(
        part in sentence for part in ("Can't setup RLIMIT_NOFILE", "suspend seccomp", "suspending seccomp")
    )


def without_harmless(lines: list[str]) -> list[str]:
    """The others; with what CRIU was not permitted to suspend where it gave up for it, as it does at a dump."""
    has_given_up = any(_GIVEN_UP.search(line) for line in lines)
    return [line for line in lines if not is_harmless(line) or (has_given_up and _NOT_SUSPENDED in line)]


def explain(lines: list[str]) -> CriuExplanation:
    """Find the rule for what CRIU reported; ``lines`` are its error sentences in order, the first usually the root."""
    lines = without_harmless(lines)
    for rule in _RULES:
        for line in lines:
            if re.search(rule.pattern, line) or re.search(rule.pattern, _PART.sub("", line)):
                return CriuExplanation(rule.reason, rule.what, line, rule.remedy)
    _note_unknown(lines)
    sentence = lines[0] if lines else "CRIU gave no reason"
    return CriuExplanation(
        "criu-unknown", "CRIU failed in a way that Relive does not know", sentence, UNKNOWN_REMEDY
    )


def _note_unknown(lines: list[str]) -> None:
    # Set by tests/conftest.py: commands and agents run in processes of their own, and a test may expect a failure.
    name = os.environ.get(UNKNOWN_NOTED_IN)
    if name:
        with Path(name).open("a") as file:
            file.write(" | ".join(lines or ["no line at all"]) + "\n")


def read_error_lines(log: Path | str, directory: int | None = None) -> list[str]:
    """CRIU's error sentences from its log, without times and source lines; empty when there is no log.

    Args:
        directory: descriptor of the directory that a relative path starts from.
    """
    try:
        with open(
            log, errors="replace", opener=lambda path, flags: os.open(path, flags, dir_fd=directory)
        ) as file:
            text = file.read()
    except OSError:
        return []
    matches = (_LINE.match(line) for line in text.splitlines())
    return without_harmless([match["text"] for match in matches if match is not None])
