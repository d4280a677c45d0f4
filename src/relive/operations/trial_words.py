"""A trial in words, for every face that has a table of it: a row for each fix, and what is to be said beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from relive.incidents.report.shown import one_line, shorten
from relive.intervention.judging import lacking_words
from relive.model.quantities import duration
from relive.model.trial import FixRun, FixTried, Swapped, Trial

__all__ = [
    "TRIAL_COLUMNS",
    "bad_rows",
    "fix_notes",
    "swapped_lines",
    "too_late_words",
    "trial_lines",
    "trial_rows",
]

TRIAL_COLUMNS = ["fix", "result", "answer", "exception", "time", "calls", "files", "still there"]
_WIDTH = 50  # [characters] of an exception
_FILES = 3  # that are named
_ELSEWHERE = 10  # requests that are named


def trial_rows(trial: Trial) -> list[list[str]]:
    """What was recorded, then each fix, the unchanged code among them; cells are plain text."""
    return [
        _row("recorded", [trial.recorded], None),
        *(_row(one.name, one.runs, one) for one in trial.fixes),
    ]


def bad_rows(trial: Trial) -> set[int]:
    """Those of ``trial_rows`` that failed or were refused."""
    return {0} | {
        at for at, one in enumerate(trial.fixes, 1) if any(run.fails for run in one.runs) or one.refused
    }


def trial_lines(trial: Trial) -> list[str]:
    """What is to be said of the whole, before the notes of each fix."""
    lines = [f"From commit {trial.commit[:10]}; the unchanged code failed {trial.failed} of {trial.ran}."]
    if trial.around and not any(one.neighbours for one in trial.fixes):
        lines.append("No other request was recorded from that commit on, so nothing is known of neighbours.")
    lines += [f"Noise between two runs of it: {text}" for text in trial.noise]
    return lines + ([trial.hint] if trial.hint is not None else [])


def too_late_words(commit: str, incident: int) -> str:
    """What to do where the request fails from a commit without any other before it, also with a fix."""
    return (
        f"The failing request fails from commit {commit[:10]} without any other before it. If an earlier request made that state, "
        f"a fix that prevents that cannot work from here: `relive bisect --replay {incident}` names the commit in which "
        f"it began, and `relive try {incident} --commit REF` tries from an earlier one."
    )


def fix_notes(tried: FixTried, recorded: FixRun) -> Iterator[str]:
    """What is to be said of one, a line each; ``recorded``: what its side effects are compared with."""
    yield from lacking_words(tried.runs)
    if tried.kind == "patch":
        yield from swapped_lines(tried.swapped)
    yield from _differences(tried.runs)
    yield from _effects(tried.runs, recorded)
    if tried.refused is not None:
        yield f"refused: {tried.refused}"
    yield from _failed_elsewhere(tried.runs, {one.request for one in tried.breaks})
    if tried.more_runs:
        runs = "1 more clean run" if tried.more_runs == 1 else f"{tried.more_runs} more clean runs"
        yield f"{runs} (--times) until it is under 5 % that the failure is still there"
    if tried.neighbours:
        broken = sum(not one.cured for one in tried.breaks)
        yield f"{broken} of {tried.neighbours} neighbouring requests end otherwise than recorded"
    for one in sorted(tried.breaks, key=lambda one: one.cured):
        yield f"{'also cured: ' if one.cured else ''}request {one.request} ({one.asked}): {one.difference}"


def _differences(runs: Sequence[FixRun]) -> Iterator[str]:
    """How runs that were not restored, or that failed in another way, ended; each once."""
    said = (run.difference for run in runs if run.fails is None or (run.fails and run.exception is None))
    yield from dict.fromkeys(text for text in said if text)


def _effects(runs: Sequence[FixRun], recorded: FixRun) -> Iterator[str]:
    """Calls of the first run where they differ from the recorded ones, and the files that it wrote."""
    effects = next((run.effects for run in runs if run.effects is not None), None)
    if effects is None:
        return
    before = recorded.effects.calls if recorded.effects is not None else None
    if effects.calls is not None and before is not None and effects.calls != before:
        yield f"calls: {_call_words(effects.calls)}; recorded: {_call_words(before)}"
    if effects.files:
        more = f", and {len(effects.files) - _FILES} more" if len(effects.files) > _FILES else ""
        yield f"files: {', '.join(effects.files[:_FILES])}{more}"


def _call_words(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in calls.items()) or "none"


def _failed_elsewhere(runs: Sequence[FixRun], named: Collection[int]) -> Iterator[str]:
    """Requests that failed in some run, with how often; those that are named as neighbours are not named twice."""
    counts = Counter(one.request for run in runs for one in run.elsewhere if one.request not in named)
    first = {one.request: one for run in reversed(runs) for one in run.elsewhere}
    for number, count in sorted(counts.items())[:_ELSEWHERE]:
        often = f", in {count} of {len(runs)} runs" if len(runs) > 1 else ""
        yield f"also fails: request {number} ({first[number].asked}): {first[number].difference}{often}"


def swapped_lines(swapped: Swapped | None) -> list[str]:
    """What of other code reached the processes, and what did not."""
    if swapped is None:
        return []
    lines = [f"code: {', '.join(swapped.swapped) or 'no function differs'}"]
    if swapped.added:
        lines.append(f"new: {', '.join(swapped.added)}")
    lines += [f"not swapped: {one.file}: {one.name}: {one.why}" for one in swapped.left]
    return lines + [f"note: {note}" for note in swapped.notes]


def _row(name: str, runs: list[FixRun], tried: FixTried | None) -> list[str]:
    if tried is not None and not runs:
        return [name, "refused", "", shorten(one_line(tried.refused or ""), _WIDTH), "", "", "", ""]
    first = runs[0]
    odds = tried.still_there if tried is not None else None
    return [
        name,
        _result(runs),
        str(first.status) if first.status is not None else "none",
        shorten(one_line(first.exception or ""), _WIDTH),
        duration(first.seconds * 1e6) if first.seconds is not None else "",
        _calls(first),
        str(len(first.effects.files))
        if first.effects is not None and first.effects.files is not None
        else "",
        f"{odds:.0%}" if odds is not None else "",
    ]


def _result(runs: list[FixRun]) -> str:
    counts = Counter(run.result for run in runs)
    return ", ".join(
        f"{word} {count} of {len(runs)}" if len(runs) > 1 else word for word, count in counts.items()
    )


def _calls(run: FixRun) -> str:
    effects = run.effects
    if effects is None:
        return ""
    calls = "" if effects.calls is None else str(sum(effects.calls.values()))
    return f"{calls} ({effects.unanswered} unanswered)" if effects.unanswered else calls
