"""Commands that a fork runs: told from others by nothing, and only where that is so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from relive.kernel import procfs
from support.fork_servers import OwnServer, own_variable
from support.waiting import eventually

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
# Says at its end whether a fork has run the command; what it has imported goes to a file.
_ASKS = """
import os, sys
from relive.cli.forked import run_forked
status = run_forked()
with open(os.environ["TOLD"], "w") as told:
    print(status, *sys.modules, file=told)
"""
# As ``relive``, but it waits for a server as long as it takes.
_PATIENT = """
import sys
from relive.cli.start import main
from relive.forkserver import asking
asking.ANSWER_LIMIT_S = 600.0
main()
"""
_WAITS = """
import os, sys
from relive.cli.forked import _Signals
from relive.forkserver.asking import ask
from relive.forkserver.rendezvous import connect, meeting_place
with _Signals() as signals:
    fork = ask(connect(meeting_place(os.environ)), "relive.forkserver.trial", ["--wait"],
        environment=dict(os.environ), streams=(0, 2, 2), ends_with_asker=True)
    print(fork.pid, flush=True)
    print(signals.passed_on_to(fork))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """Of these tests alone, and there."""
    home = tmp_path_factory.mktemp("home")
    given = {name: value for name, value in os.environ.items() if not name.startswith("RELIVE_")}
    made = OwnServer({**given, **own_variable(), "RELIVE_HOME": str(home), "TZ": "UTC"})
    made.fork().wait(60)
    yield made
    made.kill()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """It asks as ``relive`` does, and does nothing where a fork does not."""
    path = tmp_path / "asks"
    path.write_text(_ASKS)
    return path


def ask_by(script: Path, server: OwnServer, *words: str, **variables: str) -> tuple[str, set[str]]:
    """(the exit status, or "None" where it was not forked; modules imported) of ``script WORDS``."""
    told = script.parent / "told"
    subprocess.run(
        [sys.executable, script, *words],
        env={**server.environment, "TOLD": str(told), **variables},
        cwd=script.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=True,
    )
    status, *modules = told.read_text().split()
    return status, set(modules)


