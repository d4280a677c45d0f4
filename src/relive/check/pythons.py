"""A Python interpreter and what is installed for it, by its files alone: it is not run."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RECORDED", "SERVERS", "Python", "find_python"]

_NAME = re.compile(r"^(?:python|pypy)(?P<version>\d(?:\.\d+)?)?[dt]?$")
_LIBRARY = re.compile(r"^python(?P<version>3\.\d+)$")
_INFO = re.compile(r"^(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-]+)\.(?:dist|egg)-info$")
_FIRST_RECORDED, _LAST_RECORDED = (3, 8), (3, 14)
# Names of packages, normalised; docs/recorder.md says what of each.
RECORDED = frozenset(
    (
        "psycopg psycopg2 psycopg2_binary pymysql asyncpg redis httpx httpcore aiohttp requests "
        "urllib3 boto3 botocore sqlalchemy"
    ).split()
)
SERVERS = frozenset(
    (
        "fastapi starlette uvicorn hypercorn daphne flask django gunicorn werkzeug waitress gevent aiohttp "
        "rq celery"
    ).split()
)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter.

    Attributes:
        version: (3, 11); None where its files do not tell.
        is_pypy: not CPython, which alone is recorded.
        packages: normalised name to version.
    """

    path: Path
    version: tuple[int, int] | None
    is_pypy: bool
    packages: dict[str, str]

    @property
    def is_recorded(self) -> bool:
        """The recorder works inside of it."""
        return (
            self.version is not None
            and not self.is_pypy
            and _FIRST_RECORDED <= self.version <= _LAST_RECORDED
        )


def find_python(path: Path) -> Python | None:
    """None where the program's name is not that of a Python."""
    match = _NAME.match(path.name)
    if match is None:
        return None
    real = path.resolve()
    places = [path.parent.parent]  # of a virtual environment, before links are followed
    if not (places[0] / "pyvenv.cfg").exists():
        places = [real.parent.parent, path.parent.parent]
    version = _version_of_environment(places[0]) or _version_of_name(real.name)
    packages: dict[str, str] = {}
    for place in places:
        for library in _libraries(place, version):
            version = version or _version_of_name(library.name)
            for site in ("site-packages", "dist-packages"):
                packages = _installed(library / site) | packages
    return Python(path, version, real.name.startswith("pypy"), packages)


def _version_of_environment(place: Path) -> tuple[int, int] | None:
    """What ``pyvenv.cfg`` says."""
    with contextlib.suppress(OSError):
        for line in (place / "pyvenv.cfg").read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() in ("version", "version_info"):
                return _numbers(value.strip())
    return None


def _version_of_name(name: str) -> tuple[int, int] | None:
    match = re.search(r"(\d+\.\d+)", name)
    return _numbers(match[1]) if match else None


def _numbers(text: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _libraries(place: Path, version: tuple[int, int] | None) -> list[Path]:
    """``lib/python3.11`` of an installation; Debian's packages lie in ``lib/python3``."""
    found = []
    with contextlib.suppress(OSError):
        for child in sorted((place / "lib").iterdir()):
            match = _LIBRARY.match(child.name)
            if child.name == "python3" or (
                match and (version is None or _numbers(match["version"]) == version)
            ):
                found.append(child)
    return found


def _installed(site: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(site):
            match = _INFO.match(name)
            if match:
                found[re.sub(r"[-_.]+", "_", match["name"]).lower()] = match["version"]
    return found
