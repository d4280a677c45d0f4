"""``relive try``: fixes on the very state and request that failed."""

from __future__ import annotations

from pathlib import Path

import typer

from relive.cli.params_options import from_params
from relive.cli.state_files import with_contents
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.model.trial import Trial
from relive.operations.trial_words import TRIAL_COLUMNS, bad_rows, fix_notes, trial_lines, trial_rows
from relive.operations.trying import NONE, TryParams, has_worked, try_fixes

__all__ = ["try_"]

_NONE_WORKED = 1  # exit status


@from_params(TryParams, arguments=("incident",))
def try_(params: TryParams, as_json: AsJson = False) -> None:
    """Try fixes on the very state and request that failed, beside the unchanged code

    Exit status: 0 some fix did not fail, 1 none did.
    """
    terminal = Terminal(as_json=as_json)
    files = [Path(text) for text in params.fix if text != NONE]
    given = {"fix": [_text(file) for file in files], "write": with_contents(params.write)}
    result = try_fixes(load_settings(), params.model_copy(update=given), terminal)
    result = _named(result, files)
    if as_json:
        terminal.answer(result)
    else:
        rows = trial_rows(result)
        terminal.table(rows, TRIAL_COLUMNS, rows, "", bad=bad_rows(result))
        terminal.answer(None, "\n".join(_more(result)))
    raise typer.Exit(0 if has_worked(result) else _NONE_WORKED)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--fix: {file} cannot be read",
            cause=getattr(error, "strerror", None) or str(error),
            remedy=f"name a file that `git diff > FILE` made, or {NONE} for the unchanged code",
        ) from error


def _named(result: Trial, files: list[Path]) -> Trial:
    """With the files' names for the patches."""
    names = iter(files)
    fixes = [
        one.model_copy(update={"name": str(next(names))}) if one.kind == "patch" else one
        for one in result.fixes
    ]
    return result.model_copy(update={"fixes": fixes})


def _more(result: Trial) -> list[str]:
    lines = ["", *trial_lines(result)]
    for one in result.fixes:
        notes = [f"  {line}" for line in fix_notes(one, result.recorded)]
        lines += [f"{one.name}:", *notes] if notes else []
    if any(one.still_there is not None for one in result.fixes):
        lines.append(f"Still there: {result.prior}.")
    return lines
