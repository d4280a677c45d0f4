"""``relive debug``: a debugger at the failure, in the process itself."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from relive.cli.params_options import from_params
from relive.cli.replay_cmd import outcome_words
from relive.cli.terminal import AsJson, Terminal
from relive.config import Settings, load_settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.intervention.telling import request_words
from relive.model.incident import Incident
from relive.model.outcome import verdict_words
from relive.model.text import printable
from relive.operations.debugging import (
    OUTCOME_LIMIT,
    DebugAnswers,
    DebugParams,
    is_quit,
    outcome_of,
    prompted,
    stepping,
)
from relive.operations.debugging import debug as ask_debugger
from relive.operations.host_debugging import (
    NativeEnd,
    debug_native,
    gdb_at,
    is_native,
    native_end,
    restored_at,
    stacks_of,
)
from relive.operations.respawning import tend_capsules
from relive.replay.debug.outcome import DebugOutcome
from relive.replay.debug.session import Debugged, has_waiting_thread
from relive.sandbox.branch import Branch
from relive.stepping.commands import DebuggerCommands
from relive.stepping.dap import DapAdapter
from relive.stepping.dap_server import listening, serve_one
from relive.stepping.editors import entry_name, write_entry

__all__ = ["debug"]


@from_params(DebugParams, arguments=("number",), words={"command": ("--command", "-c")})
def debug(
    params: DebugParams,
    dap: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="With --step: for an editor, by the Debug Adapter Protocol at this port of 127.0.0.1; 0: a free one",
        ),
    ] = None,
    vscode: Annotated[
        bool,
        typer.Option("--vscode", help="With --dap: write the entry for it into .vscode/launch.json here"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Open a debugger at the failure, in the process itself as it was then

    Of an exception in Python: pdb in the frame that failed, with the real objects (`up`, `p order.items`, calling functions). The
    process lives in a sealed branch, the original is not touched; Ctrl-C, Ctrl-D or `q` end the branch. Where no Python thread
    waits at the failure, the stacks of all threads are shown, and gdb is opened where a signal killed native code.

    With --step the request runs again, and one goes forward and back through it, line by line: reverse-step, reverse-continue to a
    breakpoint or a change of a watched value, and so on.
    """
    terminal = Terminal(as_json=as_json)
    settings = load_settings()
    tend_capsules(settings)
    incident = Incidents(settings.incidents).get(params.number)
    if dap is not None or vscode:
        _serve_editor(terminal, settings, params, incident, dap or 0, vscode=vscode)
    elif params.step and not params.command and not as_json:
        _step(terminal, settings, params, incident)
    elif not params.step and not params.at_request and not has_waiting_thread(incident):
        _from_outside(terminal, settings, params, incident)
    elif params.command or as_json:
        found = ask_debugger(settings, params, terminal)
        terminal.answer(found, _answer(found))
    else:
        with prompted(settings, params, incident, terminal) as debugged:
            _talk(terminal, debugged)


def _answer(found: DebugAnswers) -> str:
    text = "\n".join(one.answer for one in found.answers) or found.opening
    if not found.has_gone_on:
        return text
    return "\n".join(filter(None, [text.rstrip(), _went_on(found.outcome, compares=found.compares)]))


def _went_on(outcome: DebugOutcome | None, *, compares: bool) -> str:
    """What came of it after the debugger had let it go on."""
    if not compares:
        return "It went on. It did not fail in a request that the proxy recorded, so there is no answer to compare."
    if outcome is None:
        return f"It went on, and there was no answer within {OUTCOME_LIMIT:g} s."
    words = verdict_words(outcome.verdict.kind.value)
    lines = [
        f"It went on: {outcome_words(outcome.came)}; recorded: {outcome_words(outcome.recorded)}. Verdict: {words}."
    ]
    lines += [f"Missing: {text}" for text in outcome.verdict.missing]
    if outcome.verdict.difference is not None:
        lines.append(f"First difference: {outcome.verdict.difference}")
    lines += [f"Not seen: {text}" for text in outcome.verdict.unseen if text not in outcome.verdict.missing]
    if outcome.verdict.played:
        lines.append(f"Answered: {outcome.verdict.played}")
    return printable("\n".join(lines))


