"""The files of an image for tests, packed as they are added: directories, links, and files of this machine.

Either it holds programs with all that they link to, or next to nothing (``host``): then this machine's ``/usr`` is mounted into
its containers, and it is made in no time.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Self

__all__ = ["Rootfs"]

_EMPTY = ("proc", "sys", "dev", "run", "etc", "usr", "var", "root", "home")
_OPEN = ("tmp", "data")  # where any user may write
_LINKS = ("bin", "sbin", "lib", "lib64")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"
_GROUP = "root:x:0:\napp:x:1000:\n"


class Rootfs:
    """An archive that an engine can import, whole when the block is left."""

    def __init__(self, archive: Path) -> None:
        self._file = tarfile.TarFile(archive, "w")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def host(self) -> None:
        """What a container needs into which ``/usr`` of this machine is mounted."""
        self.directories(*_EMPTY)
        self.directories(*_OPEN, mode=0o1777)
        for name in _LINKS:
            link = Path("/", name)
            if link.is_symlink():
                self.link(name, os.readlink(link))
        self.text("etc/passwd", _PASSWD)
        self.text("etc/group", _GROUP)

    def directories(self, *paths: str, mode: int = 0o755) -> None:
        """Empty ones."""
        for path in paths:
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            self._file.addfile(entry)

    def link(self, path: str, target: str) -> None:
        """A symbolic one."""
        entry = tarfile.TarInfo(path)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._file.addfile(entry)

    def text(self, path: str, text: str) -> None:
        """A file that everybody may read."""
        entry = tarfile.TarInfo(path)
        entry.size = len(text.encode())
        self._file.addfile(entry, io.BytesIO(text.encode()))

    def file(self, source: Path, path: str) -> None:
        """A file of this machine, at another path."""
        self._file.add(source, path)

    def programs(self, *paths: Path) -> None:
        """Files of this machine at their own paths, with the libraries that they link to."""
        for path in sorted({*paths, *_libraries(*paths)}):
            self._file.add(path.resolve(), str(path))


def _libraries(*paths: Path) -> list[Path]:
    programs = [path for path in paths if _is_elf(path)]
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    # Where it was asked of several, each is named before its libraries, with a colon behind.
    return [Path(word) for word in said.split() if word.startswith("/") and not word.endswith(":")]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
