"""What replays and reproductions showed: the verdict in a sentence, and a line for each run."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from relive.dashboard.look import chip, escape, label, table
from relive.incidents.report.masking import Mask
from relive.model.outcome import End, Outcome, Replay, Run, Verdict, verdict_words
from relive.model.quantities import duration
from relive.model.reproduction import Attempt, Reproduction

__all__ = ["show_verdict", "tone_of", "words_of"]

_TONES = {"reproduced": "good", "same-answer": "warn", "diverged": "warn", "not-reproduced": "warn"}
_WORDS = {
    "reproduced": "The same failure happened again",
    "same-answer": "The same answer came, and nothing shows that it was for the same reason",
    "diverged": "It went another way at one point",
    "not-reproduced": "The failure did not happen again",
    "failed-to-restore": "The commit could not be brought back",
    "could-not-start": "The service could not be started",
}
_MOST = 200  # runs that are listed


def tone_of(verdict: str) -> str:
    """For ``chip``: a replay that fails as the recording did is what one hopes for."""
    return _TONES.get(verdict, "bad")


def words_of(verdict: str, reproduced: int, times: int) -> str:
    """``reproduced 5 of 5``; where it was not, which other verdict came first."""
    count = f"reproduced {reproduced} of {times}"
    return count if verdict == "reproduced" else f"{verdict_words(verdict)}, {count}"


def show_verdict(result: Replay | Reproduction, mask: Mask) -> None:
    """The verdict and its runs."""
    kinds = _kinds(result)
    verdict = next((one for one in kinds if one != "reproduced"), "reproduced")
    text = f"**Verdict: {label(words_of(verdict, result.reproduced, len(kinds)))}.** {_WORDS[verdict]}"
    text += f" in all {len(kinds)} runs." if verdict == "reproduced" and len(kinds) > 1 else "."
    {"good": st.success, "warn": st.warning, "bad": st.error}[tone_of(verdict)](
        f"{text}{_sealed(result)}", icon=":material/gavel:"
    )
    if isinstance(result, Replay) and result.changed:
        st.caption(label(f"Changed before: {'; '.join(result.changed)}."))
    if isinstance(result, Replay) and result.unrecorded:
        names = ", ".join(one.words for one in result.unrecorded)
        st.caption(f"Not recorded, so that a replay lacks it: {label(names)}.")
    if isinstance(result, Reproduction) and verdict == "not-reproduced":
        st.caption(
            label(
                f"It ran {result.tree.words}, without the state that the service had: Replay brings that back."
            )
        )
    rows = (
        [_run(run, mask) for run in result.runs[:_MOST]]
        if isinstance(result, Replay)
        else [_attempt(one, mask) for one in result.attempts[:_MOST]]
    )
    head = ["run", "verdict", "outcome", "first difference, notes", "started in", "packets out"]
    st.html(f'<div class="rl">{table(head, rows, numbers=(0, 4, 5))}</div>')
    if len(kinds) > _MOST:
        st.caption(f"{len(kinds) - _MOST} more runs are not listed.")


def _kinds(result: Replay | Reproduction) -> Sequence[str]:
    if isinstance(result, Replay):
        return [run.verdict.kind.value for run in result.runs]
    return [attempt.kind.value for attempt in result.attempts]


def _sealed(result: Replay | Reproduction) -> str:
    if isinstance(result, Replay):
        left = [run.outcome.packets_left for run in result.runs if run.outcome is not None]
    else:
        left = [attempt.packets_left for attempt in result.attempts]
    known = [one for one in left if one is not None]
    if not known:
        return ""
    return f" {sum(known) or 'No'} packet{'s' * (sum(known) != 1)} left the sandbox{'es' * (len(left) > 1)}."


def _run(run: Run, mask: Mask) -> list[str]:
    # There they only vary with time.
    notes = run.verdict.notes if run.verdict.kind.value != "reproduced" else []
    left = run.outcome.packets_left if run.outcome is not None else None
    return [
        str(run.number),
        _chip(run.verdict.kind.value),
        escape(_outcome(run.outcome)),
        _missing(run.verdict, mask)
        + _sentence(run.verdict.difference, [*_grounds(run.verdict), *run.verdict.inside, *notes], mask),
        duration(run.restore_us),
        "-" if left is None else str(left),
    ]


def _missing(verdict: Verdict | Attempt, mask: Mask) -> str:
    """What the branch lacked, before all else."""
    return "".join(f"<div><b>missing:</b> {escape(mask.sentence(text))}</div>" for text in verdict.missing)


def _grounds(verdict: Verdict | Attempt) -> list[str]:
    """What the verdict rests on."""
    grounds = [f"cause: {text}" for text in verdict.evidence]
    grounds += [f"not seen: {text}" for text in verdict.unseen if text not in verdict.missing]
    return [*grounds, *([verdict.played] if verdict.played else [])]


def _attempt(one: Attempt, mask: Mask) -> list[str]:
    notes = one.notes if one.kind.value != "reproduced" else []
    outcome = f"status {one.status}" if one.status is not None else ""
    if one.raised is not None:
        outcome = f"{one.raised.type.removeprefix('builtins.')}: {mask.sentence(one.raised.text)}"
    return [
        str(one.number),
        _chip(one.kind.value),
        escape(outcome),
        _missing(one, mask) + _sentence(one.difference, [*_grounds(one), *notes], mask),
        duration(one.ready_seconds * 1e6) if one.ready_seconds is not None else "-",
        "-" if one.packets_left is None else str(one.packets_left),
    ]


def _chip(verdict: str) -> str:
    return chip(verdict_words(verdict), tone_of(verdict))


def _sentence(difference: str | None, notes: Sequence[str], mask: Mask) -> str:
    parts = [f"<div>{escape(mask.sentence(difference))}</div>"] if difference else []
    parts += [f'<div class="rl-dim">{escape(mask.sentence(note))}</div>' for note in notes]
    return "".join(parts) or '<span class="rl-dim">none</span>'


def _outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    match outcome.end:
        case End.ANSWERED:
            took = f" after {duration(outcome.seconds * 1e6)}" if outcome.seconds is not None else ""
            return f"status {outcome.status}{took}"
        case End.DIED:
            ended = f"ended with status {outcome.exit_status}"
            return f"killed by signal {outcome.signal}" if outcome.signal else ended
        case _:
            return {
                End.BROKEN: "connection broken",
                End.NO_ANSWER: "no answer",
            }.get(outcome.end, "nothing failed")