def _talk(terminal: Terminal, debugged: Debugged) -> None:
    """A conversation on the terminal, with the history and the keys of this side's readline."""
    import readline  # noqa: F401 - input() uses it once it is imported

    line, said_last = debugged.line, ""
    text, wants = line.read_text()
    while wants:
        said, _, prompt = text.rpartition("\n")
        if said:
            print(printable(said), flush=True)
        try:
            said_last = input(printable(prompt))
            line.send_line(said_last)
        except (EOFError, KeyboardInterrupt):
            print()
            return
        text, wants = line.read_text()
    if text:
        print(printable(text.rstrip("\n")))
    if not is_quit(said_last):
        outcome = outcome_of(debugged)
        terminal.status(_went_on(outcome, compares=debugged.sending is not None))


def _step(terminal: Terminal, settings: Settings, params: DebugParams, incident: Incident) -> None:
    """A conversation on the terminal, forward and back in time."""
    import readline  # noqa: F401 - as in ``_talk``

    with stepping(settings, params, incident, terminal) as (timeline, _):
        commands = DebuggerCommands(timeline)
        print(printable(commands.opening()), flush=True)
        said = ""
        while not commands.has_quit:
            try:
                # As in pdb and gdb: an empty line is the last one again.
                said = input("(relive) ").strip() or said
            except (EOFError, KeyboardInterrupt):
                print()
                return
            if answer := commands.do(said):
                print(printable(answer), flush=True)


def _serve_editor(
    terminal: Terminal,
    settings: Settings,
    params: DebugParams,
    incident: Incident,
    port: int,
    *,
    vscode: bool,
) -> None:
    """For one client of the Debug Adapter Protocol, until it leaves."""
    if not params.step or params.command:
        raise UsageError(
            "--dap and --vscode go with --step, and with no --command",
            cause="an editor goes forward and back through the request, and gives the commands",
            remedy=f"`relive debug {incident.number} --step --dap {port}`",
        )
    with contextlib.closing(listening(port)) as listener:
        port = listener.getsockname()[1]
        if vscode:
            written = write_entry(Path.cwd(), incident.number, port)
            terminal.status(f"Wrote the entry {entry_name(incident.number)!r} into {written}.")
        with stepping(settings, params, incident, terminal) as (timeline, case):
            terminal.status(f"Listening on 127.0.0.1:{port} for a client of the Debug Adapter Protocol.")
            serve_one(listener, DapAdapter(timeline, request_words(case), incident.sighting.summary))


def _from_outside(terminal: Terminal, settings: Settings, params: DebugParams, incident: Incident) -> None:
    with restored_at(settings, params, incident, terminal) as branch:
        if not is_native(incident):
            found = stacks_of(incident, branch)
            terminal.answer(found, "\n".join(text for text in found.stacks.values() if text))
        elif not params.command and sys.stdin.isatty() and not terminal.as_json:
            _talk_to_gdb(terminal, incident, branch)
        else:
            answer = debug_native(incident, branch, params.command)
            terminal.answer(answer, "\n".join(filter(None, [answer.output, _ended(incident, answer.ended)])))


def _talk_to_gdb(terminal: Terminal, incident: Incident, branch: Branch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        end_file = Path(directory) / "ended"
        command = gdb_at(incident, branch, end_file)
        terminal.status(f"Running {shlex.join(command)}.")
        subprocess.run(command, check=False)
        if words := _ended(incident, native_end(incident, end_file)):
            terminal.status(words)


def _ended(incident: Incident, end: NativeEnd | None) -> str:
    """What came of it where gdb let it go on to its end; empty where it did not."""
    if end is None:
        return ""
    sighting = incident.sighting
    recorded = _end_words(sighting.exit_status, sighting.signal)
    came = _end_words(end.exit_status, end.signal)
    verdict = "the same end" if end.as_recorded else "another end"
    return f"It went on: {came}; recorded: {recorded}. Verdict: {verdict}."


def _end_words(status: int | None, number: int | None) -> str:
    return f"killed by signal {number}" if number is not None else f"ended with status {status}"
