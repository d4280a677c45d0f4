"""A service under Relive has its files on the host, and each commit has them as they were.

The service does what it is told (``services/told.py``), so the files stand still whenever they are compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from relive.kernel.unixpath import near
from relive.sandbox.branch import list_branches
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Branch, Capsule, Relive

State = dict[str, tuple[object, ...]]


class Told:
    """The service, in a directory of its own, which the test sees as any other process does."""

    def __init__(self, relive: Relive, directory: Path, *options: str) -> None:
        self.relive, self.directory, self.options = relive, directory, options
        self.port = free_port()

    def start(self) -> Capsule:
        words = ["--detach", "--every", "never", "--no-recorder", "--name", "told", *self.options, "--"]
        command = [str(PYTHON), str(SERVICES / "told.py"), str(self.port), str(self.directory)]
        answer = self.relive("run", *words, *command)
        eventually(lambda: self("answer = 1", self.port) == "1", "the service answers")
        return Capsule(answer["name"], answer["life"], answer["pid"])

    def __call__(self, code: str, port: int | None = None) -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port or self.port}", code.encode("utf-8", "surrogateescape"), method="POST"
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return str(answer.read().decode("utf-8", "surrogateescape"))

    def commit(self) -> tuple[str, State]:
        """A commit, and the files at its moment."""
        state = state_of(self.directory)
        return self.relive("commit", "told")["id"], state

    def branch(self, commit: str) -> Branch:
        return self.relive.restore(commit, self.port)

    def seen_by(self, branch: Branch) -> State:
        """The directory as the service of a branch sees it."""
        told: State = eval(self(LOOK.format(directory=str(self.directory)), branch.ports[self.port]))
        return told


LOOK = """
import hashlib, os, stat
def hashed(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
def look(top):
    found = {{}}
    for directory, names, files in os.walk(os.fsencode(top)):
        for name in [*names, *files]:
            path = os.path.join(directory, name)
            facts = os.lstat(path)
            kind = stat.S_IFMT(facts.st_mode)
            content = hashed(path) if kind == stat.S_IFREG else None
            link = os.readlink(path) if kind == stat.S_IFLNK else None
            times = None if kind in (stat.S_IFDIR, stat.S_IFLNK) else facts.st_mtime_ns
            attributes = [] if kind == stat.S_IFLNK else [
                (name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)) if name.startswith("user.")
            ]
            found[os.fsdecode(path)] = (
                facts.st_mode, facts.st_uid, facts.st_gid, times, content, link, attributes
            )
    return found
answer = look({directory!r})
"""


def state_of(directory: Path) -> State:
    names: dict[str, State] = {}
    exec(LOOK.format(directory=str(directory)), names)  # the same code as in the branch
    return names["answer"]


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="relive-files-", dir="/var/tmp") as name:
        yield Path(name)


@pytest.fixture
def told(relive: Relive, place: Path) -> Told:
    return Told(relive, place)


def test_what_it_writes_is_on_the_host_at_once_and_stays(told: Told, place: Path) -> None:
    (place / "before").write_text("the host's")
    (place / "deleted").touch()
    told.start()
    told("open('new', 'w').write('x'); os.unlink('deleted'); os.rename('before', 'moved')")
    assert (place / "new").read_text() == "x"
    assert {path.name for path in place.iterdir()} == {"new", "moved"}
    (place / "from-outside").write_text("seen at once")
    assert told("answer = open('from-outside').read()") == "'seen at once'"
    told.relive("stop", "told")
    assert {path.name for path in place.iterdir()} == {"new", "moved", "from-outside"}


CHANGES = """
open('appended', 'a').write('more'); open('new', 'w').write('new')
open('tmp', 'w').write('replaced'); os.rename('tmp', 'renamed-over')
os.unlink('unlinked'); os.chmod('mode', 0o751); os.truncate('cut', 1)
os.rename('tree', 'elsewhere'); os.unlink('link'); os.symlink('other', 'link')
os.mkdir('made'); open('made/in', 'w').write('x'); os.setxattr('attributed', 'user.k', b'new')
os.unlink(b'bytes-\\xff'); open('line\\nbreak', 'a').write('more')
import mmap
with open('mapped', 'r+b') as file, mmap.mmap(file.fileno(), 0) as view:
    view[:3] = b'new'
