"""The file of a kept state: YAML that people read and edit, one for each test. docs/try.md specifies its fields.

It names a commit and a request of its recording, which stay in the store; it holds neither.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from relive.errors import KeptInvalid, UsageError, reason_of
from relive.model.expectation import parse_expectation
from relive.replay.plan import Pace

__all__ = [
    "SUFFIX",
    "VERSION",
    "CodePlace",
    "KeptState",
    "code_places",
    "parse_kept",
    "read_kept",
    "written_kept",
]

VERSION = 1
SUFFIX = ".relive.yaml"
_MOST = 1 << 20  # [bytes]
_HEAD = "# A state that Relive keeps as a test: pytest --relive, or relive kept FILE. See docs/try.md.\n"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CodePlace(_Part):
    """Which files the state is tried with.

    Attributes:
        at: directory in which the service had them, absolute.
        here: directory that has them now; relative to the kept file.
    """

    at: str = Field(pattern=r"^/.*")
    here: str = Field(min_length=1)


class KeptState(_Part):
    """One kept state.

    Attributes:
        name: of the file and of the test.
        service, asked, was: for people: whose it is, the request, what had happened.
        commit: its whole id where Relive wrote the file; any ref is understood.
        request: its number in the recording; None: of the incident that has the commit before it.
        incident: id that the incident has in every home, for people and for a remote.
        expect: of the answer, see ``model.expectation``; None: any.
        code: with which files; none: with the code that was committed.
        remote: where the commit is fetched from if it is not here.
        times: so often it is tried, and has to be as expected each time.
        ignore, on_miss: as those options of ``relive replay``.
        pace: when the recorded requests are sent again; ``fast``: as soon as their order allows.
        limit: seconds for the request.
        seed, delay: the schedule it is tried under, as those options of ``relive replay``.
    """

    relive_kept: int = VERSION
    name: str = Field(pattern=r"^[0-9A-Za-z_][0-9A-Za-z._-]{0,99}$")
    service: str = ""
    was: str = ""
    asked: str = ""
    commit: str = Field(min_length=1, max_length=400)
    request: int | None = Field(default=None, ge=0, le=(1 << 53) - 1)
    incident: str | None = None
    expect: str | None = None
    code: list[CodePlace] = []
    remote: str | None = None
    times: int = Field(default=1, ge=1, le=1000)
    ignore: list[str] = []
    on_miss: list[str] = []
    pace: Pace = Pace.RECORDED
    limit: float | None = Field(default=None, ge=0.1, le=86_400)
    seed: int | None = Field(default=None, ge=1, le=(1 << 53) - 1)
    delay: list[str] = Field(default=[], max_length=1000)

    @field_validator("relive_kept")
    @classmethod
    def _is_known(cls, version: int) -> int:
        if version != VERSION:
            raise ValueError(f"its format is {version}, and this Relive reads {VERSION}")
        return version

    @field_validator("expect")
    @classmethod
    def _can_be_expected(cls, expect: str | None) -> str | None:
        if expect is not None:
            try:
                parse_expectation(expect)
            except UsageError as error:
                raise ValueError(f"{error.message}: {error.cause}") from error
        return expect


def read_kept(path: Path) -> KeptState:
    """A file; raises KeptInvalid."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise KeptInvalid(f"{path} cannot be read", cause=str(error)) from error
    return parse_kept(text, str(path))


def parse_kept(text: str, called: str) -> KeptState:
    """The state of a file's text; ``called``: in errors. Raises KeptInvalid."""
    if len(text) > _MOST:
        raise KeptInvalid(f"{called} is no kept state", cause="it is too long")
    try:
        loaded: Any = yaml.safe_load(text)
        return KeptState.model_validate(loaded)
    except (yaml.YAMLError, ValidationError, RecursionError) as error:
        raise KeptInvalid(
            f"{called} is no kept state",
            cause=_cause(error),
            remedy="docs/try.md has its fields; `relive keep` writes one",
        ) from error


def _cause(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        reason = reason_of(first["msg"])
        return f"{where}: {reason}" if where else reason
    return " ".join(str(error).split())


def written_kept(state: KeptState) -> str:
    """Its text; what is as it is without being said is left out."""
    fields = state.model_dump(mode="json", exclude_defaults=True)
    body = yaml.safe_dump(
        {"relive_kept": state.relive_kept, **fields}, sort_keys=False, allow_unicode=True, width=110
    )
    return _HEAD + body


def code_places(state: KeptState, beside: Path) -> list[tuple[str, Path]]:
    """(directory of the service, directory here) of each; ``beside``: the directory that relative ones begin in."""
    return [(os.path.normpath(one.at), Path(os.path.normpath(beside / one.here))) for one in state.code]
