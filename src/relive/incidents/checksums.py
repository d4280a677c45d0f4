"""Checksums of what is written of incidents: a changed bit is an error, never a fact.

``N.json`` holds its own: the key ``checksum``, the BLAKE3 of its JSON without it, keys sorted, no blanks. For the files beside it
``N.sums`` has lines ``BLAKE3  NAME``, as ``b3sum`` writes and checks them. It is written last and removed before any of them is
replaced; so whoever finds it finds what it tells. Incidents of an older Relive have neither, and are read without a check.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from relive.errors import RecordingCorrupt
from relive.model.incident import Incident
from relive.store.objects import hash_bytes, hash_file

__all__ = ["damaged_beside", "decode_incident", "encode_incident", "known_sums", "read_beside", "sums_of"]

_CHECKSUM = "checksum"
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")


def encode_incident(incident: Incident) -> bytes:
    """The bytes of ``N.json``."""
    value = incident.model_dump(mode="json")
    return json.dumps(value | {_CHECKSUM: _checksum(value)}, indent=2).encode()


def decode_incident(data: bytes) -> Incident:
    """The incident that stands in ``N.json``.

    Raises:
        RecordingCorrupt: something has changed it, or it is none.
    """
    try:
        value = json.loads(data)
        recorded = value.pop(_CHECKSUM, None)
        if recorded is not None and recorded != _checksum(value):
            raise ValueError("it does not match its checksum")
        return Incident.model_validate(value)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RecordingCorrupt(
            "what is written of an incident is damaged; nothing of it is shown",
            cause=str(error).splitlines()[0],
            remedy="pull it from a remote to which it was pushed; `relive verify` names the file",
        ) from error


def _checksum(value: dict[str, Any]) -> str:
    return hash_bytes(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def sums_of(directory: Path, number: int) -> bytes:
    """The content for ``N.sums``: all that lies beside the incident now."""
    own = {f"{number}.json", f"{number}.sums"}
    names = [path for path in directory.glob(f"{number}.*") if path.is_file() and path.name not in own]
    names += [path for path in directory.glob(f"{number}.bodies/*") if path.is_file()]
    lines = [
        f"{hash_file(path)}  {path.relative_to(directory)}\n"
        for path in sorted(names)
        if path.suffix != ".new"
    ]
    return "".join(lines).encode()


def known_sums(directory: Path, number: int) -> dict[str, str]:
    """Checksums of the files beside an incident by their names; empty where an older Relive wrote none.

    Raises:
        RecordingCorrupt: the file of checksums itself is damaged.
    """
    try:
        lines = (directory / f"{number}.sums").read_bytes().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return {}
    found = [_LINE.fullmatch(line) for line in lines]
    if not all(found):
        raise _damaged(directory / f"{number}.sums", "a line of it is no checksum")
    return {match[2]: match[1] for match in found if match is not None}


def read_beside(directory: Path, number: int, what: str) -> bytes | None:
    """The bytes of ``N.WHAT``, checked; None where there is no such file and never was.

    Raises:
        RecordingCorrupt: something has changed or removed it.
    """
    path = directory / f"{number}.{what}"
    known = known_sums(directory, number).get(path.name)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if known is not None:
            raise _damaged(path, "it is gone") from None
        return None
    if known is not None and hash_bytes(data) != known:
        raise _damaged(path, "it does not match its checksum")
    return data


def damaged_beside(directory: Path, number: int) -> dict[str, str]:
    """What is wrong with the files beside an incident, by name; every byte is read."""
    try:
        sums = known_sums(directory, number)
    except RecordingCorrupt as error:
        return {f"{number}.sums": error.cause or error.message}
    found = {}
    for name, known in sums.items():
        try:
            if hash_file(directory / name) != known:
                found[name] = "it does not match its checksum"
        except OSError as error:
            found[name] = f"it cannot be read: {error.strerror}"
    return found


def _damaged(path: Path, cause: str) -> RecordingCorrupt:
    return RecordingCorrupt(
        f"what lies beside an incident is damaged: {path.name}",
        cause=f"{cause} ({path})",
        remedy="pull the incident from a remote to which it was pushed; `relive verify` names all that is damaged",
    )
