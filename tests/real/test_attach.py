"""Processes that Relive did not start, named by their pid."""

from __future__ import annotations

import os
import pty
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.kernel import procfs
from support.ports import free_port
from support.waiting import eventually

from .harness import PROGRAMS, PYTHON, SERVICES, Http, Process, Refused, Relive, ask, compiled, counting
from .scenario import lives_twice
from .test_c_program import rounds
from .test_kinds import ask_kind

Start = Callable[..., Process]
FILE_KINDS = [
    *(
        "open_file_at_an_offset",
        "appended_file",
        "mapped_file",
        "deleted_file",
        "deleted_file_with_another_name",
    ),
    *("file_renamed_over", "open_file_renamed", "file_without_a_name", "deleted_working_directory"),
    *("fifo_with_data", "flock_held", "record_lock_held", "flock_held_on_a_file_of_the_host"),
    *("unix_socket_in_tmp", "unix_socket_abstract", "inotify_on_a_file_of_the_host", "zombie_child"),
    *("tcp_with_both_ends_inside", "tcp_not_yet_accepted", "anonymous_memory_shared_with_a_child", "memfd"),
    *("pair_of_a_terminal", "terminal_hung_up", "namespace_held", "tcp_of_both_families_inside"),
    *("pipe_with_data_and_without_writers", "tcp6_with_full_buffers", "tcp_bound_to_a_device"),
]


def attached(start: Start, directory: Path, **options: object) -> tuple[Process, int]:
    """The HTTP service, with its file in ``directory``."""
    port = free_port()
    options.setdefault("stdout", subprocess.DEVNULL)
    process = start(PYTHON, SERVICES / "attached.py", str(port), directory / "counts", **options)
    ask(port, "/")
    return process, port


