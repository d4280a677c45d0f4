"""Reproductions: does it fail again in a fresh process, without any commit?"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from relive.config import Settings
from relive.errors import StoreError, UsageError
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import Mask
from relive.incidents.report.outcomes import masked_attempt
from relive.model.incident import Incident
from relive.model.reproduction import Attempt, Reproduction, ReproductionKind
from relive.model.text import is_number
from relive.operations.grammars import each_written_as
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Tool
from relive.operations.policies import check_ignore, parse_policy
from relive.operations.progress import Progress
from relive.operations.resuming import Unfinished, digest
from relive.operations.runs import marked_run, save_reproduction
from relive.replay.fresh.attempt_plan import ReproduceOptions
from relive.replay.fresh.environment import parse_variable, read_variables
from relive.replay.fresh.reproduce import What, prepare
from relive.replay.fresh.reproduce import reproduce as run_reproduction
from relive.store import Store

__all__ = ["REPRODUCE", "FreshParams", "ReproduceParams", "reproduce", "reproduction_status"]


def _database(text: str) -> tuple[str, Path]:
    path, equals, file = text.partition("=")
    if not equals or not path.startswith("/") or not file:
        raise UsageError(f"--database cannot be {text!r}", remedy="write PATH=FILE, with an absolute PATH")
    return path, Path(file)


class FreshParams(Params):
    """As what a service is started afresh, and what may differ."""

    command: list[str] = Field(
        default=[],
        max_length=1000,
        description="The service and its arguments, after --; default: as recorded",
    )
    checkout: str | None = Field(
        default=None,
        description="A revision of git, or . for the files as they are; default: the recorded revision, where it is there",
    )
    env: Annotated[list[str], each_written_as(parse_variable)] = Field(
        default=[], max_length=1000, description="NAME=VALUE, over the recorded environment"
    )
    port: int | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="Port on which the service listens, if not the recorded one",
    )
    times: int = Field(default=1, ge=1, le=10_000, description="How often, each in a fresh process")
    ignore: Annotated[list[str], each_written_as(partial(check_ignore, inside_only=True))] = Field(
        default=[], description="What may differ inside: event:KIND, or event:KIND:PATH"
    )
    on_miss: Annotated[list[str], each_written_as(parse_policy)] = Field(
        default=[],
        description="A call of the request without a recorded answer: fail or pass, or KIND:pass such as http-call:pass",
    )
    limit: float = Field(
        default=30.0,
        ge=0.1,
        le=86_400,
        description="Seconds until the service listens, and again until it has answered",
    )


class ReproduceParams(FreshParams):
    """What is reproduced, by who may name files of the host."""

    incident: str = Field(description="An incident's number, or the path of an error package")
    env_file: Path | None = Field(default=None, description="File of NAME=VALUE lines")
    database: Annotated[list[str], each_written_as(_database)] = Field(
        default=[], description="PATH=FILE: lay a file over a path, such as a SQLite database"
    )


def reproduce(settings: Settings, params: ReproduceParams, progress: Progress) -> Reproduction:
    """From what was recorded of the failure: start the service afresh, send the request, judge; secrets are masked in what is told.

    The one that carries ``settings.mark`` already is given as it is; attempts under that mark of one that was broken off count.

    Raises:
        UsageError: what is asked for cannot be meant.
        IncidentUnknown, PackageMissing, RecordingError: there is nothing to reproduce.
    """
    kept = marked_run(settings, Reproduction)
    if kept is not None:
        return kept
    directory, number = _incident(params.incident)
    supplied = read_variables(params.env_file) if params.env_file is not None else {}
    supplied |= dict(parse_variable(text) for text in params.env)
    what = What(
        incident=number,
        directory=directory,
        command=tuple(params.command),
        checkout=params.checkout,
        environment=supplied,
        port=params.port,
        times=params.times,
    )
    options = ReproduceOptions(
        ignore=tuple(check_ignore(text, inside_only=True) for text in params.ignore),
        limit=params.limit,
        on_miss=dict(parse_policy(text) for text in params.on_miss),
        databases=dict(_database(text) for text in params.database),
    )
    mask = Mask(settings.secret_patterns, settings.secret_names)
    mask.learn_environment(supplied)  # the recorded environment holds placeholders
    unfinished = Unfinished(settings, Attempt)

    def masked(attempt: Attempt) -> Attempt:
        return mask.model(masked_attempt(attempt, mask))

    with progress.progress("reproducing", params.times) as done:
        prepared = prepare(settings, what, lambda incident: _committed_environment(settings, incident))
        mask.learn_command(prepared.whole.command)
        mask.learn_environment(prepared.plan.environment)  # that of a service that lives holds its secrets
        result = run_reproduction(
            settings,
            prepared,
            options,
            lambda text: progress.status(mask.sentence(text)),
            done,
            had=unfinished.begin(digest(params, prepared.whole)),
            ended=lambda attempt: unfinished.save(masked(attempt)),
        )
    result = mask.model(result.model_copy(update={"attempts": list(map(masked, result.attempts))}))
    number = save_reproduction(settings, result, unfinished.began_wall_ns, unfinished.seconds)
    progress.status(f"Saved as run {number}.")
    return result


def _look_up(settings: Settings, params: ReproduceParams) -> None:
    directory, number = _incident(params.incident)
    if directory is None:
        Incidents(settings.incidents).get(number)


REPRODUCE = Operation(
    "reproduce",
    ReproduceParams,
    Reproduction,
    reproduce,
    Faces(
        cli=("reproduce",),
        rest=("POST /reproductions",),
        mcp=Tool(
            Effect.ADDS,
            "Without any commit: start the service afresh in a sandbox, send the failed request, and judge as `replay` does. "
            "Another revision can be tried with `checkout`.",
        ),
        only=(
            Only(
                ("env_file", "database"),
                frozenset({Face.CLI, Face.MCP}),
                "they name files of the host",
            ),
        ),
    ),
    look_up=_look_up,
)


def _committed_environment(settings: Settings, incident: Incident) -> dict[str, str]:
    """Of a service that has ended, from the commit at its failure, or before it; empty where neither can be read."""
    from relive.inspection.reading import read_environment

    store = Store(settings.store)
    for commit in filter(None, (incident.before, incident.at)):
        with (
            contextlib.suppress(StoreError, UsageError),
            store.images.open_memory(store.facts(commit)) as memory,
        ):
            return read_environment(memory)
    return {}


def _incident(text: str) -> tuple[Path | None, int]:
    """(directory, number) of a number, ``incident/NUMBER``, or a file ``NUMBER.package.json`` anywhere; raises UsageError."""
    number = text.removeprefix("incident/")
    if is_number(number):
        return None, int(number)
    path = Path(text)
    number = path.name.removesuffix(".package.json")
    if number == path.name or not is_number(number) or not path.is_file():
        raise UsageError(
            f"{text!r} is no incident",
            remedy="`relive incidents` lists their numbers; an error package is a file NUMBER.package.json",
        )
    return path.parent, int(number)


def reproduction_status(result: Reproduction) -> int:
    """What all attempts mean: 0 reproduced every time, 1 never, 6 it could not be started, 10 all between these."""
    kinds = {attempt.kind for attempt in result.attempts}
    if kinds == {ReproductionKind.REPRODUCED}:
        return 0
    if kinds == {ReproductionKind.COULD_NOT_START}:
        return 6
    return 1 if kinds <= {ReproductionKind.NOT_REPRODUCED, ReproductionKind.COULD_NOT_START} else 10
