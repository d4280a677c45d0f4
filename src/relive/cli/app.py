"""The application: collects the subcommands, turns errors into exit statuses."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from relive import __version__
from relive.cli import (
    commit_cmd,
    doctor_cmd,
    exec_cmd,
    incidents_cmd,
    log_cmd,
    logs_cmd,
    ps_cmd,
    replay_cmd,
    restore_cmd,
    run_cmd,
    show_cmd,
    stop_cmd,
    tag_cmd,
)
from relive.cli.terminal import Terminal
from relive.errors import ReliveError, UsageError

__all__ = ["app", "main"]

app = typer.Typer(
    name="relive",
    help="A time machine for running services: commit live processes, bring them back, replay what failed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PASSES_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}

app.command("doctor")(doctor_cmd.doctor)
app.command("run", context_settings=_PASSES_ON)(run_cmd.run)
app.command("commit")(commit_cmd.commit)
app.command("log")(log_cmd.log)
app.command("show")(show_cmd.show)
app.command("tag")(tag_cmd.tag)
app.command("restore")(restore_cmd.restore)
app.command("ps")(ps_cmd.ps)
app.command("exec", context_settings=_PASSES_ON)(exec_cmd.exec_)
app.command("logs")(logs_cmd.logs)
app.command("stop")(stop_cmd.stop)
app.command("incidents")(incidents_cmd.incidents)
app.command("replay")(replay_cmd.replay)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"relive {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """A time machine for running services: commit live processes, bring them back, replay what failed."""


def main() -> None:
    """Entry point of the ``relive`` script."""
    words = sys.argv[1:]
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        status = app(standalone_mode=False)
    except ReliveError as error:
        Terminal(as_json=as_json).failed(error)
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        # What typer says of a command line that cannot be read; its classes are not public.
        say = getattr(error, "format_message", None)
        if say is None:
            raise
        if as_json:
            Terminal(as_json=True).failed(UsageError(say(), remedy="see `relive COMMAND --help`"))
        else:
            error.show()  # type: ignore[attr-defined]  # as it has format_message, it has this
        sys.exit(UsageError.exit_status)
    sys.exit(status if isinstance(status, int) else 0)
