"""Configuration: ``relive.toml`` and ``RELIVE_*`` variables, and where everything lies under ``$RELIVE_HOME``.

This module is the only one that reads the environment. Order, the later wins: defaults, ``/etc/relive.toml``,
``./relive.toml``, environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from relive.errors import ConfigInvalid, PermissionMissing, reason_of

__all__ = [
    "STORE_KEY",
    "Settings",
    "give_store_keys",
    "given_store_keys",
    "is_s3_plain",
    "load_settings",
    "store_key_variable",
]

STORE_KEY = "RELIVE_STORE_KEY"
_KEY_SIZE = 32
_PREFIX = "RELIVE_"
# [bytes] A choice: with 100 MB the pause is 13 instead of 58 ms, and durable takes twice as long (benchmarks/pause.py).
# Where it begins to pay was not measured.
_PRE_COPY_FROM = 64 << 20
_FILES = (Path("/etc/relive.toml"), Path("relive.toml"))
_DIRECTORIES = ("store", "capsules", "branches", "incidents", "server")  # of a home
_OTHER_VARIABLES = {"RELIVE_CRIU_SUITE", STORE_KEY}  # the first is read by set-up only
_given_keys: tuple[bytes, ...] = ()


class Settings(BaseModel):
    """Every setting with its default; the environment name is ``RELIVE_`` and the name in capitals."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    home: Path = Field(Path("/var/lib/relive"), description="where all state of Relive lies")
    tools: Path | None = Field(
        None, description="CRIU and the small programs that set-up built; default: HOME/tools"
    )
    commit_limit: float = Field(
        20.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which the watchdog ends a commit and resumes the target",
    )
    pre_copy: bool | None = Field(
        None,
        description="copy memory while the service runs, and with it frozen only what has changed since: the pause of a commit "
        "then hardly grows with memory; without a value, where a service has more than 64 MiB",
    )
    micro: bool | None = Field(
        None,
        description="take commits of a service, of one process or several, on top of the one before: it stands still only while "
        "what has changed is copied; a full commit is taken by itself wherever that could not be right; without a value, with "
        "`--every request`, `--every change`, and times shorter than 1 s",
    )
    pause_limit: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds; a commit that is expected to stop a service for longer is not taken by the clock; 0: each is",
    )
    pause_share: float = Field(
        1.0,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="percent of the time that a service may stand still for commits by the clock, which come seldomer then; "
        "100: no cap",
    )
    budget: str = Field(
        "none",
        description="what the commits of a service may cost: bytes an hour by which the store grows, such as 2GB/h, a share of the "
        "service's time, such as 5%, or both with a comma; those by the clock come seldomer then; none: no cap",
    )
    restore_limit: float = Field(
        20.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds without any progress after which a restore is given up",
    )
    branch_memory: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of the machine's memory that a branch may take at most, where its capsule had no --memory",
    )
    branch_disk: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of what is free on the disk of RELIVE_HOME when a branch begins; when so much has gone, of bytes or of "
        "inodes, the branch is ended. 1: never",
    )
    branch_processes: int = Field(
        8192, gt=0, description="processes and threads that a branch may have at most"
    )
    ghost_limit: int = Field(
        1 << 30, gt=0, description="bytes of an open but deleted file that a commit may hold"
    )
    commit_file_limit: int = Field(
        4 << 30,
        gt=0,
        description="bytes of a file that a service has changed above which commits do not hold it, and say so",
    )
    base_file_limit: int = Field(
        256 << 20,
        gt=0,
        description="bytes of a file above which, where the file system cannot share blocks, no copy of it is made before its "
        "first change after a commit, for which the service would wait",
    )
    open_file_limit: int = Field(
        1 << 30,
        gt=0,
        description="bytes of open files copied into a commit of a process that is not in a capsule",
    )
    keep: int = Field(
        32,
        gt=0,
        description="newest commits that are kept of each capsule; tagged ones and incidents' always are",
    )
    keep_minutes: int = Field(60, ge=0, description="beside them one commit of each of so many minutes")
    keep_hours: int = Field(24, ge=0, description="and one of each of so many hours")
    keep_days: int = Field(7, ge=0, description="and one of each of so many days")
    keep_months: int = Field(12, ge=0, description="and one of each of so many months")
    keep_before_incident: int = Field(
        16,
        ge=0,
        description="of each of the last 32 incidents, so many commits before it, and one of each of as many minutes before it",
    )
    body_limit: int = Field(16 << 20, gt=0, description="bytes kept of one recorded request or answer body")
    answer_limit: int = Field(
        64 << 10,
        ge=16 << 10,
        le=1 << 30,
        description="where requests are recorded from packets: of an answer with a 2xx status whose head says that its body has "
        "more bytes, only the first 16384 are kept; as many as `body_limit`: all are",
    )
    inside_keep: int = Field(
        256 << 20,
        gt=0,
        description="bytes kept of the recording from inside a service; the oldest events go first",
    )
    ingress_keep: int = Field(
        1 << 30,
        gt=0,
        description="bytes kept of the recording of a service's requests, and as many of what incidents need of it; "
        "the oldest go first",
    )
    ingress_days: float = Field(
        7.0,
        gt=0,
        allow_inf_nan=False,
        description="days for which the recording of a service's requests is kept; what incidents need of it is kept longer",
    )
    output_keep: int = Field(
        256 << 20,
        gt=0,
        description="bytes of disk kept of each output of a service, and of its agent's log; the oldest go first",
    )
    egress_keep: int = Field(
        1 << 30,
        gt=0,
        description="bytes kept of the recording of what a service asked of others; the oldest events go first",
    )
    ring: int = Field(
        4 << 20,
        ge=1 << 16,
        le=1 << 30,
        description="bytes of shared memory for the last events of a Python process",
    )
    inline_limit: int = Field(
        64 << 10, gt=0, description="bytes of a body within an event; a longer one has a file of its own"
    )
    record_not: list[str] = Field(
        [], description="kinds of events that are not recorded inside services, such as clock or file-read"
    )
    secret_names: list[str] = Field(
        [],
        description="names of variables, headers and parameters whose values are secrets, beside those that look so",
    )
    secret_patterns: list[str] = Field([], description="regular expressions of texts that are secrets")
    failure_wait: float = Field(
        2.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds a failing thread stands still at most for its commit; 0: it goes on at once",
    )
    export_keys: Path | None = Field(
        None, description="file of the keys that archives are encrypted with, one a line, the newest first"
    )
    incident_pause: float = Field(
        30.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds after an incident's commit before the same failure takes another",
    )

    fork_server: bool = Field(
        True,
        description="fork the processes beside services from one that has imported Relive already, so that they share its memory",
    )

    tasks: int = Field(4, gt=0, description="tasks of `relive serve` that run at one time")
    tasks_waiting: int = Field(
        1000, gt=0, description="tasks that may wait for their turn; a server takes on no more"
    )

    mark: str | None = Field(
        None,
        pattern=r"\A[0-9a-f]{32}\z",
        description="what branches, runs and the commit made now carry, so that whoever asked finds them: 32 digits",
    )

    @field_validator("home", "tools", "export_keys")
    @classmethod
    def _must_be_absolute(cls, path: Path | None) -> Path | None:
        # The agent and its capsule have other working directories than the command that starts them.
        if path is not None and not path.is_absolute():
            raise ValueError("it must be an absolute path")
        return path

    @cached_property
    def tools_path(self) -> Path:
        """Directory of ``criu``, ``relive-init``, ``relive-watchdog``, ``prlimit_shim.so`` and ``criu.kdat``."""
        return self.tools if self.tools is not None else self.home / "tools"

    @property
    def pre_copy_from(self) -> int | None:
        """Bytes of private memory in no file from which on memory is copied ahead of a commit; None: never."""
        if self.pre_copy is None:
            return _PRE_COPY_FROM
        return 0 if self.pre_copy else None

    @property
    def store(self) -> Path:
        """Commits: objects, manifests, references and the index."""
        return self.home / "store"

    @property
    def capsules(self) -> Path:
        """One directory per capsule name, in it one per life."""
        return self.home / "capsules"

    @property
    def branches(self) -> Path:
        """One directory per living branch."""
        return self.home / "branches"

    @cached_property
    def containers(self) -> Path:
        """What containers need that podman restored: their networks and copies of volumes."""
        return self.home / "containers"

    @property
    def incidents(self) -> Path:
        """One JSON file per incident."""
        return self.home / "incidents"

    @property
    def runs(self) -> Path:
        """What replays and reproductions showed."""
        return self.home / "runs.sqlite"

    @property
    def server(self) -> Path:
        """What `relive serve` keeps: tasks, credentials, its audit log. Readable by its owner only."""
        return self.home / "server"


