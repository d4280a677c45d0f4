"""The text of a program that is sent to another process: one module's, or that of a package's modules joined."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import ModuleType

__all__ = ["program_text"]


def program_text(program: ModuleType) -> str:
    """Python source that defines all that the program does, and imports nothing that lies beside it.

    A package names its modules in ``PARTS``, in the order in which they are joined. Their imports of each other are left out, since
    all names are in one place then; so each name is defined by one of them only.
    """
    file = Path(str(program.__file__))
    parts: tuple[str, ...] | None = getattr(program, "PARTS", None)
    return file.read_text() if parts is None else _joined(file.parent, parts)


@cache
def _joined(directory: Path, parts: tuple[str, ...]) -> str:
    return "\n\n".join(_without_relative_imports((directory / f"{one}.py").read_text()) for one in parts)


def _without_relative_imports(text: str) -> str:
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            lines[node.lineno - 1 : node.end_lineno] = [""] * len(lines[node.lineno - 1 : node.end_lineno])
    return "\n".join(lines) + "\n"
