"""Writes the pages of the manual that follow from the code: ``commands.md``, ``errors.md``, ``configuration.md``, ``faces.md``.

With ``--check`` nothing is written: the exit status is 1 if a page is not what it would be. The commands come from the typer app
that ``relive.cli.app:application`` makes, the errors from the classes of ``relive.errors``, the settings from ``relive.config``,
the faces from ``relive.operations.faces``.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from relive import errors
from relive.config import STORE_KEY, Settings
from relive.errors import ReliveError
from relive.operations.catalogue import OPERATIONS
from relive.operations.faces import FACES
from relive.operations.operation import Absent, Face, Faces, Route, Tool

DOCS = Path(__file__).resolve().parent.parent / "docs"
MARK = "<!-- Written by scripts/generate_docs.py from the code; run `make pages` after a change. -->"

# Options that every typer app has; a manual of this program need not repeat them.
UNTOLD = {"--help", "--install-completion", "--show-completion"}

# Typer carries its own copy of click, other versions use the real one; so commands and parameters are
# looked at through the attributes both have, never by class.
Command = Any
Parameter = Any


def cell(text: str) -> str:
    """One cell of a table: one line, and no bar that would end it (renderers differ on an escaped one)."""
    return " ".join(text.split()).replace("|", "&#124;")


def code(text: str) -> str:
    """Text as code within a line, also where it holds a bar and stands in a table."""
    return f"<code>{html.escape(text)}</code>" if "|" in text else f"`{text}`"


def prose(text: str | None) -> str:
    """A docstring as Markdown: double backquotes become single, indentation and click's marks go."""
    plain = inspect.cleandoc(text or "").replace("\b\n", "").replace("\f", "")
    return re.sub(r"``([^`\n]+)``", r"`\1`", plain)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table with an empty line after it; nothing at all without rows."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if lines:
        yield f"| {' | '.join(head)} |"
        yield "|" + "---|" * len(head)
        yield from lines
        yield ""


def subcommands(command: Command) -> dict[str, Command]:
    """The visible commands of a group in the order the help shows them; empty for a command that is none."""
    found: dict[str, Command] = getattr(command, "commands", {})
    return {name: child for name, child in found.items() if not child.hidden}


def usage(path: str, command: Command) -> str:
    """What follows the name on the usage line, as the command's own ``--help`` shows it."""
    context = command.make_context(path, [], resilient_parsing=True)
    return " ".join([path, *command.collect_usage_pieces(context)])


def parameter_row(parameter: Parameter, context: Any) -> tuple[str, str, str] | None:
    """(names and placeholder, meaning, default and limits) as ``--help`` has them; None if it is hidden."""
    record = parameter.get_help_record(context)
    if record is None and not getattr(parameter, "hidden", False):  # click keeps no record of an argument
        record = (parameter.make_metavar(context), "")
    if record is None:
        return None
    names, meaning = record
    # Both click and typer end the meaning with "  [default: x; required]".
    words, bracket, limits = f"  {meaning}".rpartition("  [")
    if not bracket or not limits.endswith("]"):
        words, limits = meaning, "]"
    return code(names), prose(words.strip()), limits[:-1] or "-"


def command_section(path: str, command: Command, level: int) -> Iterator[str]:
    """The section of one command, then those of its subcommands one level deeper."""
    context = command.make_context(path, [], resilient_parsing=True)
    yield f"{'#' * level} {path}"
    yield ""
    if getattr(command, "deprecated", False):
        yield "*Deprecated: it will go.*\n"
    yield f"    {usage(path, command)}"
    yield ""
    if command.help:
        yield prose(command.help)
        yield ""
    for kind in ("argument", "option"):
        rows = [
            parameter_row(p, context)
            for p in command.params
            if p.param_type_name == kind and not UNTOLD.intersection(p.opts)
        ]
        yield from table((kind, "meaning", "default, limits"), filter(None, rows))
    if command.epilog:
        yield prose(command.epilog)
        yield ""
    for name, child in subcommands(command).items():
        yield from command_section(f"{path} {name}", child, min(level + 1, 6))


