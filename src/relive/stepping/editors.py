"""The entry of an editor that leads to a debug adapter: ``.vscode/launch.json``.

What stands there is kept, but for an entry of the same name. A file with comments cannot be kept as it is, and is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relive.errors import UsageError
from relive.kernel.atomic_write import Durability, replace_file

__all__ = ["entry_name", "write_entry"]


def entry_name(incident: int) -> str:
    """As the editor lists it."""
    return f"Relive: incident {incident}"


def write_entry(directory: Path, incident: int, port: int) -> Path:
    """Write, or replace, the entry; returns the file.

    Raises:
        UsageError: the file is no plain JSON, or cannot be written.
    """
    file = directory / ".vscode" / "launch.json"
    name = entry_name(incident)
    # ``debugServer``: the editor connects there, whatever adapter the type has.
    entry = {"name": name, "type": "debugpy", "request": "attach", "debugServer": port}
    document = _read(file, entry)
    configurations = document.setdefault("configurations", [])
    if not isinstance(configurations, list):
        raise _unreadable(file, "its configurations are no list", entry)
    document["configurations"] = [
        *(one for one in configurations if not isinstance(one, dict) or one.get("name") != name),
        entry,
    ]
    try:
        file.parent.mkdir(exist_ok=True)
        data = json.dumps(document, indent=4, ensure_ascii=False) + "\n"
        replace_file(file, data.encode(), durability=Durability.NONE, mode=0o644)
    except OSError as error:
        raise UsageError(f"{file} cannot be written", cause=str(error)) from error
    return file


def _read(file: Path, entry: dict[str, Any]) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except FileNotFoundError:
        return {"version": "0.2.0", "configurations": []}
    except (OSError, ValueError) as error:
        raise _unreadable(file, str(error), entry) from error
    if not isinstance(document, dict):
        raise _unreadable(file, "it holds no object", entry)
    return document


def _unreadable(file: Path, cause: str, entry: dict[str, Any]) -> UsageError:
    return UsageError(
        f"{file} is no plain JSON, and is left as it is",
        cause=cause,
        remedy=f"add by hand: {json.dumps(entry)}",
    )
