"""``relive debug``: a debugger at the failure, in the process itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from relive.cli.replay_cmd import outcome_words
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import ToolMissing
from relive.incidents.incidents import Incidents
from relive.kernel import procfs
from relive.model.incident import FailureKind, Incident
from relive.model.outcome import verdict_words
from relive.model.quantities import duration
from relive.model.text import printable
from relive.operations.respawning import tend_capsules
from relive.replay.debug.outcome import DebugOutcome
from relive.replay.debug.session import Debugged, at_failure, at_request, has_waiting_thread, restored
from relive.sandbox.branch import Branch
from relive.store import Store

__all__ = ["GDB", "debug"]

_QUITS = frozenset({"q", "quit", "exit"})
_OUTCOME_LIMIT = 30.0  # [s] for the answer, once the debugger has let the request go on

# A branch's programs may be hostile, and gdb has root's rights: no scripts that a program brings along, no downloads.
GDB = ["gdb", "-q", "-nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]


def debug(
    number: Annotated[int, typer.Argument(help="The incident's number")],
    command: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", help="Give this to the debugger, print its answer; then end"),
    ] = None,
    begin: Annotated[
        bool,
        typer.Option("--at-request", help="Begin before the failure, where the service takes the request"),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the branch there when the debugger ends")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open a debugger at the failure, in the process itself as it was then

    Of an exception in Python: pdb in the frame that failed, with the real objects (`up`, `p order.items`, calling functions). The
    process lives in a sealed branch, the original is not touched; Ctrl-C, Ctrl-D or `q` end the branch. Where no Python thread
    waits at the failure, the stacks of all threads are shown, and gdb is opened where a signal killed native code.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    incident = Incidents(settings.incidents).get(number)
    store = Store(settings.store)
    commands = list(command or [])
    if begin:
        _converse(terminal, incident, at_request(settings, store, incident), commands, keep=keep)
    elif has_waiting_thread(incident):
        _converse(terminal, incident, at_failure(settings, store, incident), commands, keep=keep)
    else:
        branch = restored(settings, store, incident)
        try:
            _without_thread(terminal, incident, branch, commands)
        finally:
            _leave(terminal, branch, keep=keep)


def _leave(terminal: Terminal, branch: Branch, *, keep: bool) -> None:
    if keep and branch.is_alive:
        branch.keep()
        terminal.status(f"Branch {branch.facts.id} stays; `relive stop {branch.facts.id}` ends it.")
    else:
        branch.stop()


# -- pdb -----------------------------------------------------------------------------------------------------------


def _converse(
    terminal: Terminal,
    incident: Incident,
    opened: AbstractContextManager[Debugged],
    commands: list[str],
    *,
    keep: bool,
) -> None:
    with opened as debugged:
        branch = debugged.branch
        try:
            terminal.status(
                f"Restored {branch.facts.name} in {duration(branch.facts.restore_us)} as branch {branch.facts.id}."
            )
            if commands or terminal.as_json:
                _answer(terminal, incident, debugged, commands)
            else:
                _talk(terminal, debugged)
        finally:
            debugged.line.close()
            _leave(terminal, branch, keep=keep)


def _answer(terminal: Terminal, incident: Incident, debugged: Debugged, commands: list[str]) -> None:
    line = debugged.line
    text, wants = line.hear()
    opening = printable(_without_prompt(text))
    answers: list[dict[str, str]] = []
    goes_on = not wants
    for command in commands:
        if not wants:
            break
        line.say(command)
        goes_on = command.strip() not in _QUITS
        text, wants = line.hear()
        answers.append({"command": command, "answer": printable(_without_prompt(text))})
    value: dict[str, Any] = {
        "incident": incident.number,
        "commit": debugged.branch.facts.commit,
        "branch": debugged.branch.facts.id,
        "opening": opening,
        "answers": answers,
        "outcome": None,
    }
    text = "\n".join(one["answer"] for one in answers) or opening
    if not wants and goes_on:
        outcome = debugged.sending.outcome(_OUTCOME_LIMIT) if debugged.sending is not None else None
        value["outcome"] = outcome.model_dump(mode="json") if outcome is not None else None
        text = "\n".join(filter(None, [text.rstrip(), _went_on(debugged, outcome)]))
    terminal.answer(value, text)


def _went_on(debugged: Debugged, outcome: DebugOutcome | None) -> str:
    """What came of it after the debugger had let it go on."""
    if debugged.sending is None:
        return "It went on. It did not fail in a request that the proxy recorded, so there is no answer to compare."
    if outcome is None:
        return f"It went on, and there was no answer within {_OUTCOME_LIMIT:g} s."
    words = verdict_words(outcome.verdict.kind.value)
    lines = [
        f"It went on: {outcome_words(outcome.came)}; recorded: {outcome_words(outcome.recorded)}. Verdict: {words}."
    ]
    if outcome.verdict.difference is not None:
        lines.append(f"First difference: {outcome.verdict.difference}")
    return printable("\n".join(lines))


def _talk(terminal: Terminal, debugged: Debugged) -> None:
    """A conversation on the terminal, with the history and the keys of this side's readline."""
    import readline  # noqa: F401 - input() uses it once it is imported

    line, said_last = debugged.line, ""
    text, wants = line.hear()
    while wants:
        said, _, prompt = text.rpartition("\n")
        if said:
            print(printable(said), flush=True)
        try:
            said_last = input(printable(prompt))
            line.say(said_last)
        except (EOFError, KeyboardInterrupt):
            print()
            return
        text, wants = line.hear()
    if text:
        print(printable(text.rstrip("\n")))
    if said_last.strip() not in _QUITS:
        outcome = debugged.sending.outcome(_OUTCOME_LIMIT) if debugged.sending is not None else None
        terminal.status(_went_on(debugged, outcome))


