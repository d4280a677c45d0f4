"""``relive try``: fixes on the very state and request that failed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import typer

from relive.cli.kept_cmd import swapped_lines
from relive.cli.state_files import with_contents
from relive.cli.terminal import AsJson, Terminal
from relive.cli.wish_options import from_wish
from relive.config import load_settings
from relive.errors import UsageError
from relive.incidents.report.shown import one_line, shorten
from relive.intervention.judging import lacking_words
from relive.model.quantities import duration
from relive.model.trial import FixRun, FixTried, Trial
from relive.operations.trying import NONE, TryWish, has_worked, try_fixes

__all__ = ["try_"]

_COLUMNS = ["fix", "result", "answer", "exception", "time", "calls", "files", "still there"]
_NONE_WORKED = 1  # exit status
_WIDTH = 50


@from_wish(TryWish, arguments=("incident",))
def try_(wish: TryWish, as_json: AsJson = False) -> None:
    """Try fixes on the very state and request that failed, beside the unchanged code

    Exit status: 0 some fix did not fail, 1 none did.
    """
    terminal = Terminal(as_json=as_json)
    files = [Path(text) for text in wish.fix if text != NONE]
    given = {"fix": [_text(file) for file in files], "write": with_contents(wish.write)}
    result = try_fixes(load_settings(), wish.model_copy(update=given), terminal)
    result = _named(result, files)
    if as_json:
        terminal.answer(result)
    else:
        rows = [
            _row("recorded", [result.recorded], None),
            *(_row(one.name, one.runs, one) for one in result.fixes),
        ]
        bad = {0} | {
            at for at, one in enumerate(result.fixes, 1) if any(run.fails for run in one.runs) or one.refused
        }
        terminal.table(rows, _COLUMNS, rows, "", bad=bad)
        terminal.answer(None, "\n".join(_more(result)))
    raise typer.Exit(0 if has_worked(result) else _NONE_WORKED)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{file} cannot be read", cause=str(error), remedy="name a patch's file, or none"
        ) from error


def _named(result: Trial, files: list[Path]) -> Trial:
    """With the files' names for the patches."""
    names = iter(files)
    fixes = [
        one.model_copy(update={"name": str(next(names))}) if one.kind == "patch" else one
        for one in result.fixes
    ]
    return result.model_copy(update={"fixes": fixes})


def _row(name: str, runs: list[FixRun], tried: FixTried | None) -> list[str]:
    if tried is not None and tried.refused is not None:
        return [name, "refused", "", shorten(one_line(tried.refused), _WIDTH), "", "", "", ""]
    first = runs[0]
    counts = Counter(run.result for run in runs)
    result = ", ".join(
        f"{word} {count} of {len(runs)}" if len(runs) > 1 else word for word, count in counts.items()
    )
    effects = first.effects
    calls = "" if effects is None or effects.calls is None else str(sum(effects.calls.values()))
    if effects is not None and effects.unanswered:
        calls += f" ({effects.unanswered} unanswered)"
    return [
        name,
        result,
        str(first.status) if first.status is not None else "none",
        shorten(one_line(first.exception or ""), _WIDTH),
        duration(first.seconds * 1e6) if first.seconds is not None else "",
        calls,
        str(len(effects.files)) if effects is not None else "",
        f"{tried.still_there:.0%}" if tried is not None and tried.still_there is not None else "",
    ]


def _more(result: Trial) -> list[str]:
    lines = [
        "",
        f"From commit {result.commit[:10]}; the unchanged code failed {result.failed} of {result.ran}.",
    ]
    lines += [f"Noise between two runs of it: {text}" for text in result.noise]
    for one in result.fixes:
        notes = lacking_words(one.runs)
        notes += swapped_lines(one.swapped) if one.kind == "patch" else []
        notes += [run.difference for run in one.runs if run.fails is None and run.difference]
        if one.refused is not None:
            notes.append(f"refused: {one.refused}")
        if one.more_runs:
            notes.append(
                f"{one.more_runs} more clean runs (--times) until it is under 5 % that the failure is still there"
            )
        if one.neighbours:
            notes.append(
                f"{len(one.breaks)} of {one.neighbours} neighbouring requests end otherwise than recorded"
            )
        notes += [f"request {each.request} ({each.asked}): {each.difference}" for each in one.breaks]
        lines += [f"{one.name}:", *(f"  {line}" for line in notes)] if notes else []
    if any(one.still_there is not None for one in result.fixes):
        lines.append(f"Still there: {result.prior}.")
    return lines