"""


def fill(place: Path) -> None:
    for name in (
        "appended",
        "renamed-over",
        "unlinked",
        "mode",
        "cut",
        "mapped",
        "untouched",
        "attributed",
        "line\nbreak",
    ):
        (place / name).write_text(f"{name} as it was")
    (place / "tree" / "deep").mkdir(parents=True)
    (place / "tree" / "deep" / "file").write_text("deep")
    (place / "tree" / "deep").chmod(0o711)
    (place / "link").symlink_to("appended")
    (place / os.fsdecode(b"bytes-\xff")).write_text("no UTF-8")
    os.setxattr(place / "attributed", "user.k", b"old")
    os.chown(place / "cut", 12, 34)


def test_a_commit_has_the_files_as_they_were_however_they_change(told: Told, place: Path) -> None:
    """A branch that ran already when they changed, one that came after, and one that came after a later life."""
    fill(place)
    told.start()
    told("open('touched', 'w').write('before the commit')")
    commit, state = told.commit()
    early = told.branch(commit)
    told("held['file'] = open('appended')", early.ports[told.port])  # a descriptor from before the change
    told(CHANGES)
    changed = state_of(place)
    assert changed != state
    late = told.branch(commit)
    assert told.seen_by(early) == state
    assert told("answer = held['file'].read()", early.ports[told.port]) == "'appended as it was'"
    assert told.seen_by(late) == state
    told("open('new', 'w').write('of the branch'); os.unlink('untouched')", late.ports[told.port])
    assert state_of(place) == changed

    second, then = told.commit()
    told.relive("stop", "told")
    told.start()
    told(
        "os.unlink('untouched'); open('cut', 'w').write('life 2'); os.unlink('new'); open('unlinked', 'w').close()"
    )
    assert told.seen_by(told.branch(commit)) == state
    assert told.seen_by(told.branch(second)) == then


def test_a_large_file_is_not_copied_while_the_service_waits_and_that_is_said(told: Told, place: Path) -> None:
    with (place / "large").open("wb") as file:
        file.write(b"x" * (3 << 20))
    told.relive.environment["RELIVE_BASE_FILE_LIMIT"] = "2097152"
    told.start()
    commit, _ = told.commit()
    told("open('large', 'r+b').write(b'changed')")
    answer = told.relive("restore", commit)
    assert answer["missing_count"] == 1
    ((path, reason),) = [(one["path"], one["reason"]) for one in answer["missing_files"]]
    assert path == str(place / "large") and "too large" in reason


def test_data_is_held_whole_where_that_was_asked_for(relive: Relive, place: Path) -> None:
    (place / "db").mkdir()
    (place / "db" / "table").write_bytes(b"x" * (3 << 20))
    relive.environment["RELIVE_BASE_FILE_LIMIT"] = "2097152"
    told = Told(relive, place, "--data", f"{place}/db=copy")
    told.start()
    commit, state = told.commit()
    told("open('db/table', 'r+b').write(b'changed'); open('db/new', 'w').close()")
    assert told.seen_by(told.branch(commit)) == state


def test_a_killed_agent_leaves_the_service_going_and_the_next_commit_whole(told: Told, place: Path) -> None:
    capsule = told.start()
    told("open('one', 'w').write('1'); held['log'] = open('log', 'w')")
    told.commit()
    pid = (told.relive.home / "capsules" / "told" / capsule.life / "agent.pid").read_text().split()[0]
    os.kill(int(pid), 9)
    told("open('two', 'w').write('2'); held['log'].write('more'); held['log'].flush(); os.unlink('one')")
    commit, state = told.commit()
    assert set(state) == {str(place / "two"), str(place / "log")}
    assert told.seen_by(told.branch(commit)) == state


def test_sockets_and_pipes_are_met_by_others_wherever_they_lie(told: Told, place: Path) -> None:
    told.start()
    told(
        "import socket; server = socket.socket(socket.AF_UNIX); server.bind('meet'); server.listen()\n"
        "import threading; threading.Thread(target=lambda: server.accept()[0].sendall(b'hello'), daemon=True).start()"
    )
    import socket

    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT)
        client.connect(str(place / "meet"))
        assert client.recv(5) == b"hello"
    assert stat.S_ISSOCK((place / "meet").stat().st_mode)


def test_files_in_memory_are_the_hosts_too(told: Told) -> None:
    shared = Path("/dev/shm") / f"relive-test-{os.getpid()}"
    runtime = Path("/run") / shared.name
    try:
        shared.write_text("before")
        told.start()
        told(
            f"open('{shared}', 'a').write(' and after'); os.mkdir('{runtime}'); open('{runtime}/pid', 'w').write('1')"
        )
        assert shared.read_text() == "before and after"
        commit, _ = told.commit()
        told(f"os.unlink('{shared}'); os.unlink('{runtime}/pid')")
        branch = told.branch(commit)
        read = f"answer = open('{shared}').read(), open('{runtime}/pid').read()"
        assert told(read, branch.ports[told.port]) == "('before and after', '1')"
    finally:
        shared.unlink(missing_ok=True)
        if runtime.is_dir():
            runtime.rmdir()


def test_with_an_overlay_nothing_reaches_the_host(relive: Relive, place: Path) -> None:
    told = Told(relive, place, "--files", "overlay")
    told.start()
    told("open('new', 'w').write('x')")
    commit, _ = told.commit()
    assert list(place.iterdir()) == []
    assert told("answer = open('new').read()", told.branch(commit).ports[told.port]) == "'x'"


def _is_gone(path: Path) -> bool:
    return not path.exists()


LAST_WORDS = """
import threading
held['words'] = os.open('words', os.O_WRONLY | os.O_CREAT)
def change():
    while True:
        try:
            os.close(os.open('changed', os.O_WRONLY | os.O_CREAT))
        except OSError as error:
            os.write(held['words'], f'{error.errno} '.encode())