def test_a_python_service(relive: Relive, start: Start, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        process, port = attached(start, tmp_path, stdout=out, stderr=out)
    _, branches = lives_twice(relive, f"pid:{process.pid}", port)
    written = branches[0].exec("cat", str(tmp_path / "out")).splitlines()
    assert written[-1] == f"count {ask(branches[0].ports[port], '/')['count']}"


def test_a_service_of_another_user(relive: Relive, start: Start, tmp_path: Path) -> None:
    # Not in tmp_path, whose parents are closed to others.
    with tempfile.TemporaryDirectory(prefix="relive-nobody-") as place:
        Path(place).chmod(0o777)
        process, port = attached(start, Path(place), user="nobody", group="nogroup", extra_groups=[])
        commit = relive.commit(f"pid:{process.pid}")
        branch = relive.restore(commit, port)
        with Http(branch.ports[port]) as client:
            assert client("POST", "/")["count"] == 1
    assert commit.manifest.target.processes[0].uid > 0


def test_a_c_program_within_the_session_of_its_starter(relive: Relive, start: Start, tmp_path: Path) -> None:
    """It is no session leader, as a program in the pipeline of a script is none.

    The session is one of ours: whatever runs the suite may have left its own outside of our PID namespace.
    """
    program = compiled(PROGRAMS / "many_kinds.c", tmp_path)
    out_file = tmp_path / "out"
    with out_file.open("w") as out:
        starter = start(
            "sh", "-c", '"$0" "$1" plain & echo $! >"$1/pid"; wait', program, tmp_path, stdout=out
        )
    eventually(lambda: out_file.stat().st_size > 0)
    pid = int((tmp_path / "pid").read_text())
    assert os.getsid(pid) == starter.pid
    commit = relive.commit(f"pid:{pid}")
    at_most = rounds(out_file.read_text())[-1]
    branch = relive.restore(commit)
    seen = eventually(
        lambda: (numbers := rounds(branch.exec("cat", str(out_file))))[-1] > at_most + 50 and numbers,
        "rounds",
    )
    assert seen[0] == 1  # what it had written before the commit belongs to the commit
    assert eventually(lambda: rounds(out_file.read_text())[-1] > seen[-1])


def test_a_named_directory_is_in_a_branch_as_it_was(relive: Relive, start: Start, tmp_path: Path) -> None:
    """What the host adds to it later is not seen, what it deletes is there, and what the branch writes stays in it."""
    process, port = attached(start, tmp_path)
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (data / name).write_text(f"{name} as it was")
    (data / "link").symlink_to("a")
    commit = relive.commit(f"pid:{process.pid}", "--files", str(data))
    (data / "c").write_text("later")
    (data / "sub" / "d").write_text("later")
    (data / "new").mkdir()
    (data / "a").write_text("changed")
    (data / "sub" / "b").unlink()
    branch = relive.restore(commit, port)
    listed = branch.exec("find", str(data), "-mindepth", "1", "-printf", "%P %y\n").splitlines()
    assert sorted(listed) == ["a f", "link l", "sub d", "sub/b f"]
    assert branch.exec("cat", str(data / "link"), str(data / "sub" / "b")) == "a as it wassub/b as it was"
    branch.exec("touch", str(data / "sub" / "e"))
    assert not (data / "sub" / "e").exists()


def test_output_into_a_pipe_with_a_reader_outside(relive: Relive, start: Start, tmp_path: Path) -> None:
    """The reader goes on hearing from the original only; the branch writes to a file of its own."""
    reading, writing = os.pipe()
    process, port = attached(start, tmp_path, stdout=writing)
    os.close(writing)
    heard: list[bytes] = []

    def listen() -> None:
        while data := os.read(reading, 65536):
            heard.append(data)

    listener = threading.Thread(target=listen)
    listener.start()
    with counting(port) as load:
        commit = relive.commit(f"pid:{process.pid}")
        branch = relive.restore(commit, port)
        load.more()
    with Http(branch.ports[port]) as client:
        assert client("POST", "/")["count"] <= load.last
    assert "count" in branch.inner.log("outlet-0").read_text()
    assert [outlet.writable for outlet in commit.manifest.outlets] == [True]
    count = ask(port, "/")["count"]
    process.close()
    listener.join()
    os.close(reading)
    assert b"".join(heard).decode().splitlines() == [f"count {number}" for number in range(1, count + 1)]


def test_a_process_on_a_terminal(relive: Relive, start: Start, tmp_path: Path) -> None:
    ours, terminal = pty.openpty()

    def take_terminal() -> None:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process, port = attached(
        start, tmp_path, stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=take_terminal
    )
    os.close(terminal)
    drain = threading.Thread(target=_drain, args=(ours,))
    drain.start()
    with counting(port) as load:
        branch = relive.restore(relive.commit(f"pid:{process.pid}"), port)
        load.more()
    with Http(branch.ports[port]) as client:
        for _ in range(1000):  # more than a terminal holds: somebody reads it
            client("POST", "/")
        count = client("GET", "/")["count"]
    eventually(lambda: f"count {count}" in branch.inner.log("outlet-0").read_text(), "the terminal's text")
    process.close()
    drain.join()
    os.close(ours)


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # EIO: the last process on it has ended


def test_files_of_each_kind(relive: Relive, start: Start, tmp_path: Path) -> None:
    """Without a capsule: what ``test_kinds`` shows for capsules, of the kinds that have to do with files."""
    port = free_port()
    (tmp_path / "of-the-host").touch()
    (tmp_path / "host-locked").touch()
    process = start(PYTHON, SERVICES / "kinds", str(port), tmp_path, *FILE_KINDS, stdout=subprocess.DEVNULL)
    eventually(lambda: ask_kind(port, ""), "the program is set up")
    branch = relive.restore(relive.commit(f"pid:{process.pid}"), port)
    answers = {kind: (ask_kind(branch.ports[port], kind), ask_kind(port, kind)) for kind in FILE_KINDS}
    assert {kind: answer for kind, answer in answers.items() if answer != ("ok", "ok")} == {}


def test_system_v_memory_outside_of_an_ipc_namespace_is_refused(
    relive: Relive, start: Start, tmp_path: Path
) -> None:
    program = compiled(PROGRAMS / "many_kinds.c", tmp_path)
    with (tmp_path / "out").open("w") as out:
        process = start(program, tmp_path, stdout=out)
    eventually(lambda: (tmp_path / "out").stat().st_size > 0)
    with pytest.raises(Refused) as refused:
        relive.commit(f"pid:{process.pid}")
    assert refused.value.code == "target-undumpable"
    assert "relive run" in refused.value.remedy
    last = rounds((tmp_path / "out").read_text())[-1]
    assert eventually(lambda: rounds((tmp_path / "out").read_text())[-1] > last)


HOLDER = """
import fcntl, sys, time
held = open(sys.argv[1], "w+")
held.write("mine")
held.flush()
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_lease_on_a_file_is_not_broken(relive: Relive, start: Start, tmp_path: Path) -> None:
    """Opening the file to copy it would: SIGIO then ends the holder, which is frozen and cannot give it back."""
    with (tmp_path / "out").open("w") as out:
        process = start(PYTHON, "-c", HOLDER, tmp_path / "leased", stdout=out)
    eventually(lambda: "ready" in (tmp_path / "out").read_text(), "the lease")
    commit = relive.commit(f"pid:{process.pid}")
    left_out = [one for layer in commit.manifest.layers for one in layer.left_out]
    assert any(one.endswith("leased\ta lease on it would be broken") for one in left_out)
    assert procfs.exists(process.pid)


def test_a_lease_in_a_capsule_is_not_broken(relive: Relive, tmp_path: Path) -> None:
    capsule = relive.run(PYTHON, "-c", HOLDER, tmp_path / "leased")
    eventually(lambda: "ready" in relive.output(capsule), "the lease")
    commit = relive.commit(capsule)
    left_out = [one for layer in commit.manifest.layers for one in layer.left_out]
    assert any(one.endswith("leased\ta lease on it would be broken") for one in left_out)
    assert procfs.exists(capsule.pid)
