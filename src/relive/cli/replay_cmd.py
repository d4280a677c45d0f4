"""``relive replay``: does it happen again?"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Annotated, NoReturn

import typer

from relive.cli.chaos import chaos_lines
from relive.cli.params_options import from_params
from relive.cli.stacks import stack_lines
from relive.cli.state_files import with_contents
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.errors import UsageError
from relive.model.outcome import End, Outcome, Replay, Run, Steps, VerdictKind, verdict_words
from relive.model.quantities import duration
from relive.operations.chaos import ChaosParams
from relive.operations.chaos import chaos as search_schedule
from relive.operations.replays import ReplayParams, replay_status
from relive.operations.replays import replay as run_replay
from relive.recording.grpc import grpc_status

__all__ = ["describe", "outcome_words", "replay"]


_CHAOS = ChaosParams.model_fields
_NOBODY_CAN_TELL = 10  # exit status


@from_params(ReplayParams, arguments=("what",))
def replay(
    params: ReplayParams,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Under one schedule after another, until one ends otherwise")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(help=f"With --chaos: {_CHAOS['rate'].description}", min=0.001, max=0.5)
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help=f"With --chaos: {_CHAOS['confidence'].description}", min=0.5, max=0.9999),
    ] = None,
    most: Annotated[
        int | None, typer.Option(help=f"With --chaos: {_CHAOS['most'].description}", min=3, max=100_000)
    ] = None,
    within: Annotated[
        float | None, typer.Option(help=f"With --chaos: {_CHAOS['within'].description}", max=86_400)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore the commit before a failure, send the recorded requests again, and judge

    Exit status: 0 reproduced in every run, 1 in none, 10 diverged, or the same answer came and its cause was not seen, or
    reproduced in some runs only, 6 no run could be restored.

    `--set` and `--write` change the state of each branch first. `--chaos` looks for a schedule of threads and requests under
    which it ends otherwise (exit status 0 one was found, 1 none was, 10 nobody can tell); `--seed N` replays one.
    """
    terminal = Terminal(as_json=as_json)
    given = {"rate": rate, "confidence": confidence, "most": most, "within": within}
    bounds = {name: value for name, value in given.items() if value is not None}
    if chaos:
        _search_schedule(params, bounds, terminal)
    if bounds:
        raise UsageError(f"--{next(iter(bounds))} is for --chaos", remedy="add --chaos")
    params = params.model_copy(update={"write": with_contents(params.write)})
    result = run_replay(load_settings(), params, terminal)
    terminal.answer(result, lambda: describe(result))
    raise typer.Exit(replay_status(result))


def _search_schedule(params: ReplayParams, bounds: Mapping[str, object], terminal: Terminal) -> NoReturn:
    given = params.model_dump(exclude_defaults=True)
    for name in given.keys() - _CHAOS.keys():
        raise UsageError(
            f"--{name.replace('_', '-')} does not go with --chaos",
            cause="a search for a schedule makes one replay after the other, of what was recorded",
            remedy="leave it out; `relive replay --seed N` takes it",
        )
    found = search_schedule(load_settings(), ChaosParams.model_validate({**given, **bounds}), terminal)
    terminal.answer(found, lambda: "\n".join(chaos_lines(found)))
    raise typer.Exit(_NOBODY_CAN_TELL if found.why_not and found.seed is None else int(found.seed is None))


def describe(result: Replay) -> str:
    """The result for people."""
    lines = [
        _headline(result),
        f"  from commit {result.commit[:10]}, recorded: {outcome_words(result.recorded)}",
    ]
    if result.unrecorded:
        lines.append(f"  not recorded: {', '.join(one.words for one in result.unrecorded)}")
    lines += [f"  changed before: {one}" for one in result.changed]
    lines += [_run_line(run) for run in result.runs]
    if result.unrecorded or any(run.outcome is not None and run.outcome.unreached for run in result.runs):
        lines.append("  remedy: `relive run --record-egress` records what a service asks of others")
    lines += _times(result)
    stack = next((run.outcome.stack for run in result.runs if run.outcome and run.outcome.stack), None)
    if stack is not None:
        lines += ["", "Stack in the branch:", *stack_lines(stack)]
    return "\n".join(lines)