def load_settings(*, anyone: bool = False, **overrides: object) -> Settings:
    """Read the configuration.

    Args:
        anyone: the caller does not read what is in the home, so it may be another user's.

    Raises:
        ConfigInvalid: a value is not allowed or a name is unknown; the message names it.
        PermissionMissing: the home is another user's, and the caller is not root.
    """
    _refuse_unknown_variables()
    given_store_keys()
    # By hand and not by pydantic-settings, whose import takes as long as all the work of a short command.
    values = {**_from_files(), **_from_environment(), **overrides}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigInvalid(
            f"the setting {name!r} cannot be {first.get('input')!r}",
            cause=reason_of(first["msg"]),
            remedy="correct relive.toml or the RELIVE_* variable; docs/configuration.md lists all settings",
        ) from error
    if not anyone:
        _refuse_foreign_home(settings.home)
    return settings


def _refuse_foreign_home(home: Path) -> None:
    """Of what is somebody else's nobody but root can read all: what is not readable must not be taken for what is not there.

    Also within a home of one's own, where root was at work.
    """
    user = os.geteuid()
    if user == 0:
        return
    for place in (home, *(home / name for name in _DIRECTORIES)):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                owner = place.stat().st_uid
            except PermissionError:
                owner = -1
            if owner != user:
                raise PermissionMissing(
                    f"{place} belongs to another user",
                    cause=f"this is user {user}, who may not read all that is in it",
                    remedy="run it as root: sudo relive ...; or set RELIVE_HOME to a directory of your own",
                )