def leaves(path: str, command: Command) -> Iterator[tuple[str, Command]]:
    """Every command that can be run, with the words that run it."""
    children = subcommands(command)
    if not children or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, child in children.items():
        yield from leaves(f"{path} {name}", child)


def anchor(heading: str) -> str:
    """The fragment under which the built page has a heading."""
    return re.sub(r"[^\w]+", "-", heading.lower()).strip("-")


def commands_page(app: Any, program: str) -> str:
    """``docs/commands.md`` for any typer app."""
    from typer.main import get_command  # noqa: PLC0415 - only this page needs typer

    root = get_command(app)
    lines = ["# Commands", "", MARK, ""]
    if root.help:
        lines += [prose(root.help), ""]
    lines += table(
        ("command", "what it does"),
        (
            (f"[`{path}`](#{anchor(path)})", prose(command.get_short_help_str(limit=200)))
            for path, command in leaves(program, root)
            if path != program
        ),
    )
    lines += command_section(program, root, 2)
    lines += ["## Exit statuses", "", *exit_statuses(), ""]
    return "\n".join(lines).rstrip() + "\n"


def family(kind: type[ReliveError]) -> Iterator[tuple[int, type[ReliveError]]]:
    """The class and all below it with their depth, in the order they are defined in."""
    pending = [(0, kind)]
    while pending:
        depth, current = pending.pop()
        yield depth, current
        own = (child for child in current.__subclasses__() if child.__module__ == errors.__name__)
        pending += [(depth + 1, child) for child in reversed(list(own))]


def summary(kind: type[ReliveError]) -> str:
    """The first paragraph of a class's docstring."""
    return " ".join(prose(kind.__doc__).split("\n\n")[0].split())


def closing_words() -> str:
    """What the docstring of ``relive.errors`` says about exit statuses that are no errors."""
    sentences = [p for p in prose(errors.__doc__).split("\n\n") if p.startswith("Exit status")]
    return sentences[0].split("\n`docs/errors.md`")[0] if sentences else ""


def exit_statuses() -> Iterator[str]:
    """The table of exit statuses, one row for each, with the widest class that ends with it."""
    yield closing_words()
    yield ""
    widest: dict[int, type[ReliveError]] = {}
    for _, kind in family(ReliveError):
        if kind is not ReliveError:
            widest.setdefault(kind.exit_status, kind)
    yield from table(
        ("status", "meaning"),
        [
            *((str(status), summary(kind)) for status, kind in sorted(widest.items())),
            (
                str(ReliveError.exit_status),
                "An error of no kind above: a defect of Relive, please report it.",
            ),
        ],
    )
    yield "[Errors](errors.md) lists each error with its code."


def errors_page() -> str:
    """``docs/errors.md``."""
    kinds = list(family(ReliveError))
    named = [kind for _, kind in kinds if kind is not ReliveError]
    lines = ["# Errors", "", MARK, ""]
    lines += [
        "Every error says what happened, to what, why as far as it is known, and what to do next. With",
        "`--json` it is `{code, message, cause, remedy}`, and `code` is stable. The exit status is that of",
        "the `relive` command.",
        "",
    ]
    lines += table(
        ("code", "class", "exit status", "meaning"),
        ((code(k.code), code(k.__name__), str(k.exit_status), summary(k)) for k in named),
    )
    lines += [closing_words(), "", "## The tree", "", "Catching a class catches all that are below it.", ""]
    lines += ["    " + "    " * depth + kind.__name__ for depth, kind in kinds]
    return "\n".join(lines).rstrip() + "\n"


