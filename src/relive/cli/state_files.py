"""What ``--write PATH=FILE`` names on a command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relive.errors import UsageError
from relive.operations.changing_state import parse_file

__all__ = ["with_contents"]


def with_contents(given: Sequence[str]) -> list[str]:
    """With the text of each file in the place of its name; raises UsageError."""
    found = []
    for one in given:
        path, name = parse_file(one)
        try:
            found.append(f"{path}={Path(name).read_text()}")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--write: {name} cannot be read",
                cause=getattr(error, "strerror", None) or str(error),
                remedy="write --write /path/in/the/service=FILE, with a file of text on this host",
            ) from error
    return found