def _from_files() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for path in _FILES:
        try:
            values |= tomllib.loads(path.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:  # ValueError: no TOML, or no UTF-8
            raise ConfigInvalid(
                f"{path} cannot be read", cause=str(error), remedy=f"correct {path}; it is TOML"
            ) from error
    return values


def _from_environment() -> dict[str, Any]:
    """A list is written in JSON, as in relive.toml; anything else as it stands."""
    values: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        text = os.environ.get(f"{_PREFIX}{name.upper()}")
        if text is not None:
            values[name] = _read_list(name, text) if field.annotation == list[str] else text
    return values


def _read_list(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigInvalid(
            f"the setting {name!r} cannot be {text!r}",
            cause=str(error),
            remedy=f"""write {_PREFIX}{name.upper()} as a list: '["one", "another"]'""",
        ) from error


def _refuse_unknown_variables() -> None:
    """A misspelt RELIVE_HOME must not send a commit to the default one."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(_PREFIX) and name not in known:
            raise ConfigInvalid(
                f"there is no setting {name}",
                cause="Relive reads every variable that begins with RELIVE_",
                remedy="correct its name; docs/configuration.md lists all settings",
            )


def given_store_keys() -> Sequence[bytes]:
    """The store keys of ``RELIVE_STORE_KEY``, the one that seals first; none if it is not set.

    They are taken out of the environment of this process, so that nothing that it starts has them: no service, no branch, no
    command in one. Who starts an agent hands them on (``store_key_variable``).

    Raises:
        ConfigInvalid: the variable holds something else.
    """
    text = os.environ.pop(STORE_KEY, "")
    if text:
        give_store_keys(text)
    return _given_keys


def give_store_keys(text: str) -> None:
    """Use these from now on, written as in ``RELIVE_STORE_KEY``; but not instead of a first key that is not among them.

    Raises:
        ConfigInvalid: these are none; they are not shown.
    """
    global _given_keys  # noqa: PLW0603 - as the environment, they belong to the process
    try:
        keys = tuple(bytes.fromhex(one.strip()) for one in text.split(","))
    except ValueError:
        keys = ()
    if not keys or any(len(one) != _KEY_SIZE for one in keys):
        raise ConfigInvalid(
            f"{STORE_KEY} holds no store key",
            cause=f"a key is written as {2 * _KEY_SIZE} hexadecimal digits; several with commas between, the newest first",
            remedy="correct it; `openssl rand -hex 32` makes a key",
        )
    if not _given_keys or _given_keys[0] in keys:
        _given_keys = keys


def store_key_variable() -> dict[str, str]:
    """The variable for another process of Relive; empty if no key was given."""
    return {STORE_KEY: ",".join(one.hex() for one in _given_keys)} if _given_keys else {}


def is_s3_plain() -> bool:
    """The S3 endpoint in the environment is plain HTTP, on purpose. All else of AWS_* the S3 library reads by itself."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return endpoint.lower().startswith("http://")
