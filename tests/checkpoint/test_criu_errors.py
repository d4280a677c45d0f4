"""Rules for CRIU's failures, against sentences as CRIU 4.2.1 writes them (format strings of its source, filled in)."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.checkpoint import criu_errors
from relive.checkpoint.criu_errors import UNKNOWN_NOTED_IN, explain, read_error_lines

SENTENCES = [
    ("criu-bug", "cg: BUG at criu/cgroup.c:1032"),
    ("io-uring", "Can't dump file 5 of that type [600] (anon anon_inode:[io_uring])"),
    ("io-uring", "Unknown shit 600 (anon_inode:[io_uring])"),
    ("no-space", "Can't write img file: No space left on device"),
    ("no-space", "Unable to spice data: Disk quota exceeded"),
    ("no-space", "Img trimmed 12/40"),
    ("no-memory", "Can't mmap memory for pagemap test: Cannot allocate memory"),
    ("no-memory", "Not enough memory"),
    ("slow", "Timeout reached. Try to interrupt: 0"),
    ("half-unix-stream", "Can't dump half of stream unix connection. name: (null); peer name: /run/x.sock"),
    ("half-unix-stream", "External socket is used. Consider using --ext-unix-sk option."),
    ("half-unix-stream", "Unix socket 4711 without peer 4712"),
    ("half-unix-stream", "Unix socket 0x1267 with unreachable peer 0x1268 (4712)"),
    ("tcp-changed", "recv failed (0, want 58): Invalid argument"),
    ("unix-in-flight", "In-flight connection on non-listening socket 4711"),
    ("traced", "Unseizable non-zombie 4711 found, state S, err -1/1"),
    ("traced", "Can't dump the 4711 thread with a pending SIGTRAP."),
    ("relive-inside", "The criu itself is within dumped tree."),
    ("stopped-thread", "Individually stopped threads not supported"),
    ("signalled", "Unexpected 111 task interruption, aborting"),
    ("ghost-too-large", "Can't dump ghost file /tmp/big of 4096 size, increase limit"),
    ("outside-mount", "Can't lookup mount=28 for fd=10 path=/dev/null"),
    ("outside-mount", "Open files on overmounted mounts are not supported yet; mount=28 fd=3 path=/mnt/x"),
    ("link-remap", "Can't create link remap for /tmp/a. Use link-remap option."),
    ("descriptors-full", "Can't create socketpair: Too many open files"),
    ("descriptors-full", "Parasite failed to drain descriptors"),
    ("limits-of-other-user", "Can't get rlimit 0: Operation not permitted"),
    ("terminal", "Found dangling tty with sid 7 pgid 7 (pts) on peer fd 0."),
    ("session-outside-namespace", "A session leader of 7(4711) is outside of its pid namespace"),
    ("session-outside", "The root process 7 is not a session leader. Consider using --shell-job option"),
    ("file-locks", "Some file locks are hold by dumping tasks! You can try --file-locks to dump them."),
    ("file-locks", "Unresolved lock found pid 7 ino 12"),
    ("shared-memory-outside", "Task 7 with SysVIPC shmem map @7f00 doesn't live in IPC ns"),
    ("nested-namespace", "mnt: 270:./run/netns/shop doesn't have a proper root mount"),
    ("nested-namespace", "Can't dump nested pid namespace for 7"),
    ("nested-namespace", "Can't dump a pid namespace without the process init"),
    ("epoll-closed", "Escaped/closed fd descriptor 7 on pid 4711"),
    ("pidfd-outside", "pidfd pid 7 is not a part of process tree.."),
    ("watched-file", "Can't find suitable path for handle (dev 0x1 ino 0x2): -1"),
    ("seccomp", "Can't fetch filter on tid_real 7 i 0: Permission denied"),
    ("unsupported-file", "Can't dump file 3 of that type [20600] (chr 10:200)"),
    ("unsupported-file", "CRIU does not currently support dumping BPF map type 27!"),
    ("unsupported-socket", "Unsupported proto 262 for socket 1a2b"),
    ("unsupported-socket", "Can't dump 5 inet socket 1a2b. Only stream, dgram and raw are supported."),
    ("unsupported-socket", "BUG! Unknown socket collected (family 40)"),
    ("process-gone", "Can't open 4711/stat on procfs: No such file or directory"),
    ("process-gone", "A root task is dead"),
    ("process-gone", "4711 was killed by 9 unexpectedly: Killed"),
    ("file-changed", "File usr/lib/libc.so has bad size 12 (expect 13)"),
    ("file-changed", "Can't open file tmp/x on restore: No such file or directory"),
    ("file-changed", "File tmp/x has bad mode 0100600 (expect 0100644)"),
    ("address-unavailable", "Can't bind inet socket (id 7): Cannot assign requested address"),
    ("unix-path", "Can't bind id 0x7 ino 4711 addr /run/a.sock: No such file or directory"),
    ("pid-in-use", "Can't fork for 7: File exists"),
    ("cpu", "FPU feature required by image is not supported on host (fpu:1 fxsr:1 osxsave:1 xsaves:0)"),
    ("image-damaged", "Magic doesn't match for core-7.img"),
    ("image-damaged", "Unexpected EOF on core-7.img"),
    ("image-damaged", "Failed unpacking object 0x55 from core-7.img"),
    ("image-damaged", "Unable to open pages-1.img: No such file or directory"),
    ("vdso", "Can't find rt vDSO"),
    ("not-permitted", "Unable to set SO_REUSEADDR: Operation not permitted"),
    ("criu-killed", "CRIU ended with status -9 in the middle"),
    ("criu-killed", "CRIU ended with status -9 before it began"),
    ("criu-killed", "2 killed by signal 9: Killed"),
]

# They look like something a rule is about, and are not; or they only follow from an earlier line.
NOBODYS = [
    "Unsupported configuration file format. Please consult man page criu(8) for format details.",
    "Dumping FAILED.",
    "Restoring FAILED.",
    "Dump files (pid: 4711) failed with -1",
    "Can't infect (pid: 4711) with parasite",
    "4711 exited, status=1",
    "Error: Operation not permitted by whom is not at the end",
    "CRIU ended with status -11 in the middle",
]


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where unknown failures of one test are noted, not to fail the whole suite."""
    file = tmp_path / "unknown"
    monkeypatch.setenv(UNKNOWN_NOTED_IN, str(file))
    return file


