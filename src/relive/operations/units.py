"""Having a unit of systemd run its service under Relive, by one drop-in, and taking that away again."""

from __future__ import annotations

import contextlib
import difflib
import resource
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from relive.config import Settings
from relive.errors import HostIncapable, PermissionMissing, UnitUnfit, UsageError
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.addresses import parse_address
from relive.model.budget import parse_budget
from relive.model.capsule import CaptureWay, EgressWay, check_name
from relive.model.commit_policy import parse_every
from relive.model.limits import KINDS
from relive.model.token_scope import Scope
from relive.operations.observing import (
    BUDGET,
    CAPTURE,
    EGRESS,
    EVERY,
    LISTEN,
    MICRO,
    PAUSE_LIMIT,
    PAUSE_SHARE,
    RECORD_EGRESS,
    choose_egress,
)
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.recording_way import choose_way
from relive.units.dropin import DropInOptions, capsule_name, drop_in, is_untouched, remarks
from relive.units.systemctl import load_unit, reload_and_restart, unit_name
from relive.units.unitfile import read_service

__all__ = ["ADOPT", "RELEASE", "AdoptParams", "ReleaseParams", "UnitChange", "adopt", "release"]

_UNITS = Path("/etc/systemd/system")
_DROP_IN = "50-relive.conf"


class UnitParams(Params):
    """Which unit, and how far to go."""

    unit: str = Field(description="The unit, such as shop or shop@1.service")
    restart: bool = Field(default=False, description="Reload systemd, and restart the unit if it runs")
    force: bool = Field(default=False, description="Go on although the drop-in was edited, which is lost")
    dry_run: bool = Field(default=False, description="Only tell what would be done")


class AdoptParams(UnitParams):
    """What a unit's service is to run with."""

    name: str | None = Field(default=None, description="Name of the capsule; default: the unit's")
    every: str = Field(default="30s", description=EVERY)
    pause_limit: float | None = Field(default=None, ge=0, description=PAUSE_LIMIT)
    pause_share: float | None = Field(default=None, ge=0.001, le=100, description=PAUSE_SHARE)
    budget: str | None = Field(default=None, description=BUDGET)
    micro: bool | None = Field(default=None, description=MICRO)
    listen: str | None = Field(default=None, description=LISTEN)
    upstream: str | None = Field(
        default=None,
        description="The service's own port (or ADDR:PORT), where a proxy is to listen at --listen instead of it",
    )
    capture: CaptureWay | None = Field(default=None, description=CAPTURE)
    record_egress: bool | None = Field(default=None, description=RECORD_EGRESS)
    egress: EgressWay | None = Field(
        default=None, description=f"{EGRESS}; default: through with --record-egress, else beside"
    )
    unconfined: bool = Field(default=False, description="Let the service run without the unit's sandboxing")


class ReleaseParams(UnitParams):
    """Which unit runs its service without Relive again."""


class UnitChange(Result):
    """What was done to a unit, or would be.

    Attributes:
        path: the one file that is written or removed.
        is_changed: False: it was so already.
        difference: of that file, as a unified diff.
        remarks: what differs for the service, in sentences.
        next: commands that have still to be run.
    """

    unit: str
    path: str
    is_changed: bool
    difference: str
    remarks: list[str]
    next: list[str]


def adopt(settings: Settings, params: AdoptParams, _progress: Progress) -> UnitChange:
    """Write the drop-in.

    Raises:
        HostIncapable: there is no systemd; PermissionMissing: it cannot be written.
        TargetUnknown: there is no such unit.
        UnitUnfit: its service cannot be run so, or somebody edited the drop-in.
        UsageError: an option has no meaning.
    """
    _check_ports(params)
    unit = unit_name(params.unit)
    path = _path(unit)
    loaded = load_unit(unit)
    present = _present(path)
    if loaded["NeedDaemonReload"] == "yes" and present is None:
        raise UnitUnfit(
            f"the files of {unit} were changed since systemd read them",
            remedy="run `systemctl daemon-reload` first, so that all mean the same",
        )
    files = [file for file in loaded.files if file != path]
    service = read_service(file.read_text() for file in files)
    limits = {kind: _as_told(*resource.prlimit(1, number)) for kind, number in KINDS.items()}
    wanted = DropInOptions(
        _program(),
        _variables(settings),
        params.name or capsule_name(unit),
        _options(params),
        params.unconfined,
        limits,
    )
    check_name(wanted.name)
    text = drop_in(unit, service, loaded, wanted)
    _check_untouched(unit, path, present, force=params.force)
    if not params.dry_run and text != present:
        _write(path, text)
    return _change(
        unit, path, present, text, remarks(service), restart=params.restart, dry_run=params.dry_run
    )


def release(_settings: Settings, params: ReleaseParams, _progress: Progress) -> UnitChange:
    """Remove the drop-in; raises as ``adopt``, but not for a unit that is gone."""
    unit = unit_name(params.unit)
    path = _path(unit)
    present = _present(path)
    _check_untouched(unit, path, present, force=params.force)
    if not params.dry_run and present is not None:
        with _permission(path):
            path.unlink()
        with contextlib.suppress(OSError):  # somebody else's drop-ins are there
            path.parent.rmdir()
    return _change(unit, path, present, None, [], restart=params.restart, dry_run=params.dry_run)


