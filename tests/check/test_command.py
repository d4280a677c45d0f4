"""What is said of commands that do not run: programs of this host, and environments made of a few files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from relive.check import command as module
from relive.check.command import examine
from relive.check.elf import read_elf
from relive.check.finding import Finding
from relive.check.pythons import find_python
from relive.check.report import verdict_of


def codes(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.severity.value, one.code) for one in found]


def test_a_program_that_is_not_there() -> None:
    for word in ("no-such-program", "/no/such/program", "/etc/passwd"):
        expected, found = examine([word], None)
        assert expected == [] and codes(found) == [("blocks", "program-missing")]
        assert verdict_of(found) == "refused"


def test_this_python_and_its_packages(tmp_path: Path) -> None:
    expected, found = examine([sys.executable, "service.py"], None)
    said = {one.name: one.value for one in expected}
    assert said["runtime"] == "CPython {}.{}".format(*sys.version_info)
    assert said["recorder"] == "works inside of it" and "httpx" in said["recorded"]
    assert not [one for one in found if one.severity in ("blocks", "lost", "left-out")]


def test_a_script_is_judged_by_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "serve"
    script.write_text("#!/usr/bin/env -S python3.6 -u\n")
    script.chmod(0o755)
    place = tmp_path / "python3.6"
    place.write_bytes(Path(sys.executable).resolve().read_bytes()[:4096])
    place.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{tmp_path}:{before}"
    try:
        expected, found = examine([str(script)], None)
    finally:
        os.environ["PATH"] = before
    assert {one.name: one.value for one in expected}["interpreter"] == str(place)
    assert codes(found) == [("left-out", "recorder")] and verdict_of(found) == "partly"


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_takes_no_recorder_in(option: str) -> None:
    assert ("left-out", "recorder") in codes(examine([sys.executable, option, "x.py"], None)[1])


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert ("blocks", "port-taken") in codes(examine(["cat"], port)[1])
    assert f"{port} is free" in [one.value for one in examine(["cat"], port)[0]]


def test_what_runs_already_is_named() -> None:
    words = ["sleep", "31415926"]
    with subprocess.Popen(words) as running:
        try:
            (one,) = examine(words, None)[1]
            assert one.code == "runs-already" and one.subject == f"pid {running.pid}"
        finally:
            running.kill()


def test_a_unit_that_starts_the_same_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cat = examine(["cat"], None)[0][0].value
    (tmp_path / "cats.service").write_text(f"[Service]\nExecStart=-{cat} /etc/motd\n")
    (tmp_path / "dogs.service").write_text("[Service]\nExecStart=/bin/dog\n")
    monkeypatch.setattr(module, "_UNITS", (str(tmp_path), str(tmp_path)))
    (one,) = (one for one in examine(["cat"], None)[1] if one.code != "runs-already")  # others run it as well
    assert (one.code, one.subject) == ("unit", "cats.service") and "/etc/motd" in one.cause


def test_setuid_is_noted(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o4755)
    assert codes(examine([str(program)], None)[1]) == [("note", "setuid")]


def test_programs_by_their_first_bytes(tmp_path: Path) -> None:
    true = read_elf(Path("/bin/true"))
    assert true is not None and true.bits == 64 and "ld-linux" in true.loader and not true.is_static
    (tmp_path / "s.c").write_text("int main(void) { return 0; }")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "s", tmp_path / "s.c"], check=True)
    static = read_elf(tmp_path / "s")
    assert static is not None and static.is_static
    head = bytearray((tmp_path / "s").read_bytes()[:64])
    head[4] = 1
    (tmp_path / "t").write_bytes(head)
    short = read_elf(tmp_path / "t")
    assert short is None or short.bits == 32


@pytest.mark.parametrize("size", [0, 3, 20, 51, 60, 64, 100])
def test_a_damaged_program_is_no_program(tmp_path: Path, size: int) -> None:
    (tmp_path / "x").write_bytes(Path("/bin/true").read_bytes()[:size])
    assert read_elf(tmp_path / "x") is None
    (tmp_path / "y").write_bytes(b"\x7fELF" + b"\x02\x01" + b"\xff" * 200)
    assert read_elf(tmp_path / "y") is None


def test_an_environment_is_read_by_its_files(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.13" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.1\n")
    for name in ("Psycopg_Binary-3.2.dist-info", "redis-6.0.dist-info", "no-version"):
        (site / name).mkdir()
    python = find_python(tmp_path / "bin" / "python")
    assert python is not None and python.version == (3, 13) and python.is_recorded
    assert python.packages == {"psycopg_binary": "3.2", "redis": "6.0"}
    assert find_python(Path("/usr/bin/pythonista")) is None


def test_servers_whose_requests_are_not_seen_inside_are_named(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.13" / "site-packages"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.1\n")
    for name in ("gevent-26.9.0.dist-info", "uWSGI-2.0.30.dist-info", "cheroot-11.0.0.dist-info"):
        (site / name).mkdir(parents=True)
    expected, found = examine([str(tmp_path / "bin" / "python"), "serve.py"], None)
    assert {one.name: one.value for one in expected}["servers"] == "gevent 26.9.0"
    assert [one.subject for one in found if one.code == "recorder"] == ["cheroot", "uwsgi"]
