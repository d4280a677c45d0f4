"""The environment of a fresh process: as the error package has it, with what the caller supplies for scrubbed secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.config import Settings
from relive.errors import UsageError
from relive.model.launch import Launch
from relive.replay.fresh.request import PLACEHOLDER
from relive.sandbox.rootfs import INPROCESS_DIRECTORY, RINGS_DIRECTORY

__all__ = ["Environment", "environment_for", "parse_variable", "read_variables"]

_NAME = re.compile(r"[^=\x00]{1,4096}")
_CUT_AT = 1000  # [characters] the recorder keeps no more of a value
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Environment:
    """Attributes:
    placeholders: names of variables in which a placeholder stands for a secret.
    notes: what else of it is not as it was.
    """

    variables: dict[str, str]
    placeholders: list[str]
    notes: list[str]


def parse_variable(text: str) -> tuple[str, str]:
    """Read NAME=VALUE; raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or "\0" in value:
        raise UsageError(f"{text!r} is no variable", remedy="write NAME=VALUE")
    return name, value


def read_variables(path: Path) -> dict[str, str]:
    """Read a file of NAME=VALUE lines; empty lines and those that begin with # are passed over.

    Raises:
        UsageError: it cannot be read, or a line is none.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read", cause=str(error)) from None
    kept = (line.strip() for line in lines)
    return dict(parse_variable(line) for line in kept if line and not line.startswith("#"))


def environment_for(
    recorded: Mapping[str, str],
    launch: Launch | None,
    settings: Settings,
    supplied: Mapping[str, str],
    answers: tuple[str, str],
) -> Environment:
    """The variables for the fresh process, the recorder's own among them.

    Args:
        recorded: those of the process that failed, as far as they are kept.
        supplied: over the recorded ones.
        answers: names of the files that the recorder plays, see ``relive_recorder/playing/afresh.py``.
    """
    recorded = {name: value for name, value in recorded.items() if _NAME.fullmatch(name)}
    variables = {**recorded, **supplied}
    notes = []
    if not recorded:
        notes.append("no environment is known: the program gets only what was supplied, and a PATH")
    cut = [name for name, value in recorded.items() if len(value) >= _CUT_AT and name not in supplied]
    if cut:
        notes.append(f"the recorder kept only the first {_CUT_AT} characters of {', '.join(sorted(cut))}")
    placeholders = sorted(name for name, value in variables.items() if PLACEHOLDER.search(value))
    variables.setdefault("PATH", _PATH)
    variables["PYTHONPATH"] = _with_recorder(variables.get("PYTHONPATH", ""))
    variables["RELIVE_RECORDER"] = json.dumps(_options(launch, settings, answers))
    return Environment(variables, placeholders, notes)


def _with_recorder(path: str) -> str:
    here = str(INPROCESS_DIRECTORY)
    return ":".join([here, *(part for part in path.split(":") if part and part != here)])


def _options(launch: Launch | None, settings: Settings, answers: tuple[str, str]) -> dict[str, object]:
    known = launch if launch is not None else settings
    return {
        "rings": str(RINGS_DIRECTORY),
        "ring_bytes": known.ring,
        "inline_bytes": known.inline_limit,
        "body_bytes": known.body_limit,
        "off": known.record_not,
        "secret_names": known.secret_names,
        "secret_patterns": known.secret_patterns,
        "wait_ms": 0,
        "answers": list(answers),
    }