@pytest.mark.parametrize(("reason", "sentence"), SENTENCES)
def test_each_sentence_has_the_rule_that_is_about_it(reason: str, sentence: str):
    found = explain([sentence])
    assert found.reason == reason
    assert found.sentence == sentence
    assert found.what and found.remedy


def test_every_rule_has_a_sentence():
    known = {reason for reason, _ in SENTENCES} | {"under-a-filter"}
    assert known == {rule.reason for rule in criu_errors._RULES}


def test_what_may_not_be_suspended_is_named_only_where_criu_gave_up_for_it(tmp_path: Path) -> None:
    """What it says last is that the process is gone, which it is not."""
    refused, last = (
        "suspending seccomp failed: Operation not permitted",
        "Unable to detach from 2: No such process",
    )
    log = tmp_path / "criu.log"
    log.write_text(
        f"Error (compel/src/lib/ptrace.c:27): {refused}\nError (compel/src/lib/infect.c:417): {last}\n"
    )
    assert explain(read_error_lines(log)).reason == "under-a-filter"
    assert (
        explain(
            [refused, "io_uring: Can't dump file 5 of that type [600] (anon anon_inode:[io_uring])"]
        ).reason
        == "io-uring"
    )


@pytest.mark.parametrize("sentence", NOBODYS)
def test_rules_do_not_claim_what_is_not_theirs(sentence: str, noted: Path):
    found = explain([sentence])
    assert (found.reason, found.sentence) == ("criu-unknown", sentence)
    assert noted.read_text() == sentence + "\n"


def test_the_root_is_found_among_what_follows_from_it():
    lines = [
        "Can't dump file 5 of that type [600] (anon anon_inode:[io_uring])",
        "Dump files (pid: 4711) failed with -1",
        "Dumping FAILED.",
    ]
    assert explain(lines).sentence == lines[0]


def test_what_criu_kills_after_a_failure_does_not_hide_that_failure():
    lines = [
        "File usr/lib/libc.so has bad size 12 (expect 13)",
        "7 exited, status=1",
        "2 killed by signal 9: Killed",
        "Restoring FAILED.",
    ]
    found = explain(lines)
    assert (found.reason, found.sentence) == ("file-changed", lines[0])


def test_a_special_rule_wins_over_a_general_one():
    """The rule matters more than the order: of two lines the one with the better remedy is shown."""
    lines = ["Can't open root: Permission denied", "Can't get rlimit 0: Operation not permitted"]
    assert explain(lines).reason == "limits-of-other-user"


def test_silence_is_told_as_such(noted: Path):
    assert explain([]).sentence == "CRIU gave no reason"
    assert noted.read_text()


def test_errors_are_read_from_a_log(tmp_path: Path):
    log, lost = tmp_path / "criu.log", "recv failed (0, want 57): Invalid argument"
    log.write_text(
        "Warn  (criu/x.c:1): not an error\n"
        "Error (criu/util.c:641): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
        "(00.004321) Error (criu/files-ext.c:94): first\n"
        "(00.004322)   4711: Error (criu/cr-dump.c:1605): second: with a colon\n"
        "Error (compel/src/lib/infect.c:262): third\n"
        "(00.004323) Error (soccr/soccr.c:433): \trecv failed (0, want 57): Invalid argument\n"
        "junk \udcff\n".encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
    assert read_error_lines(log) == ["first", "second: with a colon", "third", lost]
    assert read_error_lines(tmp_path / "none") == []
