"""The application: collects the subcommands, turns errors into exit statuses."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from relive import __version__
from relive.cli.terminal import Terminal
from relive.errors import ReliveError, UsageError

__all__ = ["application", "main"]

_PASSES_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@dataclass(frozen=True, slots=True)
class _Command:
    """A subcommand: the function, or the group of subcommands, of this name in ``relive.cli.NAME_cmd``; ``_`` for ``-``."""

    name: str
    settings: dict[str, Any] | None = None
    function: str = ""

    def add_to(self, app: typer.Typer) -> None:
        name = self.name.replace("-", "_")
        module = importlib.import_module(f"relive.cli.{name}_cmd")
        found = getattr(module, self.function or name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=self.name)
        else:
            app.command(self.name, context_settings=self.settings)(found)


_COMMANDS = (
    _Command("doctor"),
    _Command("run", _PASSES_ON),
    _Command("watch"),
    _Command("podman-args"),
    _Command("commit"),
    _Command("log"),
    _Command("show"),
    _Command("tag"),
    _Command("delete"),
    _Command("push"),
    _Command("pull"),
    _Command("export"),
    _Command("import", function="import_"),
    _Command("restore"),
    _Command("ps"),
    _Command("exec", _PASSES_ON, "exec_"),
    _Command("logs"),
    _Command("stop"),
    _Command("incidents"),
    _Command("replay"),
    _Command("reproduce"),
    _Command("debug"),
    _Command("fixture"),
    _Command("serve"),
    _Command("mcp"),
    _Command("dashboard"),
    _Command("retain"),
    _Command("gc"),
    _Command("verify"),
    _Command("repair"),
    _Command("store"),
    _Command("key"),
    _Command("token"),
    _Command("audit"),
)


def application(word: str | None = None) -> typer.Typer:
    """The application; with only one subcommand where ``word`` is its name.

    All of them together take twice as long to import as any of them.
    """
    app = typer.Typer(
        name="relive",
        help="A time machine for running services: commit live processes, bring them back, replay what failed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in [one for one in _COMMANDS if one.name == word] or _COMMANDS:
        command.add_to(app)
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


def main() -> None:
    """Entry point of the ``relive`` script."""
    words = sys.argv[1:]
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        status = application(words[0] if words else None)(standalone_mode=False)
    except ReliveError as error:
        Terminal(as_json=as_json).failed(error)
        sys.exit(error.exit_status)
    except ValidationError as error:  # of a wish: an option whose value is out of its bounds
        first = error.errors()[0]
        name = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        refused = UsageError(f"{name} cannot be {first['input']!r}", cause=first["msg"])
        Terminal(as_json=as_json).failed(refused)
        sys.exit(refused.exit_status)
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
