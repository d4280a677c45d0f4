"""``relive replay``: does it happen again?"""

from __future__ import annotations

from statistics import median
from typing import Annotated

import typer

from relive.cli.stacks import stack_lines
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.branch import Clock
from relive.model.outcome import End, Outcome, Replay, Run, Steps, VerdictKind, verdict_words
from relive.model.quantities import duration
from relive.operations.replays import ReplayWish, replay_status
from relive.operations.replays import replay as run_replay
from relive.replay.answers import Calls
from relive.replay.plan import Pace

__all__ = ["describe", "outcome_words", "replay"]


def replay(
    what: Annotated[str, typer.Argument(help="An incident's number, or a commit (then with --request)")],
    request: Annotated[int | None, typer.Option(help="Replay this recorded request from the commit")] = None,
    first: Annotated[
        bool, typer.Option("--first", help="The first time the incident was seen, not the latest")
    ] = False,
    times: Annotated[int, typer.Option(help="How often, each in a branch of its own", min=1)] = 1,
    jobs: Annotated[
        int | None, typer.Option(help="Branches at one time; default: the number of CPUs", min=1)
    ] = None,
    pace: Annotated[
        Pace, typer.Option(help="Send again at the recorded pace, or as fast as order allows")
    ] = Pace.RECORDED,
    clock: Annotated[
        Clock, typer.Option(help="The wall clock in the branch: as recorded, or now")
    ] = Clock.RECORDED,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            help="What may differ: header:NAME, body:PATH such as body:$.id, event:KIND, event:KIND:PATH; "
            "in what the service asks also query:NAME, and paths such as $.parameters[0]"
        ),
    ] = None,
    calls: Annotated[
        Calls, typer.Option(help="Who answers the service's calls: the recording, or the sealed network")
    ] = Calls.RECORDED,
    on_miss: Annotated[
        list[str] | None,
        typer.Option(
            help="A call without a recorded answer: fail or pass, or KIND=pass such as http-call=pass"
        ),
    ] = None,
    speed: Annotated[
        str,
        typer.Option(
            help="Divides recorded times, of requests and of answers to the service's calls: 10, max"
        ),
    ] = "1",
    limit: Annotated[float | None, typer.Option(help="Seconds for the judged request", min=0.1)] = None,
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Begin before the memory of the branches is all there")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the commit before a failure, send the recorded requests again, and judge

    Exit status: 0 reproduced in every run, 1 in none, 10 diverged, or the same answer came and its cause was not seen, or
    reproduced in some runs only, 6 no run could be restored.
    """
    terminal = Terminal(as_json=as_json)
    wish = ReplayWish(
        what=what,
        request=request,
        first=first,
        times=times,
        jobs=jobs,
        pace=pace,
        clock=clock,
        ignore=ignore or [],
        calls=calls,
        on_miss=on_miss or [],
        speed=speed,
        limit=limit,
        lazy=lazy,
    )
    result = run_replay(load_settings(), wish, terminal)
    terminal.answer(result, lambda: describe(result))
    raise typer.Exit(replay_status(result))


def describe(result: Replay) -> str:
    """The result for people."""
    lines = [
        _headline(result),
        f"  from commit {result.commit[:10]}, recorded: {outcome_words(result.recorded)}",
    ]
    if result.unrecorded:
        lines.append(f"  not recorded: {', '.join(one.words for one in result.unrecorded)}")
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
        f"{others}, restored in {duration(run.restore_us)}, {sealed}"
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


def _stub_words(outcome: Outcome) -> str:
    told = outcome.stubs
    if told is None or not (told.continued or told.opened or told.given or told.simulated or told.missed):
        return ""
    words = [
        f"{_counted(told.continued, 'connection')} went on",
        f"{told.opened} new" if told.opened else "",
        f"{_counted(told.given, 'call')} answered",
        f"{told.simulated} simulated" if told.simulated else "",
        f"{told.missed} without a recorded answer" if told.missed else "",
    ]
    return f"\n         stubs: {', '.join(filter(None, words))}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def outcome_words(outcome: Outcome) -> str:
    """How it ended, in a few words."""
    match outcome.end:
        case End.ANSWERED:
            took = f" after {duration(outcome.seconds * 1e6)}" if outcome.seconds is not None else ""
            return f"status {outcome.status}{took}"
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