def configuration_page() -> str:
    """Every setting with its default, meaning and variable."""
    rows = [
        (
            f"`{name}`",
            f"`RELIVE_{name.upper()}`",
            f"`{field.default}`" if field.default is not None else "",
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]
    lines = [
        MARK,
        "",
        "# Configuration",
        "",
        "Settings come from `/etc/relive.toml`, then `relive.toml` in the current directory, then the environment; the",
        "later wins. A setting in a file is a line such as `keep = 128`. A value that is not allowed, or a name that is",
        "none, is refused with the error `config-invalid`.",
        "",
        *table(("setting", "variable", "default", "meaning"), rows),
        f"One variable is no setting: `{STORE_KEY}`,",
        "[a store key that lies in no file](upkeep.md#a-store-key-that-lies-in-no-file).",
        "",
        "All state of Relive lies under `home`, as files that can be read:",
        "",
        "| path | what |",
        "|---|---|",
        "| `tools/` | CRIU and the small programs that set-up built |",
        "| `store/` | commits: objects, manifests, tags, the index ([format](format.md)) |",
        "| `capsules/NAME/LIFE/` | one start of a service: `state.json`, `io/` with its output, `recording/`, `agent.log` |",
        "| `branches/ID/` | a living branch: `state.json`, `io/` with its output |",
        "| `incidents/NUMBER.json` | failures that were seen |",
        "| `incidents/index/` | what they are listed and searched by; made anew from their files when missing |",
        "| `incidents/last-number` | the last number that was given to an incident; none is given twice |",
        "| `touched/COMMIT` | which memory [lazy branches](limits.md#lazy-branches) of a commit touched first; only hints, of 64 "
        "commits at most; `relive gc` removes those of dropped ones |",
        "| `logs/` | what CRIU said when a commit failed |",
        "",
    ]
    return "\n".join(lines)


def face_cells(name: str, faces: Faces, reasons: dict[str, int]) -> tuple[str, str, str, str]:
    """What stands in each face; where it has nothing, the number of the reason."""
    routes = (faces.rest.text,) if isinstance(faces.rest, Route) else faces.rest
    tools = (OPERATIONS[name].tool_name,) if isinstance(faces.mcp, Tool) else faces.mcp
    commands = faces.cli if isinstance(faces.cli, Absent) else tuple(f"relive {one}" for one in faces.cli)

    def told(names: tuple[str, ...] | Absent) -> str:
        if isinstance(names, Absent):
            return f"- ({reasons.setdefault(names.reason, len(reasons) + 1)})"
        return ", ".join(map(code, names))

    asked_for = ""
    if isinstance(faces.mcp, Tool):
        asked_for = " (host)" if faces.mcp.is_for_host else " (act)" if faces.mcp.is_acting else ""
    return name, told(commands), told(routes), told(tools) + asked_for


def faces_page() -> str:
    """``docs/faces.md``: what can be asked for, in which face under which name."""
    reasons: dict[str, int] = {}
    rows = [face_cells(name, faces, reasons) for name, faces in FACES.items()]
    lines = [
        "# All faces",
        "",
        MARK,
        "",
        "What can be asked for has one declaration: a command's options, a route's body and a tool's arguments are its",
        "fields, with the same names, bounds and errors. Where a face does not have it, the number leads to the reason.",
        'Tools with "(act)", `tag` and `stop_branches` are there with `relive mcp --act` only, those with "(host)" with',
        "`--host`; over HTTP the first are there for each token that may use tools, the others for tokens with the scope `host`;",
        "[the API](api.md#every-route) has the scopes of each route.",
        "",
        *table(("what", "command", "route", "tool"), rows),
        "## Why a face does not have it",
        "",
        *(f"{number}. {reason[0].upper()}{reason[1:]}." for reason, number in reasons.items()),
        "",
        "## Fields that some faces have alone",
        "",
        *table(
            ("what", "fields", "only", "why"),
            (
                (
                    name,
                    ", ".join(map(code, only.fields)),
                    ", ".join(one.value for one in Face if one in only.faces),
                    only.reason,
                )
                for name, faces in FACES.items()
                for only in faces.only
            ),
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the pages, or with ``--check`` compare them; returns the exit status."""
    app = importlib.import_module("relive.cli.app").application()
    pages = {DOCS / "commands.md": commands_page(app, "relive"), DOCS / "errors.md": errors_page()}
    pages[DOCS / "configuration.md"] = configuration_page()
    pages[DOCS / "faces.md"] = faces_page()
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    names = ", ".join(f"docs/{path.name}" for path in stale)
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"Error: out of step with the code: {names}.", file=sys.stderr)
            print("Hint: run make pages and commit the result.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path])
    print(f"Wrote {names}." if stale else "The generated pages are up to date.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