def _times(result: Replay) -> list[str]:
    """Where the time went: for several runs the middle of each step."""
    known = [run.steps for run in result.runs if run.steps is not None]
    if not known:
        return []
    parts = {name: median(getattr(steps, name) for steps in known) for name in Steps.model_fields}
    words = ", ".join(f"{name} {duration(seconds * 1e6)}" for name, seconds in parts.items())
    return [f"  time: recording {duration(result.prepare_seconds * 1e6)}, {words}"]


def _headline(result: Replay) -> str:
    what = f"incident {result.incident}" if result.incident is not None else f"request {result.request}"
    if result.reproduced == len(result.runs):
        return f"{what} of {result.service}: reproduced {result.reproduced} of {len(result.runs)}"
    first = next(run.verdict.kind for run in result.runs if run.verdict.kind is not VerdictKind.REPRODUCED)
    return f"{what} of {result.service}: {verdict_words(first.value)}, reproduced {result.reproduced} of {len(result.runs)}"


def _run_line(run: Run) -> str:
    if run.outcome is None:
        remedies = "".join(f"\n         remedy: {note}" for note in run.verdict.notes)
        return f"  run {run.number}: failed to restore: {run.verdict.difference}{remedies}"
    others = f"{run.forwarded} other request{'' if run.forwarded == 1 else 's'} sent again"
    sealed = (
        f"{run.outcome.packets_left} packets left"
        if run.outcome.packets_left is not None
        else "sandbox already gone"
    )
    line = (
        f"  run {run.number}: {verdict_words(run.verdict.kind.value)}: {outcome_words(run.outcome)}; "
        f"{others}, {_came_to_be(run)}, {sealed}"
    )
    line += "".join(f"\n         missing: {text}" for text in run.verdict.missing)
    if run.verdict.difference:
        line += f"\n         first difference: {run.verdict.difference}"
    line += "".join(f"\n         cause: {text}" for text in run.verdict.evidence)
    unseen = [text for text in run.verdict.unseen if text not in run.verdict.missing]
    line += "".join(f"\n         not seen: {text}" for text in unseen)
    if run.verdict.played:
        line += f"\n         answered: {run.verdict.played}"
    line += _stub_words(run.outcome)
    line += "".join(f"\n         inside: {text}" for text in run.verdict.inside)
    if run.verdict.kind is VerdictKind.REPRODUCED:
        return line  # its notes are what varies with time; --json has them
    return line + "".join(f"\n         note: {note}" for note in run.verdict.notes)


def _came_to_be(run: Run) -> str:
    took = duration(run.restore_us)
    if run.is_put_back:
        return f"put back in {took}"
    return (
        f"restored in {took}" if run.anew_because is None else f"restored anew in {took} ({run.anew_because})"
    )


def _stub_words(outcome: Outcome) -> str:
    stubbed = outcome.stubs
    if stubbed is None or not (
        stubbed.continued or stubbed.opened or stubbed.given or stubbed.simulated or stubbed.missed
    ):
        return ""
    words = [
        f"{_counted(stubbed.continued, 'connection')} went on",
        f"{stubbed.opened} new" if stubbed.opened else "",
        f"{_counted(stubbed.given, 'call')} answered",
        f"{stubbed.simulated} simulated" if stubbed.simulated else "",
        f"{stubbed.missed} without a recorded answer" if stubbed.missed else "",
    ]
    return f"\n         stubs: {', '.join(filter(None, words))}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def outcome_words(outcome: Outcome) -> str:
    """How it ended, in a few words."""
    match outcome.end:
        case End.ANSWERED:
            took = f" after {duration(outcome.seconds * 1e6)}" if outcome.seconds is not None else ""
            return f"{grpc_status(outcome.headers) or f'status {outcome.status}'}{took}"
        case End.BROKEN:
            return "connection broken"
        case End.NO_ANSWER:
            return "no answer"
        case End.DIED:
            return (
                f"killed by signal {outcome.signal}"
                if outcome.signal
                else f"ended with status {outcome.exit_status}"
            )
        case End.NOTHING:
            return "nothing failed"