def _without_prompt(text: str) -> str:
    """All lines but the last, which asks for the next command."""
    return text.rpartition("\n")[0]


# -- where no thread waits ------------------------------------------------------------------------------------------


def _without_thread(terminal: Terminal, incident: Incident, branch: Branch, commands: list[str]) -> None:
    # Of a process that stands before its exit no frames are left in Python; what was written in C has them all.
    if incident.sighting.kind in (FailureKind.SIGNAL, FailureKind.EXIT):
        _native(terminal, incident, branch, commands)
        return
    stacks = {str(pid): _stacks_of(pid) for pid in procfs.tree_of(branch.facts.root)}
    value = {"incident": incident.number, "commit": incident.at, "branch": branch.facts.id, "stacks": stacks}
    terminal.answer(value, "\n".join(text for text in stacks.values() if text))


def _stacks_of(pid: int) -> str:
    tool = shutil.which("py-spy", path=_tool_path())
    if tool is None:
        raise ToolMissing(
            "the stacks of the branch cannot be read",
            cause="py-spy is not installed",
            remedy="pip install py-spy",
        )
    done = subprocess.run(
        [tool, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False, timeout=60
    )
    return printable(done.stdout if done.returncode == 0 else _no_stacks(pid, done.stderr))


def _no_stacks(pid: int, said: str) -> str:
    """``said``: py-spy's own words, of which the first line is the error and the rest a trace of itself."""
    first = next((line for line in said.splitlines() if line.strip()), "py-spy said nothing")
    name = procfs.status_field(pid, "Name") or "gone"
    return f"process {pid} ({name}) shows no Python stacks: {first.removeprefix('Error: ')}"


def _native(terminal: Terminal, incident: Incident, branch: Branch, commands: list[str]) -> None:
    """gdb on the process as it stands where the signal was about to strike, or where it was about to exit."""
    pid = _process_that_failed(incident, branch)
    command = [*GDB, "-p", str(pid)]
    if shutil.which("gdb") is None:
        raise ToolMissing(
            f"a native process is debugged with `gdb -p {pid}`",
            cause="gdb is not installed",
            remedy="apt install gdb; `relive debug --keep` keeps the branch meanwhile",
        )
    if not commands and sys.stdin.isatty() and not terminal.as_json:
        terminal.status(f"Running gdb -p {pid}.")
        subprocess.run(command, check=False)
        return
    batch = [*command, "-batch"]
    for one in commands or ["thread apply all backtrace"]:
        batch += ["-ex", one]
    done = subprocess.run(
        batch, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120
    )
    text = printable(done.stdout.rstrip())
    value = {
        "incident": incident.number,
        "commit": incident.at,
        "branch": branch.facts.id,
        "ran": batch,
        "output": text,
    }
    terminal.answer(value, text)


def _process_that_failed(incident: Incident, branch: Branch) -> int:
    """The host's pid of the process that got the signal or was about to exit; of the service's root where that cannot be told."""
    wanted = incident.sighting.pid
    for pid in procfs.tree_of(branch.facts.root):
        if wanted is not None and procfs.innermost_pid(pid) == wanted:
            return pid
    return branch.facts.root


def _tool_path() -> str | None:
    """Where programs are looked for: beside this interpreter first, where py-spy lies if it came with it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
