"""A dry run: what a commit of a service would meet, and cost. Only looks; nothing is stopped, signalled or attached to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from relive.agent.capsule.lives import find_capsule
from relive.check.report import CheckReport, Expected, capsule_helps, verdict_of
from relive.config import Settings
from relive.errors import UsageError
from relive.model.commit import TargetKind
from relive.model.text import is_number
from relive.operations.operation import Face, Faces, Only, Operation, Params
from relive.operations.progress import Progress
from relive.watching.life import living_watches

if TYPE_CHECKING:
    from relive.checkpoint.micro_hindrance import MicroHindrance

__all__ = ["CHECK", "CheckParams", "check"]

_PROCESS, _PODMAN, _DOCKER = "pid:", "podman:", "docker:"
_UNSEEN_OF_A_PROCESS = [
    "what it opens, maps or connects later: check again under load",
    "data that waits in sockets and pipes at the moment of a commit, multicast memberships, corked datagrams",
    "Landlock rules, kernel keyrings, and System V semaphores and message queues, which a commit of a plain process does not hold",
]
_UNSEEN_OF_A_COMMAND = [
    "what it opens, maps and connects, its memory, processes and threads: "
    "start it as ever and ask `relive check pid:N` when it has served some requests",
]


class CheckParams(Params):
    """What is checked: a target that runs, or a command that does not yet."""

    target: str = Field(
        default="",
        description="pid:NUMBER for any running tree, a capsule's name, podman:NAME or docker:NAME",
    )
    command: list[str] = Field(default=[], description="Instead of a target: a command and its arguments")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="The port that the command will listen on"
    )


def check(settings: Settings, params: CheckParams, _progress: Progress) -> CheckReport:
    """Look at a target or a command.

    Raises:
        UsageError: neither is given, or both, or the target's text is none.
        TargetUnknown, ProcessGone: there is no such target.
        TargetUndumpable: it is no process that has a state of its own.
        PermissionMissing: the caller is not root.
    """
    if bool(params.target) == bool(params.command):
        raise UsageError(
            "either a target or a command is checked",
            remedy="relive check pid:1234, or relive check -- CMD ARGUMENTS",
        )
    return _check_command(settings, params) if params.command else _check_target(settings, params.target)


CHECK = Operation(
    "check",
    CheckParams,
    CheckReport,
    check,
    Faces(
        cli=("check",),
        rest=("GET /targets/check",),
        mcp=("check",),
        only=(
            Only(
                ("command", "port"),
                frozenset({Face.CLI}),
                "a command that does not run yet is looked up in the environment of who asks",
            ),
        ),
    ),
)


def _check_target(settings: Settings, target: str) -> CheckReport:
    from relive.check.estimate import estimate
    from relive.check.reading import read_tree
    from relive.check.rules import findings_of
    from relive.check.rules.making import note_finding

    kind, pid = _found(settings, target)
    # A capsule is always watched, and so nobody else can be its tracer.
    watched = kind is TargetKind.CAPSULE or (kind is TargetKind.CONTAINER and _is_watched(settings, target))
    seen = read_tree(pid, kind, settings, watched=watched)
    findings = findings_of(seen)
    if kind is TargetKind.CAPSULE and (hindrance := _no_micro_commits(settings)) is not None:
        findings.append(
            note_finding("full-commits-only", None, "this host", hindrance.cause, hindrance.remedy)
        )
    return CheckReport(
        target=target,
        pid=pid,
        command=_command_of(pid),
        verdict=verdict_of(findings),
        capsule_helps=kind is TargetKind.PROCESS and capsule_helps(findings),
        findings=findings,
        estimate=estimate(seen),
        expected=[],
        unseen=_UNSEEN_OF_A_PROCESS,
    )


def _found(settings: Settings, target: str) -> tuple[TargetKind, int]:
    if target.startswith(_PROCESS):
        number = target.removeprefix(_PROCESS)
        if not is_number(number):
            raise UsageError(
                f"{target!r} is no target", remedy="write pid:1234, podman:NAME, or a capsule's name"
            )
        return TargetKind.PROCESS, int(number)
    if target.startswith(_PODMAN):
        from relive.containers.podman.container import find_container

        return TargetKind.CONTAINER, find_container(target.removeprefix(_PODMAN)).pid
    if target.startswith(_DOCKER):
        from relive.containers.docker.target import docker_target

        return TargetKind.CONTAINER, docker_target(target.removeprefix(_DOCKER)).root
    return TargetKind.CAPSULE, find_capsule(settings, target).lead


def _is_watched(settings: Settings, target: str) -> bool:
    return any(watch.target == target for watch in living_watches(settings))


def _command_of(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode(errors="surrogateescape") for word in words.rstrip(b"\0").split(b"\0")]


def _no_micro_commits(settings: Settings) -> MicroHindrance | None:
    from relive.checkpoint.criu import CriuTools
    from relive.checkpoint.micro_hindrance import micro_hindrance

    return micro_hindrance(CriuTools(settings.tools_path))


def _check_command(settings: Settings, params: CheckParams) -> CheckReport:
    from relive.check.command import examine
    from relive.check.lacking import replay_lacks
    from relive.sandbox.border import can_tap

    expected, findings = examine(params.command, params.port)
    lacks = replay_lacks(params.command, inside=True, border=can_tap(), tls=False)
    if lacks is not None and expected:
        expected.append(Expected(name="replay", value=lacks))
    hindrance = _no_micro_commits(settings)
    if hindrance is not None and expected:
        expected.append(Expected(name="micro-commits", value=f"none on this host: {hindrance}"))
    return CheckReport(
        target=" ".join(params.command),
        pid=None,
        command=params.command,
        verdict=verdict_of(findings),
        capsule_helps=False,
        findings=findings,
        estimate=None,
        expected=expected,
        unseen=_UNSEEN_OF_A_COMMAND,
    )
