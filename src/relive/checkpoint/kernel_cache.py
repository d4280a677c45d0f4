"""CRIU's cache of what the kernel can do (``criu.kdat``), without which every call spends 35 ms on finding out.

CRIU reads the file wherever it lies but writes it on a tmpfs only. Set-up makes it once; here it is put where CRIU looks:
the run directory it was built with, named by the second line of ``criu.origin`` in the tools directory.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

from relive.kernel.atomic_write import Durability, replace_file

__all__ = ["kerndat_files", "kerndat_path", "place_kerndat"]


def kerndat_files(tools: Path) -> tuple[Path, ...]:
    """All that ``place_kerndat`` reads."""
    return tools / "criu.origin", tools / "criu.kdat.key", tools / "criu.kdat"


@lru_cache
def kerndat_path(tools: Path) -> Path:
    """Where this CRIU looks for its cache."""
    origin = tools / "criu.origin"
    if origin.exists():
        for line in origin.read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip().lower() == "rundir":
                return Path(value.strip()) / "criu.kdat"
    return Path("/run/criu.kdat")


def place_kerndat(tools: Path, root: Path = Path("/")) -> bool:
    """Put the cache where CRIU, seeing ``root`` as its root, will look; True when one is there afterwards.

    A cache made for another kernel is not used: its findings would be wrong.
    """
    source, target = tools / "criu.kdat", root / kerndat_path(tools).relative_to("/")
    if not _fits_kernel(tools):
        return target.exists()
    if target.exists() and target.read_bytes() == source.read_bytes():
        return True
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, source.read_bytes(), durability=Durability.NONE, shared=True)
    return True


@lru_cache
def _fits_kernel(tools: Path) -> bool:
    key = tools / "criu.kdat.key"
    return (
        (tools / "criu.kdat").exists()
        and key.exists()
        and key.read_text().split()[:1] == [platform.release()]
    )
