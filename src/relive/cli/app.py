"""The application: collects the subcommands, turns errors into exit statuses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from relive import __version__
from relive.cli.streams import prepare_streams
from relive.cli.terminal import Terminal
from relive.errors import OutputLost, ReliveError, UsageError, reason_of
from relive.operations.unforeseen import unforeseen

__all__ = ["application", "application_for", "main"]

_PASSES_ON = {"allow_interspersed_args": False}


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: the function, or the group of subcommands, of this name in ``relive.cli.NAME_cmd``; ``_`` for ``-``.

    Attributes:
        summary: the first line of its help, for the list of all commands, which imports none of them.
    """

    name: str
    summary: str
    settings: dict[str, Any] | None = None
    function: str = ""

    def add_to(self, app: typer.Typer) -> None:
        """Import it, so that it can be run."""
        name = self.name.replace("-", "_")
        module = importlib.import_module(f"relive.cli.{name}_cmd")
        found = getattr(module, self.function or name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(self.name, context_settings=self.settings)(found)

    def list_in(self, app: typer.Typer) -> None:
        """Add its name and summary only."""
        app.command(self.name, help=self.summary)(_not_imported)


def _not_imported() -> None:
    raise AssertionError("a command that was only listed cannot be run")


_COMMANDS = (
    _Command("doctor", "Find out what works on this host by trying it, and say what to do about the rest"),
    _Command(
        "check",
        "Look whether a service can be committed, what would be lost, and what it costs, without touching it",
    ),
    _Command("run", "Start a service in a capsule: recorded, committed, watched", settings=_PASSES_ON),
    _Command("attach", "Take over a running capsule: its output from now on, its signals, its end"),
    _Command(
        "watch", "Watch a container or service that runs already: committed, recorded, its failures seen"
    ),
    _Command("adopt", "Have a systemd unit run its service under Relive, by a drop-in"),
    _Command("release", "Have a systemd unit run its service without Relive again"),
    _Command("podman-args", "Print options that put the recorder into a new container"),
    _Command("commit", "Commit the live state of a target, which runs on"),
    _Command("log", "List commits, newest first"),
    _Command("show", "Show what a commit holds, or what is known of an incident"),
    _Command(
        "inspect",
        "Look into a commit: processes, descriptors, sockets, memory, locks, threads; search its memory",
    ),
    _Command(
        "eval",
        "Evaluate an expression of Python or JavaScript in a process as it was, in a throw-away branch",
        function="eval_",
    ),
    _Command(
        "diff",
        "Compare two commits of a service: files, processes, descriptors, memory, Python values; or two runs",
    ),
    _Command("divergence", "Find the first event at which two runs differ, and of which class it is"),
    _Command("leaks", "Tell what a Python service keeps more and more of, from three commits or more"),
    _Command(
        "bisect",
        "Find the first commit in which something holds, the requests before it, and what they changed",
    ),
    _Command("tag", "List tags, or give a commit a tag, or remove one"),
    _Command("delete", "Drop commits that neither a tag nor an incident holds"),
    _Command("push", "Send a commit to a remote, of which only what it does not have travels"),
    _Command("pull", "Fetch a commit from a remote, of which only what is not here travels"),
    _Command("export", "Write a commit to one file, with all it needs"),
    _Command(
        "import",
        "Take a commit in that was exported to a file, or a container's checkpoint archive",
        function="import_",
    ),
    _Command("restore", "Bring a commit to life as a branch, in a sealed sandbox; prints the branch's id"),
    _Command(
        "rollback",
        "Put a branch back to its commit, or to another of the same life; it keeps its id, name and ports",
    ),
    _Command("ps", "List running capsules and branches, and what is watched"),
    _Command(
        "health", "Tell whether services are protected: committed, watched and recorded as they should be"
    ),
    _Command(
        "exec",
        "Run a command inside a branch; its exit status is the command's",
        settings=_PASSES_ON,
        function="exec_",
    ),
    _Command("logs", "Show the output of a branch or capsule: stdout on stdout, stderr on stderr"),
    _Command("stop", "End branches and remove what was theirs; end a capsule's service"),
    _Command("incidents", "List incidents, newest first"),
    _Command("replay", "Restore the commit before a failure, send the recorded requests again, and judge"),
    _Command(
        "reproduce",
        "Without any commit, from what was recorded: start the service afresh, send the request, judge",
    ),
    _Command(
        "try",
        "Try fixes on the very state and request that failed, beside the unchanged code",
        function="try_",
    ),
    _Command("why", "Find what a failure is caused by: change its recording until it goes away"),
    _Command("what-if", "Change something of a failure's recording and replay: does it still fail?"),
    _Command(
        "logpoint", "Values of expressions at a line, in replays of a failure: a log line after the fact"
    ),
    _Command("who-wrote", "The line and the request that last set a value before a failure"),
    _Command(
        "keep",
        "Keep the state before a failure and its request as a test, with what is expected of the answer",
    ),
    _Command(
        "kept",
        "Run what `relive keep` has kept: restore, give it the code that is here, send the request, compare",
    ),
    _Command("debug", "Open a debugger at the failure, in the process itself as it was then"),
    _Command("fixture", "Make a small database in which an incident's queries give the rows that they gave"),
    _Command("serve", "Serve the REST API, and MCP at /mcp"),
    _Command("mcp", "Serve the Model Context Protocol to an LLM agent"),
    _Command(
        "dashboard",
        "Show incidents, commits, branches and runs in a browser, and restore, replay and export from there",
    ),
    _Command(
        "retain",
        "Drop old commits, keeping the newest and one of each of so many minutes, hours, days, months",
    ),
    _Command("gc", "Free what no commit needs"),
    _Command("verify", "Check signatures, hashes, and that all is there that commits need"),
    _Command(
        "repair",
        "Fetch what is damaged or missing from another store that still has it, and make anew what is derived",
    ),
    _Command("store", "Tell what the store holds"),
    _Command("key", "Make, list, trust and change keys"),
    _Command("token", "Make, list and revoke tokens of the server"),
    _Command("audit", "Check what the server noted of requests"),
)


def application() -> typer.Typer:
    """The application with all its subcommands."""
    app = _bare_application()
    for command in _COMMANDS:
        command.add_to(app)
    return app


def application_for(word: str | None) -> typer.Typer:
    """What a command line needs that begins so: the subcommand of this name, or names and summaries of all.

    All of them together take several times as long to import as any of them.
    """
    wanted = [one for one in _COMMANDS if one.name == word]
    app = _bare_application()
    for command in wanted:
        command.add_to(app)
    for command in _COMMANDS if not wanted else ():
        command.list_in(app)
    return app


def _bare_application() -> typer.Typer:
    app = typer.Typer(
        name="relive",
        help="A time machine for running services: commit live processes, bring them back, replay what failed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"relive {__version__}\n")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """A time machine for running services: commit live processes, bring them back, replay what failed."""


def main(loaded: Callable[[], None] = lambda: None) -> None:
    """Run the command that the words of this process say, and end the process.

    Args:
        loaded: called when the command is imported and not yet run.
    """
    try:
        prepare_streams()
        status = _status_of(sys.argv[1:], loaded)
        sys.stdout.flush()
    except OutputLost as error:
        Terminal().failed(error)
        status = error.exit_status
    sys.exit(status)


def _status_of(words: list[str], loaded: Callable[[], None]) -> int:
    """Run the command; what it raises is told, but for OutputLost."""
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        # Behind "--" there are no options, so a command's name follows.
        app = application_for(next((word for word in words if word != "--"), None))
        loaded()
        status = app(prog_name="relive", standalone_mode=False)
    except OutputLost:
        raise
    except ReliveError as error:
        return _failed(error, as_json=as_json)
    except ValidationError as error:  # of the params: an option whose value is out of its bounds
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        return _failed(
            UsageError(f"{name} cannot be {first['input']!r}", cause=reason_of(first["msg"])), as_json=as_json
        )
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        # What typer says of a command line that cannot be read; its classes are not public.
        say = getattr(error, "format_message", None)
        if say is None:
            return _failed(unforeseen(error), as_json=as_json)
        error.message = reason_of(error.message)  # type: ignore[attr-defined]  # as it has format_message, it has this
        if as_json:
            return _failed(UsageError(say(), remedy="see `relive COMMAND --help`"), as_json=True)
        error.show()  # type: ignore[attr-defined]
        return UsageError.exit_status
    return status if isinstance(status, int) else 0


def _failed(error: ReliveError, *, as_json: bool) -> int:
    Terminal(as_json=as_json).failed(error)
    return error.exit_status
