"""What ``config.dump`` and ``spec.dump`` tell of a container. They come from elsewhere, so only plain text of them is kept."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from relive.containers.archive.layout import CONFIG, CRI_NAME, NO_CONTAINER, SPEC
from relive.errors import ArchiveInvalid
from relive.model.commit import ContainerFacts
from relive.remotes.archive import invalid

__all__ = ["Container", "read_container"]

_JSON_MOST = 16 << 20  # [bytes]
_TEXT_MOST = 1024  # [characters]
_ARGUMENTS_MOST = 1 << 20  # [characters] of a command line
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,253}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_SECONDS_MOST = (1 << 63) // 1_000_000_000  # in nanoseconds they would be too large for SQLite
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENGINES = {"libpod": "podman", "cri-o": "cri-o"}
_NAMES = (CRI_NAME, "io.kubernetes.container.name")


@dataclass(frozen=True, slots=True)
class Container:
    """A container.

    Attributes:
        command: its arguments; empty where they are not told.
        checkpointed_ns: when it was checkpointed, since the epoch; None where its engine does not tell.
    """

    name: str
    facts: ContainerFacts
    command: list[str]
    checkpointed_ns: int | None


def read_container(archive: str, config: Path, spec: Path) -> Container:
    """Read both files; raises ArchiveInvalid where they cannot be what an engine wrote."""
    return _Reader(archive, _object(archive, CONFIG, config), _object(archive, SPEC, spec)).container()


def _object(archive: str, name: str, path: Path) -> dict[str, Any]:
    if path.stat().st_size > _JSON_MOST:
        raise invalid(archive, f"{name} is too large")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise invalid(archive, f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise invalid(archive, f"{name} is no JSON object")
    return found


class _Reader:
    def __init__(self, archive: str, config: dict[str, Any], spec: dict[str, Any]) -> None:
        self._archive = archive
        self._config = config
        self._spec = spec
        annotations = spec.get("annotations")
        self._annotations = annotations if isinstance(annotations, dict) else {}

    def container(self) -> Container:
        if NO_CONTAINER in self._annotations:
            raise ArchiveInvalid(
                f"{self._archive} cannot be imported",
                cause="it was written to be looked into: what it holds is no container",
                remedy="export the commit again, without --format",
            )
        identifier = self._text("id")
        if not _NAME.fullmatch(identifier):
            raise self._invalid("id", identifier)
        facts = ContainerFacts(
            engine=self._engine(),
            id=identifier,
            image=self._text("rootfsImageName"),
            runtime=self._text("runtime"),
            created=self._text("createdTime"),
        )
        return Container(self._name(), facts, self._command(), self._checkpointed_ns())

    def _name(self) -> str:
        name = self._text("name") or next(
            (self._annotations[key] for key in _NAMES if key in self._annotations), ""
        )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._invalid("name", name)
        return name

    def _engine(self) -> str:
        """As checkpointctl tells them apart: containerd does not name itself."""
        manager = self._annotations.get("io.container.manager")
        if isinstance(manager, str) and manager in _ENGINES:
            return _ENGINES[manager]
        return "containerd" if CRI_NAME in self._annotations else "unknown"

    def _text(self, key: str) -> str:
        value = self._config.get(key) or ""
        if not isinstance(value, str) or len(value) > _TEXT_MOST or not value.isprintable():
            raise self._invalid(key, value)
        return value

    def _command(self) -> list[str]:
        process = self._spec.get("process")
        found = (process.get("args") if isinstance(process, dict) else None) or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise invalid(self._archive, f"{SPEC} names a command that is none")
        try:
            encoded = [one.encode() for one in found]
        except UnicodeEncodeError:
            raise invalid(self._archive, f"{SPEC} names a command that is no Unicode") from None
        if sum(map(len, encoded)) > _ARGUMENTS_MOST:
            raise invalid(self._archive, f"{SPEC} names a command that is too long")
        return found

    def _checkpointed_ns(self) -> int | None:
        text = self._text("checkpointedTime") or self._text("checkpointedAt")
        match = _TIME.fullmatch(text)
        if match is None:
            return None
        try:
            seconds = (datetime.fromisoformat(match[1] + match[3]) - _EPOCH) // timedelta(seconds=1)
        except (ValueError, OverflowError):
            return None
        if not 0 < seconds < _SECONDS_MOST:
            return None
        return seconds * 1_000_000_000 + int((match[2] or "").ljust(9, "0"))

    def _invalid(self, key: str, value: object) -> ArchiveInvalid:
        return invalid(self._archive, f"{CONFIG} names a container whose {key} is {str(value)[:80]!r}")