def said(server: OwnServer, *words: str, cwd: Path, environment: Mapping[str, str] | None = None) -> object:
    done = subprocess.run(
        [RELIVE, *words],
        env={**server.environment, **(environment or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_a_command_imports_to_have_it_done(script: Path, server: OwnServer):
    """Nothing else: what stands here is most of the time that it takes."""
    status, modules = ask_by(script, server, "ps")
    assert status == "0"
    assert {name for name in modules if name.startswith("relive")} == {
        *("relive", "relive.cli", "relive.cli.forked", "relive.cli.start"),
        *("relive.forkserver", "relive.forkserver.asking", "relive.forkserver.attributes"),
        *("relive.forkserver.rendezvous", "relive.forkserver.request", "relive.forkserver.successor"),
        *("relive.kernel", "relive.kernel.heap", "relive.kernel.libc"),
    }
    slow = {"asyncio", "dataclasses", "inspect", "pydantic", "subprocess", "tempfile", "typer"}
    assert modules & slow == set()


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("log", "--json"),
        ("incidents", "--limit", "0"),
        ("show", "nothing"),
        ("show", "nothing", "--json"),
        ("commit", "nobody"),
        ("exec", "nobody", "--", "true"),
        ("health", "--help"),
        ("stop", "--evry"),
    ],
    ids=" ".join,
)
def test_a_fork_says_what_a_process_of_its_own_says(
    script: Path, server: OwnServer, tmp_path: Path, words: tuple[str, ...]
):
    assert ask_by(script, server, *words)[0] != "None"
    found = said(server, *words, cwd=tmp_path)
    assert found == said(server, *words, cwd=tmp_path, environment={"RELIVE_FORK_SERVER": "0"})


@pytest.mark.parametrize(
    ("words", "variables", "file"),
    [
        (["--version"], {}, ""),
        (["run", "--", "true"], {}, ""),
        (["ps"], {"RELIVE_FORK_SERVER": "0"}, ""),
        (["ps"], {"RELIVE_FORK_SERVER": "no"}, ""),
        (["ps"], {}, "fork_server = false"),
        (["ps"], {"PYTHONSAFEPATH": "1"}, ""),  # nobody serves for that
        (["ps"], {"PYDANTIC_DISABLE_PLUGINS": "1"}, ""),
        (["ps"], {"LD_PRELOAD": ""}, ""),
    ],
)
def test_what_is_no_fork_s_affair_is_left_alone(
    script: Path, server: OwnServer, words: list[str], variables: dict[str, str], file: str
):
    (script.parent / "relive.toml").write_text(file)
    assert ask_by(script, server, *words, **variables)[0] == "None"


def test_without_a_server_it_is_left_alone_and_none_is_started(script: Path, server: OwnServer):
    other = own_variable()
    assert ask_by(script, server, "ps", **other)[0] == "None"
    assert OwnServer({**server.environment, **other}).pid() is None


def test_with_a_closed_stream_it_is_left_alone(script: Path, server: OwnServer):
    told = script.parent / "told"
    subprocess.run(
        ["sh", "-c", f"exec {sys.executable} {script} ps >&-"],
        env={**server.environment, "TOLD": str(told)},
        timeout=100,
        check=True,
    )
    assert told.read_text().startswith("None ")


def test_settings_of_one_command_are_not_the_next_one_s(server: OwnServer, tmp_path: Path):
    """Of variables, of a file in the directory, and of where it is."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "relive.toml").write_text("no_such_setting = 1\n")
    wrong = said(server, "ps", cwd=tmp_path / "first")
    other = said(server, "log", cwd=tmp_path / "second", environment={"RELIVE_KEEP": "none"})
    key = said(server, "log", cwd=tmp_path / "second", environment={"RELIVE_STORE_KEY": "none"})
    right = said(server, "ps", cwd=tmp_path / "second")
    assert "config-invalid" in str(wrong) and "no_such_setting" in str(wrong)
    assert "'keep'" in str(other)
    assert "RELIVE_STORE_KEY" in str(key)
    assert right == (0, "", "Nothing runs.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_the_server_stands_still_ends_it_at_once(
    server: OwnServer, tmp_path: Path, number: signal.Signals
):
    script, pid = tmp_path / "relive", server.pid()
    script.write_text(_PATIENT)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with subprocess.Popen(
            [sys.executable, script, "ps"],
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                eventually(lambda: has_socket(process.pid))
                process.send_signal(number)
                out, _ = process.communicate(timeout=60)
            finally:
                process.kill()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (out, process.returncode) == (b"", -number)


def has_socket(pid: int) -> bool:
    try:
        return any(os.readlink(one).startswith("socket:") for one in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # closed meanwhile
        return False


def test_a_reader_that_has_gone_ends_it_as_others(server: OwnServer, tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [RELIVE, "log", "--json"],
        env=server.environment,
        cwd=tmp_path,
        stdout=writing,
        timeout=100,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE


@pytest.fixture
def waiting(server: OwnServer, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has a fork run what waits, and the fork's pid."""
    script = tmp_path / "waits"
    script.write_text(_WAITS)
    with (
        subprocess.Popen(
            [sys.executable, script],
            env=server.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,  # the parent's session: the kernel lets a terminal stop none that nobody could continue
        ) as process
    ):
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def state(pid: int) -> str | None:
    stat = procfs.read_stat(pid)
    return stat.state if stat is not None else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_the_fork_s(waiting: tuple[subprocess.Popen[str], int], number: signal.Signals):
    process, _ = waiting
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert out == f"{-number}\n"
    assert process.returncode == 0


def test_a_fork_ends_with_who_asked_for_it(waiting: tuple[subprocess.Popen[str], int]):
    process, pid = waiting
    process.kill()
    process.wait(60)
    eventually(lambda: state(pid) in (None, "Z"))


def test_stopped_by_the_terminal_both_stand_still_and_go_on(waiting: tuple[subprocess.Popen[str], int]):
    process, pid = waiting
    process.send_signal(signal.SIGTSTP)
    for one in (process.pid, pid):
        eventually(lambda one=one: state(one) == "T")
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert out == f"{-signal.SIGTERM}\n"