def _check_ports(params: AdoptParams) -> None:
    if params.listen is None:
        for given, option in ((params.upstream, "--upstream"), (params.capture, "--capture")):
            if given is not None:
                raise UsageError(f"{option} needs --listen", remedy="say at which ADDR:PORT clients connect")
        return
    choose_way(
        params.capture,
        has_upstream=params.upstream is not None,
        holds=parse_every(params.every).each_request,
        hindrance=lambda: None,  # that is asked at each start
    )


def _as_told(soft: int, hard: int) -> tuple[str, str]:
    """Limits as `systemctl show` writes them."""
    words = ["infinity" if value == resource.RLIM_INFINITY else str(value) for value in (soft, hard)]
    return words[0], words[1]


def _path(unit: str) -> Path:
    return _UNITS / f"{unit}.d" / _DROP_IN


def _present(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return None


def _check_untouched(unit: str, path: Path, present: str | None, *, force: bool) -> None:
    if present is not None and not is_untouched(present) and not force:
        raise UnitUnfit(
            f"{path} was edited by somebody",
            cause=f"it is not as `relive adopt {unit}` wrote it",
            remedy="--force, if what was edited may be lost",
        )


def _program() -> Path:
    found = Path(sysconfig.get_path("scripts")) / "relive"
    if not found.exists():
        raise HostIncapable("there is no `relive` command beside this Python", cause=f"{found} is not there")
    return found


def _variables(settings: Settings) -> dict[str, str]:
    """What a command needs to find the same home as this one."""
    found = {}
    if settings.home != Settings.model_fields["home"].default:
        found["RELIVE_HOME"] = str(settings.home)
    if settings.tools is not None:
        found["RELIVE_TOOLS"] = str(settings.tools_path)
    return found


def _options(params: AdoptParams) -> list[str]:
    parse_every(params.every)
    options = ["--every", params.every, *_costs(params)]
    for name, value in (("--listen", params.listen), ("--upstream", params.upstream)):
        if value is not None:
            parse_address(value)
            options += [name, value]
    if params.capture is not None:
        options += ["--capture", params.capture.value]
    choice = choose_egress(params.record_egress, params.egress)
    if not choice.record_egress:
        return [*options, "--no-record-egress"]
    return options if choice.egress_if_possible else [*options, "--record-egress", "--egress", choice.egress]


def _costs(params: AdoptParams) -> list[str]:
    """What was said of pauses and micro-commits; the rest is left to the settings at each start."""
    if params.budget is not None:
        parse_budget(params.budget)
    said = {
        "--pause-limit": params.pause_limit,
        "--pause-share": params.pause_share,
        "--budget": params.budget,
    }
    options = [word for name, value in said.items() if value is not None for word in (name, f"{value}")]
    if params.micro is not None:
        options.append("--micro" if params.micro else "--no-micro")
    return options


def _write(path: Path, text: str) -> None:
    with _permission(path):
        path.parent.mkdir(mode=0o755, exist_ok=True)
        # systemd does not read what it is called meanwhile: a drop-in's name ends with ".conf".
        replace_file(path, text.encode(), durability=Durability.NONE, mode=0o644)


@contextlib.contextmanager
def _permission(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PermissionMissing(
            f"{path} cannot be changed", cause=error.strerror, remedy="be root"
        ) from error


def _change(
    unit: str,
    path: Path,
    before: str | None,
    after: str | None,
    said: list[str],
    *,
    restart: bool,
    dry_run: bool,
) -> UnitChange:
    changed = before != after
    following = [f"systemctl stop {unit}", "systemctl daemon-reload", f"systemctl start {unit}"]
    if restart and changed and not dry_run:
        reload_and_restart(unit)
        following = []
    old, new = (text.splitlines(keepends=True) if text is not None else [] for text in (before, after))
    old_name, new_name = (str(path) if text is not None else "/dev/null" for text in (before, after))
    return UnitChange(
        unit=unit,
        path=str(path),
        is_changed=changed,
        difference="".join(difflib.unified_diff(old, new, old_name, new_name)),
        remarks=said,
        next=following if changed else [],
    )


ADOPT = Operation(
    "adopt",
    AdoptParams,
    UnitChange,
    adopt,
    Faces(
        cli=("adopt",),
        rest=Route(
            "POST",
            "/units/adopted",
            frozenset({Scope.HOST}),
            "Have a systemd unit of the server's host run its service under Relive, by a drop-in",
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "Have a systemd unit run its service under Relive, by a drop-in; begin with `dry_run`.",
            is_for_host=True,
        ),
    ),
)
RELEASE = Operation(
    "release",
    ReleaseParams,
    UnitChange,
    release,
    Faces(
        cli=("release",),
        rest=Route(
            "POST",
            "/units/released",
            frozenset({Scope.HOST}),
            "Have a systemd unit of the server's host run its service without Relive again",
        ),
        mcp=Tool(
            Effect.DESTROYS, "Have a systemd unit run its service without Relive again.", is_for_host=True
        ),
    ),
)
