"""``relive bisect``: the first commit in which something holds."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from relive.cli.curve import curve_lines
from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.incidents.report.shown import one_line, shorten
from relive.inspection.words import value_change_lines
from relive.model.quantities import when
from relive.operations.bisect_params import BisectParams
from relive.operations.bisect_result import BisectedCommit, Bisection, Jump, Side
from relive.operations.bisecting import bisect as run_bisection

__all__ = ["bisect", "describe"]

_VALUES = 20
_MESSAGE = 60  # characters of one
_REQUESTS = 10


@from_params(BisectParams)
def bisect(params: BisectParams, as_json: AsJson = False) -> None:
    """Find the first commit in which something holds, the requests before it, and what they changed

    Each commit is asked in a sealed branch that is removed at once: --when an expression, --run a command, --http a request, or
    --replay an incident. A predicate that crashes or hangs is an error and no judgement. Exit status: 0 found, 1 it cannot be told.
    """
    terminal = Terminal(as_json=as_json)
    found = run_bisection(load_settings(), params, terminal)
    terminal.answer(found, lambda: "\n".join(describe(found)))
    if not found.jumps:
        raise typer.Exit(1)


def describe(found: Bisection) -> Iterator[str]:
    """The result for people."""
    yield f"{found.service}: {found.question}"
    yield f"{found.commits} commits, {found.probes} probes" + (
        f", {found.failed} of them failed and are no judgement" if found.failed else ""
    )
    if found.lives > 1:
        yield f"They are of {found.lives} starts of the service."
    yield from _probed(found)
    if found.curve:
        yield ""
        yield from curve_lines(found)
    if not found.jumps:
        yield ""
        yield f"Cannot tell: {found.why_not}."
        yield from _suspects(found)
        return
    if len(found.jumps) > 1:
        yield ""
        yield f"It changes {len(found.jumps)} times:"
    for one in found.jumps:
        yield ""
        yield from _jump_lines(found, one)
    if found.why_not is not None:
        yield ""
        yield f"There may be more to find: {found.why_not}."


def _probed(found: Bisection) -> Iterator[str]:
    for one in found.probed:
        words = [
            f"{count} {name}"
            for name, count in (
                ("bad", one.bad),
                ("good", one.good),
                ("skipped", one.skipped),
                ("failed", one.failed),
            )
            if count
        ]
        once = one.probability is None and words[0].startswith("1 ") and len(words) == 1
        said = words[0].split()[1] if once else ", ".join(words)
        yield f"  {_name(one)}  {said:8}  {one.seen}"


def _suspects(found: Bisection) -> Iterator[str]:
    if found.suspects:
        yield f"The likeliest {len(found.suspects)} commits for a change right before them:"
        for one in sorted(found.suspects, key=lambda one: -(one.probability or 0))[:_REQUESTS]:
            yield f"  {_name(one)}  {100 * (one.probability or 0):.1f} %"


def _jump_lines(found: Bisection, jump: Jump) -> Iterator[str]:
    after, before = jump.after, jump.before
    verb = "begins" if jump.begins else "ends"
    sure = f", with a probability of {100 * jump.probability:.1f} %" if jump.probability is not None else ""
    yield f"It {verb} with commit {_name(after)}{sure}; the one before is {_name(before)}."
    if before.skipped and not before.good + before.bad:
        yield f"  From that one it takes another way, which is no judgement: {before.seen}"
    if jump.sides is not None:
        first, then = jump.sides
        yield f"  before it {_side(first)}, from it on {_side(then)}"
    if jump.unjudged:
        yield f"  {len(jump.unjudged)} commits between them were not judged: it may as well be one of these"
    if jump.requests is None:
        yield "  which requests came between them was not recorded"
    elif jump.messages:
        yield f"  {len(jump.messages)} {'message' if len(jump.messages) == 1 else 'messages'} between them:"
        for said in jump.messages[:_REQUESTS]:
            text = shorten(one_line(said.body.words().rstrip()), _MESSAGE)
            yield f"    connection {said.connection}  {when(said.sent_wall_ns)[11:]}  > {text}"
        if len(jump.messages) > _REQUESTS:
            yield f"    and {len(jump.messages) - _REQUESTS} more (--json)"
    else:
        yield f"  {jump.request_count} {'request' if jump.request_count == 1 else 'requests'} between them:"
        for one in jump.requests[:_REQUESTS]:
            answer = one.status if one.status is not None else "no answer"
            yield f"    {one.number}  {when(one.began_wall_ns)[11:]}  {one.method} {one.target}  {answer}"
        if jump.request_count > _REQUESTS:
            yield f"    and {jump.request_count - _REQUESTS} more (--json)"
    yield from _difference_lines(found, jump)


def _difference_lines(_found: Bisection, jump: Jump) -> Iterator[str]:
    changed = jump.difference
    if changed is not None and changed.python is not None:
        changes = changed.python.changes
        yield f"  Python values: {len(changes)} differ"
        yield from (f"    {line}" for line in value_change_lines(changes, _VALUES, "--json"))
    elif jump.why_no_difference is not None:
        yield f"  no Python values: {jump.why_no_difference}"
    if changed is not None and changed.files:
        yield f"  files: {', '.join(one.path for one in changed.files[:_REQUESTS])}"
    python = " --python" if changed is not None and changed.python is not None else ""
    yield f"  all of it: relive diff {jump.before.commit[:10]} {jump.after.commit[:10]}{python}"


def _side(side: Side) -> str:
    return f"{side.bad} of {side.probes} bad ({100 * side.least:.0f} to {100 * side.most:.0f} %)"


def _name(one: BisectedCommit) -> str:
    return f"{one.commit[:10]} ({when(one.taken_wall_ns)[11:]})"
