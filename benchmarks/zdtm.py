"""CRIU's own regression programs (zdtm) through Relive's commit and restore: which come back as they were?

    python benchmarks/zdtm.py [--only NAME,...] [--ways bare,plain,capsule] [--keep FILE] [--json]

Each program of ``test/zdtm/static`` and ``transition`` makes one kind of state, waits for SIGTERM, and then says PASS if the
state is as it was. It is brought into being, committed, ended, restored, and sent SIGTERM in the branch:

- ``bare``: by CRIU alone, in place, the control: what does not pass so here is not asked of Relive.
- ``plain``: a process of the host: ``relive commit pid:N --files`` its own files, ``relive restore``. Those whose TCP
  connection leads to another process of the same program (``_PEERS``) are committed with that, by the pid of a process
  above both: whoever is outside of a commit has no part in its branches.
- ``capsule``: ``relive run``, ``relive commit``, ``relive restore``.

Left out are those for other processors, and those that need what no service has: control groups and security modules of their own,
virtual terminals, packet filters, and options of CRIU that Relive does not use (``_LEFT_OUT``).

All of it takes an hour. With ``--keep`` each result is kept in a file as soon as it is known, and what that has is not run
again. The programs are fetched and built by ``scripts/setup/zdtm.sh``, once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import load_average, print_json, print_table

from relive.cli import main as main_of_relive
from relive.config import load_settings
from relive.kernel import libc, procfs

ROOT = Path(__file__).resolve().parents[1]
RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
WAYS = ("bare", "plain", "capsule")
_LIMIT = 120.0  # [s] for one command
_PR_SET_CHILD_SUBREAPER = 36
_END = 30.0  # [s] for a program to judge itself
_LEFT_OUT = re.compile(
    r"cgroup|apparmor|selinux|loginuid|console|rtc|vt$|deleted_dev"  # the host's administration, and its devices
    r"|net_lock|netns_lock|socket-tcp-ipt|socket-tcp-nft|socket-tcp-reseted|socket-tcp-syn-sent"  # packet filters
    r"|socket-tcp-close\d|socket-dump-tcp-close|skip-in-flight|inotify_irmap|inotify04|pid_reuse"  # CRIU's own options
    r"|unlink_fstat01\+|pthread00-pac"  # a second form of another
    r"|fpu|mmx|sse|vdso|rseq|thp_|lazy-thp|uffd|cow0|membarrier|sigtrap|.*hugetlb"  # the processor's own matters
    r"|packet_sock|socket-raw|.*icmp|.*udplite|sk-netlink|sock_filter|sock_ip_opts|socket_udp-broadcast"  # raw and odd sockets
    r"|stopped|different_creds|thread_different|child_subreaper|clone_fs|sched_|dumpable|pidfd_.*dead|unhashed"  # of jails
)
# Not with others in one capsule.
_ALONE = re.compile(r".*(sock|tcp|udp|pid|lock|lease|seccomp|caps|notify|maps|pty|tty)")
_PEERS = re.compile(r".*/socket-tcp(?!.*local)")
_HOLDER = """
import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: daemons become its children
subprocess.run(sys.argv[2:], check=True)
os.close(int(sys.argv[1]))
signal.pause()
"""
_TOGETHER = 8
_SWITCHES = (
    *("--tcp-established", "--file-locks", "--link-remap", "--ext-unix-sk", "--manage-cgroups=ignore"),
    *("--network-lock", "skip"),
)


class Trouble(Exception):
    """It did not pass; the reason in one line."""


@dataclass(frozen=True, slots=True)
class Program:
    """One of zdtm's, such as ``static/env00``."""

    name: str
    place: Path

    @property
    def stem(self) -> str:
        """Its name without the directory."""
        return self.place.name

    def make(self, what: str) -> list[str]:
        """The command by which it is started (``pid``) or what it left is removed (``cleanout``)."""
        return ["make", "--no-print-directory", "-s", "-C", str(self.place.parent), f"{self.stem}.{what}"]

    def clean(self) -> None:
        """Remove what an earlier run left."""
        _call(self.make("cleanout"))
        for path in self.place.parent.glob(f"{self.stem}.pid*"):
            path.unlink()

    def files(self) -> list[Path]:
        """Of the program and of what it made; not its source."""
        made = (path for path in self.place.parent.glob(f"{self.stem}.*") if path.suffix not in _SOURCES)
        return [self.place, *(path for path in made if path.is_dir() or path.is_file())]