for _ in range(8):
    threading.Thread(target=change, daemon=True).start()
"""


def test_no_call_fails_when_process_1_is_killed(told: Told, place: Path) -> None:
    """The service ends with it, and has no moment in which its calls are not answered."""
    for _ in range(4):
        capsule = told.start()
        told(LAST_WORDS)
        eventually((place / "changed").exists)
        service = Path(f"/proc/{capsule.pid}")
        os.kill(int((service / "status").read_text().partition("PPid:")[2].split()[0]), 9)
        eventually(partial(_is_gone, service), "the service is gone")
        assert (place / "words").read_text() == ""
        (place / "changed").unlink()
        eventually(lambda: told.relive("ps") == [], "its end is noted")


def test_process_1_forgets_a_branch_that_has_ended(told: Told, place: Path) -> None:
    """And the service does not wait for it."""
    (place / "old").write_text("old")
    told.start()
    commit, _ = told.commit()
    branch = told.branch(commit)
    os.kill(branch.inner.facts.init, 9)
    told("open('old', 'w').write('new')")
    assert (place / "old").read_text() == "new"
    told.relive("stop", branch.id)
    assert not list_branches(told.relive.settings)


def test_process_1_looks_into_every_layer_over_the_host(told: Told, place: Path) -> None:
    """Each name that the service makes is hidden from a branch, unless one of the layers below the branch's own has it."""
    told.start()
    (files,) = told.relive.settings.home.glob("capsules/told/**/files")
    branch = files / "branch-of-the-test"
    layers = [branch / "between" / str(number) for number in range(20)]
    for directory in (branch / "root", branch / "upper", *layers):
        directory.mkdir(parents=True)
    (layers[-1] / "of-the-last").touch()
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with near(files / "branches") as name:
            line.connect(name)
        line.settimeout(LIMIT)
        held = [os.open(branch / name, os.O_PATH | os.O_DIRECTORY) for name in ("root", "upper")]
        for descriptor in held:
            stack.callback(os.close, descriptor)
        socket.send_fds(line, [b"\1" + os.fsencode(place) + b"\0"], held)
        assert line.recv(1) == b"k"
        told("open('of-the-last', 'w').close(); open('of-none', 'w').close()")
        assert [path.name for path in (branch / "upper").iterdir()] == ["of-none"]
        assert stat.S_ISCHR((branch / "upper" / "of-none").lstat().st_mode)


def test_content_is_compared_by_what_it_is() -> None:
    """The comparison of these tests sees a change of one byte, a mode, a time."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "file"
        path.write_bytes(b"one")
        os.utime(path, ns=(1, 1))
        before = state_of(Path(name))
        assert before[str(path)][4] == hashlib.sha256(b"one").hexdigest()
        for change in (
            lambda: path.write_bytes(b"two"),
            lambda: path.chmod(0o777),
            lambda: os.utime(path, ns=(2, 2)),
        ):
            change()
            now = state_of(Path(name))
            assert now != before
            before = now


def test_directories_that_change_places_are_what_they_were(told: Told, place: Path) -> None:
    """RENAME_EXCHANGE, while a branch runs that has not looked yet."""
    for name in ("one", "two"):
        (place / name / "deep").mkdir(parents=True)
        (place / name / "deep" / "file").write_text(name)
    told.start()
    commit, state = told.commit()
    early = told.branch(commit)
    told("import ctypes; ctypes.CDLL(None).renameat2(-100, b'one', -100, b'two', 2)")
    assert (place / "one" / "deep" / "file").read_text() == "two"
    told("open('one/deep/file', 'w').write('changed'); os.rename('two', 'three')")
    second, then = told.commit()
    assert told.seen_by(early) == state
    told("import shutil; shutil.rmtree('one'); shutil.rmtree('three')")
    assert told.seen_by(told.branch(commit)) == state
    assert told.seen_by(told.branch(second)) == then


def test_attributes_of_links_and_of_what_they_lead_to_are_told_apart(told: Told, place: Path) -> None:
    (place / "file").write_text("x")
    (place / "link").symlink_to("file")
    told.start()
    commit, state = told.commit()
    told(
        "os.chown('link', 12, 34, follow_symlinks=False); os.chown('link', 56, 78); os.utime('link', ns=(1, 1))"
    )
    assert ((place / "link").lstat().st_uid, (place / "file").stat().st_uid) == (12, 56)
    assert told.seen_by(told.branch(commit)) == state
