"""Debugging a failure where it happened: pdb in a sealed branch, in the thread that failed.

The debugger runs inside of the branch, with the rights of the service. What looks at the branch from outside, with those of the
host, is in ``host_debugging``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask, mask_for
from relive.inspection.masking import masked_lines
from relive.kernel import procfs
from relive.model.commit import CommitId
from relive.model.incident import Incident
from relive.model.quantities import duration
from relive.model.text import printable
from relive.model.token_scope import Scope
from relive.operations.conversation import Conversation
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.respawning import tend_capsules
from relive.replay.debug.outcome import DebugOutcome
from relive.replay.debug.session import Debugged, at_failure, at_request, case_in_request, has_waiting_thread
from relive.replay.replay_input import ReplayInput
from relive.sandbox.branch import Branch
from relive.stepping.commands import DebuggerCommands
from relive.stepping.live import LiveRequest
from relive.stepping.stepping_session import SteppingSession
from relive.stepping.view import view_of
from relive.store import Store

__all__ = [
    "DEBUG",
    "OUTCOME_LIMIT",
    "DebugAnswers",
    "DebugParams",
    "DebuggerAnswer",
    "converse",
    "debug",
    "is_quit",
    "leave",
    "outcome_of",
    "prompted",
    "stepping",
]

_QUITS = frozenset({"q", "quit", "exit"})
_ANSWERS_MOST = 16 << 20  # [characters] of all answers together, which are held here and kept with a task
_SILENCE = 1800.0  # [s] without a command, after which a conversation is over: its branches take memory
OUTCOME_LIMIT = 30.0  # [s] for the answer, once the debugger has let the request go on


class DebugParams(Params):
    """Which failure, and what the debugger is told."""

    number: int = Field(ge=1, le=(1 << 53) - 1, description="The incident's number")
    command: list[str] = Field(
        default=[],
        max_length=1000,
        description="Give this to the debugger, print its answer; then end",
    )
    at_request: bool = Field(
        default=False, description="Begin before the failure, where the service takes the request"
    )
    step: bool = Field(
        default=False,
        description="Go forward and back through the request, line by line, from the failure on; `help` tells the commands",
    )
    keep: bool = Field(default=False, description="Leave the branch there when the debugger ends")


class DebuggerAnswer(Result):
    """What the debugger said to one command."""

    command: str
    answer: str


class DebugAnswers(Result):
    """What the debugger said.

    Attributes:
        opening: before the first command.
        has_gone_on: the debugger let the request go on.
        compares: the request was recorded, so that there is an answer to compare.
        outcome: what came of it then; None: nothing within ``OUTCOME_LIMIT``, or it did not go on.
    """

    incident: int
    commit: CommitId
    branch: str
    opening: str
    answers: list[DebuggerAnswer]
    has_gone_on: bool
    compares: bool
    outcome: DebugOutcome | None


def debug(settings: Settings, params: DebugParams, progress: Progress) -> DebugAnswers:
    """Open pdb at a failure, in a sealed branch, and give it commands.

    Raises:
        IncidentUnknown, RefUnknown, RestoreFailed: as they say.
        UsageError: no thread of Python waits at the failure, or it did not happen in a recorded request.
        DebuggerSilent: none opened, or it said too much.
    """
    tend_capsules(settings)
    incident = Incidents(settings.incidents).get(params.number)
    if params.step:
        return _stepped(settings, params, incident, progress, None)
    if not params.at_request and not has_waiting_thread(incident):
        raise UsageError(
            f"in the commit of incident {incident.number} no thread of Python waits at the place of failure",
            cause="what shows other processes runs outside of the branch, with the rights of the host",
            remedy=f"`relive debug {incident.number}` on the host does so; or begin at the request",
        )
    mask = mask_for(settings, incident.service, incident.life)
    with prompted(settings, params, incident, progress) as debugged:
        mask.learn_environment(procfs.environment_of(debugged.branch.facts.root))
        return _answered(incident, debugged, params.command, mask)


@contextlib.contextmanager
def prompted(
    settings: Settings, params: DebugParams, incident: Incident, progress: Progress
) -> Iterator[Debugged]:
    """A branch in which pdb waits for a command; it is stopped at the end, or kept. Raises as ``debug``."""
    open_debugger = at_request if params.at_request else at_failure
    with open_debugger(settings, Store(settings.store), incident, keep=params.keep) as debugged:
        branch = debugged.branch
        try:
            progress.status(
                f"Restored {branch.facts.name} in {duration(branch.facts.restore_us)} as branch {branch.facts.id}."
            )
            yield debugged
        finally:
            debugged.line.close()
            leave(progress, branch, keep=params.keep)


@contextlib.contextmanager
def stepping(
    settings: Settings,
    params: DebugParams,
    incident: Incident,
    progress: Progress,
    *,
    is_ahead: bool = True,
) -> Iterator[tuple[SteppingSession, ReplayInput]]:
    """The failing request as a line to go forward and back on, and what is replayed; its branches are gone at the end.

    Args:
        is_ahead: as of a ``SteppingSession``.

    Raises:
        IncidentUnknown, RefUnknown, UsageError, RecordingError, StoreError: there is no such request to replay.
    """
    if params.keep or params.at_request:
        raise UsageError(
            "--step goes with neither --keep nor --at-request",
            cause="each step back is a fresh branch, which is removed; it goes to any line of the request",
            remedy="leave them out; `start` goes to the request's first line",
        )
    store = Store(settings.store)
    case = case_in_request(settings, store, incident)
    mask = mask_for(settings, incident.service, incident.life)
    has_learned = False

    def restored(*asked: Any) -> LiveRequest:
        nonlocal has_learned
        live = LiveRequest(settings, store, case, *asked)
        if (
            not has_learned
        ):  # all branches are of one commit; checkpoints are made in another thread, after the first
            mask.learn_environment(procfs.environment_of(live.branch.facts.root))
            has_learned = True
        return live

    timeline = SteppingSession(restored, is_ahead=is_ahead, mask=mask)
    progress.status(f"Replaying from commit {case.commit[:10]} to the failure.")
    try:
        yield timeline, case
    finally:
        timeline.close()


def converse(
    settings: Settings, params: DebugParams, progress: Progress, conversation: Conversation
) -> DebugAnswers:
    """Go forward and back through the failing request as one is told, until nobody tells anything any more.

    Raises:
        IncidentUnknown, RefUnknown, RestoreFailed, UsageError: as ``debug``, before anything is shown.
    """
    tend_capsules(settings)
    incident = Incidents(settings.incidents).get(params.number)
    return _stepped(settings, params, incident, progress, conversation)


def _stepped(
    settings: Settings,
    params: DebugParams,
    incident: Incident,
    progress: Progress,
    conversation: Conversation | None,
) -> DebugAnswers:
    is_ahead = conversation is not None  # who gives all commands at once waits for none
    with stepping(settings, params, incident, progress, is_ahead=is_ahead) as (timeline, case):
        commands = DebuggerCommands(timeline)
        opening = printable(commands.opening())
        branch = timeline.branch
        answers = _given_at_once(commands, params.command)
        if conversation is not None:
            _talked(commands, opening, conversation)
        outcome = timeline.outcome()
        return timeline.mask.model(
            DebugAnswers(
                incident=incident.number,
                commit=case.commit,
                branch=branch,
                opening=opening,
                answers=answers,
                has_gone_on=outcome is not None,
                compares=True,
                outcome=outcome,
            )
        )


def _given_at_once(commands: DebuggerCommands, asked: list[str]) -> list[DebuggerAnswer]:
    answers: list[DebuggerAnswer] = []
    left = _ANSWERS_MOST
    for text in asked:
        if commands.has_quit:
            break
        answer = commands.do(text)
        left -= len(answer)
        if left < 0:
            raise _said_too_much()
        answers.append(DebuggerAnswer(command=text, answer=printable(answer)))
    return answers


def _talked(commands: DebuggerCommands, opening: str, conversation: Conversation) -> None:
    mask = commands.session.mask
    conversation.show(mask.model(view_of(commands, opening)))
    for text in conversation.commands(_SILENCE):
        said = commands.do(text)
        if commands.has_quit:
            return
        conversation.show(mask.model(view_of(commands, said)))


def leave(progress: Progress, branch: Branch, *, keep: bool) -> None:
    """Stop the branch, or say how it is stopped."""
    if keep and branch.is_alive:
        branch.outlive_caller()
        progress.status(f"Branch {branch.facts.id} stays; `relive stop {branch.facts.id}` ends it.")
    else:
        branch.stop()


def is_quit(said: str) -> bool:
    """The debugger was told to quit; after anything else that ends it, the request goes on."""
    return said.strip() in _QUITS


def outcome_of(debugged: Debugged) -> DebugOutcome | None:
    """What came of the request that the debugger let go on; None: nothing in time, or nobody waits for it."""
    return debugged.sending.outcome(OUTCOME_LIMIT) if debugged.sending is not None else None


def _answered(incident: Incident, debugged: Debugged, commands: list[str], mask: Mask) -> DebugAnswers:
    line, said, left = debugged.line, "", _ANSWERS_MOST
    text, wants = line.read_text()
    opening = masked_lines(mask, "", printable(_without_prompt(text)))
    answers: list[DebuggerAnswer] = []
    for said in commands:
        if not wants:
            break
        line.send_line(said)
        text, wants = line.read_text()
        left -= len(text)
        if left < 0:
            raise _said_too_much()
        answer = masked_lines(mask, said, printable(_without_prompt(text)))
        answers.append(DebuggerAnswer(command=mask.sentence(said), answer=answer))
    goes_on = not wants and not is_quit(said)
    return DebugAnswers(
        incident=incident.number,
        commit=debugged.branch.facts.commit,
        branch=debugged.branch.facts.id,
        opening=opening,
        answers=answers,
        has_gone_on=goes_on,
        compares=debugged.sending is not None,
        outcome=outcome_of(debugged) if goes_on else None,
    )


def _said_too_much() -> UsageError:
    return UsageError(
        "the debugger said too much",
        cause=f"its answers have more than {_ANSWERS_MOST} characters in all",
        remedy="ask for less, such as a slice",
    )


def _without_prompt(text: str) -> str:
    """All lines but the last, which asks for the next command."""
    return text.rpartition("\n")[0]


def _look_up(settings: Settings, params: DebugParams) -> None:
    Incidents(settings.incidents).get(params.number)


DEBUG = Operation(
    "debug",
    DebugParams,
    DebugAnswers,
    debug,
    Faces(
        cli=("debug",),
        # As for commands in a branch: the debugger runs whatever it is told, as the service, within the seal.
        rest=Route(
            "POST",
            "/debugging",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Open pdb at a failure, in a sealed branch, and give it commands",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Open pdb at a failure, in the failing frame of a sealed branch, and give it commands such as `p order.items`, "
            "`up`, `where`; or, with `step`, go forward and back through the failing request (`rs`, `rn`, `rc`, "
            "`watch EXPRESSION`, `p EXPRESSION`, `help`). Only the branch is changed.",
            acting_fields=("keep",),
        ),
        only=(
            Only(
                ("a conversation",),
                frozenset({Face.CLI}),
                "it needs a terminal, or a page of the dashboard; elsewhere commands are given at once",
            ),
            Only(
                ("dap", "vscode"),
                frozenset({Face.CLI}),
                "an editor needs a connection of its own; elsewhere commands are given at once",
            ),
            Only(
                ("gdb and py-spy",),
                frozenset({Face.CLI}),
                "they run on the host as root, outside of the branch, and gdb runs programs",
            ),
        ),
    ),
    look_up=_look_up,
    converse=converse,
)
