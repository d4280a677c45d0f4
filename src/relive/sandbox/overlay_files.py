"""Laying files over the host's in a sandbox that is not there yet: into the upper layers that its overlays will have."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import UsageError
from relive.sandbox.rootfs import CoveredPoint, layer_directories

__all__ = ["Laying"]

# The device number of a character device that hides what is below it (overlayfs.rst of the kernel).
_WHITEOUT = 0


@dataclass(slots=True)
class Laying:
    """The layers of one sandbox.

    Attributes:
        layers: directory of the layers, see ``RootBuilder``.
        samples: (path in the sandbox, the file that must be seen there), by which can be proved that all was laid.
    """

    points: list[CoveredPoint]
    layers: Path
    samples: list[tuple[str, Path]] = field(default_factory=list)

    def place(self, path: str | Path) -> Path:
        """Where to put what shall appear at an absolute path; the directories above it are there then, alike the host's.

        Links on the way are followed as the host has them, but for the last part.

        Raises:
            UsageError: nothing can be laid there.
            OSError: there is no room.
        """
        parent, name = os.path.split(os.path.normpath(os.fspath(path)))
        real = Path(os.path.realpath(parent))
        fitting = [point for point in self.points if real.is_relative_to(point.point)]
        if not Path(path).is_absolute() or not name or not fitting or self._is_apart(real / name):
            raise UsageError(
                f"nothing can be laid over {str(path)!r} in a sandbox",
                cause="it is no absolute path, or lies where a sandbox has files of its own",
                remedy="name a path on a disk of this host",
            )
        point = max(fitting, key=lambda one: len(one.point))
        target = layer_directories(self.layers, point.slot)[0]
        target.mkdir(parents=True, exist_ok=True)
        host = Path(point.point)
        for part in real.relative_to(point.point).parts:
            host, target = host / part, target / part
            if not os.path.lexists(target):
                target.mkdir()
                _copy_likeness(host, target)
            elif not stat.S_ISDIR(target.lstat().st_mode):
                # A link that was laid before would lead out of the layer, into the host.
                raise UsageError(f"nothing can be laid over {str(path)!r}", cause=f"{part!r} is no directory")
        return target / name

    def _is_apart(self, path: Path) -> bool:
        below_a_mount = any(Path(point.point) == path for point in self.points)
        return below_a_mount or any(path.is_relative_to(top) for top in ("/proc", "/sys", "/dev", "/run"))

    def file(self, source: Path, path: str) -> None:
        """Lay a copy of a file over a path. It belongs to whom the host's file there does, else to whom its directory does.

        Raises:
            UsageError: see ``place``; there is no such source.
            OSError: there is no room.
        """
        if not source.is_file():
            raise UsageError(
                f"there is no file {str(source)!r}", remedy="name the file to be laid over the path"
            )
        target = self.place(path)
        shutil.copyfile(source, target)
        model = Path(path) if Path(path).exists() else Path(path).parent
        if model.exists():
            facts = model.stat()
            os.chown(target, facts.st_uid, facts.st_gid)
            target.chmod(stat.S_IMODE(facts.st_mode) if model.is_file() else 0o644)
        self.samples.append((path, target))

    def hide(self, path: str | Path) -> None:
        """Have a file of the host not be there; raises as ``place``."""
        target = self.place(path)
        if not os.path.lexists(target):
            os.mknod(target, stat.S_IFCHR, _WHITEOUT)

    def check(self, root: Path) -> None:
        """Prove, below the mounted root of the sandbox, that what was laid is seen; raises OSError."""
        for path, source in self._few():
            seen, meant = root / path.lstrip("/"), source.lstat()
            facts = seen.lstat() if os.path.lexists(seen) else None
            if facts is None or (facts.st_size, facts.st_mtime_ns) != (meant.st_size, meant.st_mtime_ns):
                raise OSError(f"{path} cannot be laid over what the host has there")

    def _few(self) -> Iterable[tuple[str, Path]]:
        return self.samples[-64:]


def _copy_likeness(model: Path, copy: Path) -> None:
    if model.is_dir():
        facts = model.stat()
        os.chown(copy, facts.st_uid, facts.st_gid)
        copy.chmod(stat.S_IMODE(facts.st_mode))
