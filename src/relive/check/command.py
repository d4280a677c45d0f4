"""What can be known of a command before it runs, by files and /proc alone."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from relive.check.elf import read_elf
from relive.check.finding import Finding
from relive.check.pythons import RECORDED, SERVERS, Python, find_python
from relive.check.report import Expected
from relive.check.rules.making import blocks, left_out, note_finding
from relive.kernel.sockdiag import listening_ports

__all__ = ["examine", "interpreters", "locate"]

_SCRIPT = b"#!"
_MOST_SCRIPT_LINE = 4096
_MOST_SCRIPTS = 5  # scripts whose interpreter is a script, as many as the kernel follows
_UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_EXEC_START = re.compile(
    r"^\s*ExecStart\s*=\s*[-@:+!|]*\"?(?P<program>[^\s\"]+)\"?(?P<rest>.*)$", re.MULTILINE
)
_WITHOUT_RECORDER = {"-I": "isolated", "-E": "ignores PYTHON* variables", "-S": "does not import site"}
_GO_MARK = b"\xff Go buildinf:"
_MOST_MARKED = 64 << 20  # [bytes] of a program that are searched for it
# Packages, normalised, that serve requests by ways that the recorder does not know.
_NOT_RECORDED = frozenset("bjoern cheroot eventlet granian meinheld pyuwsgi sanic tornado uwsgi".split())


def examine(words: list[str], port: int | None) -> tuple[list[Expected], list[Finding]]:
    """(what is to be expected, findings) for a command that would be started here and with this environment."""
    path = locate(words[0])
    if path is None:
        missing = blocks(
            "program-missing",
            None,
            words[0],
            "there is no such program that can be run" + ("" if "/" in words[0] else " in PATH"),
            "write its full path; services often have another PATH than shells",
        )
        return [], [missing]
    expected = [Expected(name="program", value=str(path))]
    findings: list[Finding] = []
    chain = interpreters(path)
    program = chain[-1]
    if len(chain) > 1:
        expected.append(Expected(name="interpreter", value=str(program)))
    more, found = _binary(program)
    expected += more
    findings += found
    python = find_python(program)
    if python is not None:
        more, found = _python(python, words if len(chain) == 1 else [], path)
        expected += more
        findings += found
    findings += _rights(path)
    if port is not None:
        more, found = _port(port)
        expected += more
        findings += found
    findings += _elsewhere(words, path)
    return expected, findings


def locate(word: str) -> Path | None:
    """The program that a word means, by PATH; None where there is none."""
    found = shutil.which(word)
    return Path(found).absolute() if found is not None else None


def interpreters(path: Path) -> list[Path]:
    """The program and, of a script, what its first line names, and so on."""
    chain = [path]
    while len(chain) <= _MOST_SCRIPTS:
        with contextlib.suppress(OSError), chain[-1].open("rb") as file:
            line = file.readline(_MOST_SCRIPT_LINE)
            if line.startswith(_SCRIPT):
                words = os.fsdecode(line[2:]).split()
                if words and Path(words[0]).name == "env":
                    words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
                nearer = locate(words[0]) if words else None
                if nearer is not None:
                    chain.append(nearer)
                    continue
        break
    return chain


def _binary(path: Path) -> tuple[list[Expected], list[Finding]]:
    try:
        elf = read_elf(path)
    except OSError as error:
        return [], [
            blocks(
                "program-missing", None, str(path), f"it cannot be read: {error.strerror}", "mend its mode"
            )
        ]
    if elf is None:
        return [], []
    findings = []
    if elf.bits == 32:
        findings.append(
            note_finding(
                "32-bit",
                None,
                str(path),
                "it is a program of 32 bits: in a branch, libraries from before 2016 cannot make sockets (socketcall)",
            )
        )
    linked = "static" if elf.is_static else f"dynamic, loaded by {elf.loader}"
    runtime = ", written in Go" if _is_go(path) else ""
    return [Expected(name="binary", value=f"{elf.bits} bits, {linked}{runtime}")], findings


def _is_go(path: Path) -> bool:
    """The toolchain puts its mark at the begin of a section, near the end of the read-only ones."""
    if path.stat().st_size > _MOST_MARKED:
        return False
    return _GO_MARK in path.read_bytes()


def _python(python: Python, words: list[str], path: Path) -> tuple[list[Expected], list[Finding]]:
    version = ".".join(map(str, python.version)) if python.version is not None else "of an unknown version"
    kind = "PyPy" if python.is_pypy else "CPython"
    expected = [Expected(name="runtime", value=f"{kind} {version}")]
    findings: list[Finding] = []
    options = [word for word in words[1:] if word in _WITHOUT_RECORDER]
    if not python.is_recorded:
        findings.append(
            left_out(
                "recorder",
                None,
                str(path),
                f"the recorder inside Python services works in CPython 3.8 to 3.14, and this is {kind} {version}",
                "its requests are recorded with --listen, what it asks others all the same, and over TLS with --record-egress",
            )
        )
    elif options:
        findings.append(
            left_out(
                "recorder",
                None,
                " ".join(options),
                f"a Python that {_WITHOUT_RECORDER[options[0]]} does not take the recorder in",
                "start it without; its requests are recorded all the same with --listen",
            )
        )
    else:
        expected.append(Expected(name="recorder", value="works inside of it"))
        if recorded := sorted(RECORDED & python.packages.keys()):
            expected.append(Expected(name="recorded", value=_with_versions(recorded, python) + ", sqlite3"))
    if servers := sorted(SERVERS & python.packages.keys()):
        expected.append(Expected(name="servers", value=_with_versions(servers, python)))
    for name in sorted(_NOT_RECORDED & python.packages.keys()):
        findings.append(
            note_finding(
                "recorder",
                None,
                name,
                f"where {name} serves its requests, the recorder inside does not see them",
            )
        )
    if "uvloop" in python.packages:
        expected.append(
            Expected(
                name="io_uring", value="uvloop may use it; hidden by `relive run`, so it falls back to epoll"
            )
        )
    return expected, findings


def _with_versions(names: list[str], python: Python) -> str:
    return ", ".join(f"{name} {python.packages[name]}" for name in names)


def _rights(path: Path) -> Iterator[Finding]:
    facts = path.stat()
    if facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
        yield note_finding(
            "setuid",
            None,
            str(path),
            "it changes its user or group as it starts; where its real, effective and saved ids stay different, "
            "a commit needs CAP_SYS_RESOURCE",
            "ask `relive check pid:N` when it runs",
        )


def _port(port: int) -> tuple[list[Expected], list[Finding]]:
    if port not in listening_ports():
        return [Expected(name="port", value=f"{port} is free")], []
    return [], [
        blocks(
            "port-taken",
            None,
            f"port {port}",
            "something listens on it already",
            f"`ss -ltnp sport = :{port}` says who; end it, or give the service another port",
        )
    ]


def _elsewhere(words: list[str], path: Path) -> Iterator[Finding]:
    """Somebody else starts the same, or has."""
    for unit, line in _units(path):
        yield note_finding(
            "unit",
            None,
            unit,
            f"this unit of systemd starts the same program: {line}",
            "stop it before you run the service under Relive, so that they do not meet on a port or a data directory",
        )
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            running = Path(f"/proc/{name}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            if [os.fsdecode(word) for word in running] == words:
                yield note_finding(
                    "runs-already",
                    None,
                    f"pid {name}",
                    "a process with the same command line runs",
                    f"`relive check pid:{name}` says what a commit of it would meet",
                )


def _units(path: Path) -> Iterator[tuple[str, str]]:
    """(name, what it starts) of units whose program is this one."""
    real = path.resolve()
    seen: set[str] = set()
    for directory in _UNITS:
        with contextlib.suppress(OSError):
            for child in sorted(Path(directory).glob("*.service")):
                if child.name in seen:
                    continue
                seen.add(child.name)
                with contextlib.suppress(OSError):
                    for match in _EXEC_START.finditer(child.read_text(errors="replace")):
                        if Path(match["program"]).resolve() == real:
                            yield child.name, match["program"] + match["rest"].rstrip()