_SOURCES = frozenset({".c", ".o", ".d", ".desc", ".hook", ".checkskip"})


def programs(tree: Path) -> dict[str, Program]:
    """Those that can run on this host without namespaces made for them, and concern services."""
    found = {}
    for source in sorted([*tree.glob("static/*.c"), *tree.glob("transition/*.c")]):
        place, name = source.with_suffix(""), f"{source.parent.name}/{source.stem}"
        about = place.with_suffix(".desc")
        text = about.read_text() if about.exists() else ""
        flavors = (_field(text, "flavor") or "h").split()
        flags = (_field(text, "flags") or "").split()
        is_ours = "x86_64" in (_field(text, "arch") or "x86_64") and not _LEFT_OUT.match(source.stem)
        if "h" in flavors and not {"crfail", "noauto"} & set(flags) and is_ours and os.access(place, os.X_OK):
            found[name] = Program(name, place)
    return found


def _field(text: str, name: str) -> str | None:
    """The text after a name in a description; these are expressions of Python, which are not evaluated."""
    match = re.search(rf"""["']{name}["']\s*:\s*["']([^"']*)["']""", text)
    return match[1] if match else None


def _call(words: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Trouble(f"{words[0]} {words[1]} does not end") from None


def _wait(check: Callable[[], Any], limit: float, what: str) -> None:
    until = time.monotonic() + limit
    while not check():
        if time.monotonic() > until:
            raise Trouble(what)
        time.sleep(0.02)


def _reap() -> None:
    """Take the ends of orphans, which come to this process; only while no command of ours runs."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _has_gone(pid: int) -> bool:
    _reap()
    stat = procfs.read_stat(pid)
    return stat is None or stat.state in "ZX"


@contextlib.contextmanager
def _started(program: Program) -> Iterator[int]:
    """It runs as a process of the host; ended afterwards, if it is there."""
    done = _call(program.make("pid"))
    pidfile = _pidfile(program)
    if done.returncode != 0 or not pidfile.exists():
        raise Trouble("does not start: " + _last(done.stderr))
    pid = int(pidfile.read_text())
    handle = os.pidfd_open(pid)
    tree = procfs.tree_of(pid)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        _kill_rest(program, tree)


@contextlib.contextmanager
def _held(program: Program) -> Iterator[int]:
    """As ``_started``, of the process above it and its peer."""
    reading, writing = os.pipe()
    command = [sys.executable, "-c", _HOLDER, str(writing), *program.make("pid")]
    nothing = subprocess.DEVNULL
    holder = subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[writing], start_new_session=True
    )
    os.close(writing)
    tree: list[int] = []
    try:
        with os.fdopen(reading) as started:
            if not select.select([started], [], [], _LIMIT)[0] or not _pidfile(program).exists():
                raise Trouble("does not start")
        tree = procfs.tree_of(holder.pid)
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        _kill_rest(program, tree)


def _pidfile(program: Program) -> Path:
    return program.place.with_name(f"{program.stem}.pid")


def _kill_rest(program: Program, tree: list[int]) -> None:
    """What is left of its tree; by its executable, since numbers may have been taken again."""
    for pid in tree:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/exe").readlink() == program.place:
                os.kill(pid, signal.SIGKILL)
    _wait(lambda: all(map(_has_gone, tree)), _END, "is not gone")


def _judged(program: Program, pid: int, directory: int) -> None:
    """Have it judge itself; ``pid``: on the host, ``directory``: where its files are, as it sees them."""
    os.kill(pid, signal.SIGTERM)
    _wait(lambda: _has_gone(pid), _END, "does not end in the branch")
    text = _read(directory, f"{program.stem}.out")
    if "PASS" not in (text or "").rpartition("\n")[0].rpartition("\n")[2].split():  # the last line decides
        raise Trouble(
            "judged: "
            + _last(text or _read(directory, f"{program.stem}.out.inprogress") or "nothing was written")
        )


def _read(directory: int, name: str) -> str | None:
    try:
        with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=directory), errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "FAIL" in line), lines[-1] if lines else "")[:200]


class Lab:
    """A home of Relive, and the ways."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        tools = load_settings().tools_path
        self._criu = str(tools / "criu")
        self._environment = dict(os.environ, RELIVE_HOME=str(directory / "home"), RELIVE_TOOLS=str(tools))
        self._number = 0

    def relive(self, command: str, *words: str) -> Any:
        """The JSON answer of a command, in a child of this process: what it imports is imported once."""
        status, told, said = self._said([command, "--json", *words])
        try:
            answer = json.loads(told or "null")
        except ValueError:
            raise Trouble(f"{command}: {_last(told + said)}") from None
        if isinstance(answer, dict) and "error" in answer:
            error = answer["error"]
            raise Trouble(f"{command}: {error['code']}: {error['message']}: {error.get('cause')}"[:400])
        if status != 0:
            raise Trouble(f"{command}: {_last(said)}")
        return answer

    def _said(self, words: list[str]) -> tuple[int, str, str]:
        """Exit status, standard output and error of ``relive``."""
        paths = [self._directory / name for name in ("stdout", "stderr", "modules")]
        child = os.fork()
        if child == 0:
            os._exit(_run(words, self._environment, paths))
        until = time.monotonic() + _LIMIT
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise Trouble(f"{words[0]} does not end")
            time.sleep(0.01)
        for name in paths[2].read_text().split():
            if name not in sys.modules:
                importlib.import_module(name)
        return os.waitstatus_to_exitcode(status), paths[0].read_text(), paths[1].read_text(errors="replace")

    def bare(self, program: Program) -> None:
        """By CRIU alone."""
        with tempfile.TemporaryDirectory(dir=self._directory) as images, _started(program) as pid:
            tree = procfs.tree_of(pid)
            self._criu_does(["dump", "-t", str(pid)], images)
            _wait(lambda: all(map(_has_gone, tree)), _END, "is not gone")
            self._criu_does(["restore", "-d"], images)
            with _opened(program.place.parent) as directory:
                try:
                    _judged(program, pid, directory)
                finally:
                    _kill_rest(program, procfs.tree_of(pid))

    def _criu_does(self, words: list[str], images: str) -> None:
        done = _call([self._criu, *words, "-D", images, *_SWITCHES])
        if done.returncode != 0:
            raise Trouble(f"{words[0]}: {_last(done.stderr)}")

    def plain(self, program: Program) -> None:
        """As a process of the host."""
        start = _held if _PEERS.match(program.name) else _started
        with start(program) as pid:
            files = [word for path in program.files() for word in ("--files", str(path))]
            commit = self.relive("commit", f"pid:{pid}", *files)["id"]
        self._in_branch(commit, program)

    def capsule(self, *programs: Program) -> None:
        """In a capsule, one or several."""
        self._number += 1
        name = f"zdtm-{self._number}"
        start = " && ".join([*(" ".join(one.make("pid")) for one in programs), "exec sleep 100000"])
        answer = self.relive("run", "--detach", "--name", name, "--every", "never", "--", "sh", "-c", start)
        try:
            _wait(
                lambda: procfs.name_of(answer["pid"]) in ("sleep", None), _END, "does not start in a capsule"
            )
            if procfs.name_of(answer["pid"]) is None:
                raise Trouble("does not start in a capsule")
            commit = self.relive("commit", name)["id"]
        finally:
            with contextlib.suppress(Trouble):
                self.relive("stop", "--timeout", "1", name)
        self._in_branch(commit, *programs)

    def _in_branch(self, commit: str, *programs: Program) -> None:
        branch = self.relive("restore", "--clock", "now", commit)
        try:
            for program in programs:
                place = Path(f"/proc/{branch['root']}/root") / program.place.parent.relative_to("/")
                with _opened(place) as directory:
                    inside = int(_read(directory, f"{program.stem}.pid") or 0)
                    _judged(program, _outside(branch["root"], inside), directory)
        finally:
            with contextlib.suppress(Trouble):
                self.relive("stop", "--timeout", "1", branch["id"])


def _run(words: list[str], environment: dict[str, str], paths: list[Path]) -> int:
    """What the ``relive`` script does; its output and the names of the modules that it imported go to files."""
    for number, path in zip((1, 2), paths, strict=False):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.environ.update(environment)
    libc.call("prctl", _PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    sys.argv = ["relive", *words]
    status = 0
    try:
        main_of_relive()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    sys.stdout.flush()
    sys.stderr.flush()
    paths[2].write_text("\n".join(name for name in list(sys.modules) if name.startswith("relive.")))
    return status


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    number = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield number
    finally:
        os.close(number)


def _outside(root: int, inside: int) -> int:
    """The host's number of a process of the branch."""
    space = os.readlink(f"/proc/{root}/ns/pid")
    for word in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            is_here = word.isdigit() and os.readlink(f"/proc/{word}/ns/pid") == space
            if is_here and procfs.innermost_pid(int(word)) == inside:
                return int(word)
    raise Trouble("is not in the branch")


def tried(lab: Lab, programs: list[Program], way: str) -> str:
    """``PASS``, or why not all of them."""
    for program in programs:
        program.clean()
    try:
        getattr(lab, way)(*programs)
    except Trouble as trouble:
        return str(trouble) or "no reason given"
    except (OSError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        with contextlib.suppress(Trouble):
            for program in programs:
                program.clean()
    return "PASS"


def main() -> None:
    """Run and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="names of programs (static/env00), with commas between them"
    )
    parser.add_argument("--ways", default=",".join(WAYS), help="default %(default)s")
    parser.add_argument("--keep", type=Path, help="a file of results: those in it are told, others are added")
    parser.add_argument("--directory", default="/var/tmp", help="where to work (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    # What a program leaves when it makes itself a daemon comes to this process, wherever this runs (prctl(2)).
    libc.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: terminated"))
    subprocess.run(["bash", str(ROOT / "scripts/setup/zdtm.sh")], check=True, env=_with_tools())
    found = _kept(options.keep)
    directory = Path(tempfile.mkdtemp(prefix="zdtm-", dir=options.directory))
    try:
        # The folder of the tools is read-only in every sandbox.
        tree = Path(shutil.copytree(load_settings().tools_path / "zdtm", directory / "zdtm", symlinks=True))
        known = programs(tree)
        wanted = options.only.split(",") if options.only else list(known)
        lab = Lab(directory)
        for way in options.ways.split(","):
            left = [
                name
                for name in wanted
                if (way, name) not in found and (way == "bare" or found.get(("bare", name), "PASS") == "PASS")
            ]
            for names, word in _results(lab, known, way, left):
                for name in names:
                    found[way, name] = word
                    print(f"{way} {name}: {word}", file=sys.stderr, flush=True)
                    if options.keep is not None:
                        with options.keep.open("a") as file:
                            file.write(json.dumps([way, name, word]) + "\n")
    finally:
        with contextlib.suppress(Trouble):
            _call([str(RELIVE), "stop", "--all"], dict(os.environ, RELIVE_HOME=str(directory / "home")))
        shutil.rmtree(directory, ignore_errors=True)
    _tell(found, wanted, options)


def _results(
    lab: Lab, known: dict[str, Program], way: str, names: list[str]
) -> Iterator[tuple[list[str], str]]:
    """Names with their word. Several share a capsule; where not all of them pass, each is tried by itself."""
    alone = [name for name in names if way != "capsule" or _ALONE.match(name)]
    rest = [name for name in names if name not in alone]
    for first in range(0, len(rest), _TOGETHER):
        together = rest[first : first + _TOGETHER]
        if tried(lab, [known[name] for name in together], way) == "PASS":
            yield together, "PASS"
        else:
            alone += together
    for name in alone:
        yield [name], tried(lab, [known[name]], way)


def _with_tools() -> dict[str, str]:
    return dict(os.environ, RELIVE_TOOLS=str(load_settings().tools_path))


def _kept(file: Path | None) -> dict[tuple[str, str], str]:
    lines = file.read_text().splitlines() if file is not None and file.exists() else ()
    return {(way, name): word for way, name, word in map(json.loads, lines)}


def _tell(found: dict[tuple[str, str], str], wanted: list[str], options: argparse.Namespace) -> None:
    rows = []
    for way in options.ways.split(","):
        words = [found[way, name] for name in wanted if (way, name) in found]
        rows.append({"way": way, "programs": len(words), "passed": words.count("PASS")})
    others = {f"{way} {name}": word for (way, name), word in sorted(found.items()) if word != "PASS"}
    if options.json:
        print_json({"load": load_average(), "rows": rows, "others": others})
        return
    for what, word in others.items():
        print(f"{what}: {word}")
    print_table(f"CRIU's regression programs (load {load_average()})", rows)


if __name__ == "__main__":
    main()
