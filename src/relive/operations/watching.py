"""Watching containers that run already, and what a container must be created with to be recorded from inside."""

from __future__ import annotations

import os

from pydantic import Field

from relive.agent.containers.engines import engine_named, engine_of
from relive.agent.containers.launch import begin_watch, upstream_of
from relive.agent.containers.options import creation_options
from relive.config import Settings
from relive.errors import PermissionMissing, UsageError
from relive.model.capsule import parse_address, parse_every
from relive.model.watched import WatchSpec, check_pattern
from relive.operations.operation import Operation, Result, Wish
from relive.operations.progress import Progress
from relive.operations.targets import tend

__all__ = ["WATCH", "CreationOptions", "WatchWish", "Watching", "options_for", "watch"]


class WatchWish(Wish):
    """Which container is watched, and for what."""

    target: str = Field(description="The container: podman:NAME, docker:NAME, or its id")
    every: str = Field(
        default="30s", description="When to commit: a time such as 30s, or request, start, never"
    )
    listen: str | None = Field(
        default=None, description="ADDR:PORT at which a recording proxy listens for the container"
    )
    upstream: str | None = Field(
        default=None,
        description="Where the host reaches it; default: its published port, if there is one only",
    )
    hang_after: float | None = Field(
        default=30.0, ge=0.1, description="Seconds without an answer that count as a hang; with listen"
    )
    log_pattern: list[str] = Field(
        default=[], description="Regular expressions; a line of output in which one is found is a failure"
    )
    signals: bool = Field(default=True, description="Commit at fatal signals, before the process dies")
    health: bool = Field(default=True, description="Run its health check where nobody does in time")


class Watching(Result):
    """A watch that has begun.

    Attributes:
        missing: sentences on what this watch cannot see, and what would change that.
    """

    target: str
    id: str
    pid: int
    listen: str | None
    inside: bool
    missing: list[str]


def watch(settings: Settings, wish: WatchWish, progress: Progress) -> Watching:
    """Watch a container, which runs on whatever becomes of the watch.

    Raises:
        UsageError: the target is no container, or what is asked for does not fit it.
        TargetUnknown: there is no such container.
        CapsuleExists: it is watched already.
        PermissionMissing: the caller is not root.
        ToolMissing, HostIncapable, CapsuleStartFailed: as they say.
    """
    engine, name = engine_of(wish.target)
    if os.geteuid() != 0:
        raise PermissionMissing(
            f"watching {wish.target} needs root",
            cause=f"this is uid {os.geteuid()}, and only root may trace, commit and record what others run",
            remedy="run it with sudo; root's podman has containers of its own",
        )
    tend(settings, progress)
    state = engine.look(name)
    if wish.upstream is not None and wish.listen is None:
        raise UsageError("--upstream is for --listen", remedy="give both, or neither")
    listen = parse_address(wish.listen) if wish.listen is not None else None
    upstream = None
    if listen is not None:
        upstream = parse_address(wish.upstream) if wish.upstream is not None else upstream_of(state)
    policy = parse_every(wish.every)
    if policy.each_request and listen is None:
        raise UsageError("--every request is for --listen", remedy="give --listen, or another --every")
    spec = WatchSpec(
        policy=policy,
        listen=listen,
        upstream=upstream,
        hang_after=wish.hang_after,
        patterns=[check_pattern(one) for one in wish.log_pattern],
        signals=wish.signals,
        health=wish.health,
    )
    begun = begin_watch(settings, engine, state, spec)
    missing = []
    if listen is None:
        missing.append("Requests are not recorded: --listen puts a recording proxy before its port.")
    if not state.has_recorder:
        words = f"{engine.name} run $(relive podman-args {_flag(engine.name)}{state.image}) ..."
        missing.append(
            "What its Python processes do is not recorded, and exceptions are only seen as what they lead to: it was "
            f"created without the recorder. `{words}` creates one with it."
        )
    if not state.is_running:
        missing.append(f"It does not run ({state.status}); the watch waits for its start.")
    return Watching(
        target=begun.target,
        id=state.id,
        pid=state.pid,
        listen="{}:{}".format(*listen) if listen is not None else None,
        inside=state.has_recorder,
        missing=missing,
    )


def _flag(engine: str) -> str:
    return "" if engine == "podman" else f"--engine {engine} "


WATCH = Operation("watch", WatchWish, Watching, watch)


class CreationOptions(Result):
    """Words for ``podman run`` or ``podman create``."""

    options: list[str]


def options_for(settings: Settings, image: str, *, engine: str = "podman") -> CreationOptions:
    """What puts the recorder into a container of an image; each call is for one container, since it makes the place of its rings.

    Raises:
        TargetUnknown: the engine does not have the image.
        HostIncapable: there is no place for rings.
    """
    return CreationOptions(options=creation_options(settings, engine_named(engine), image))
