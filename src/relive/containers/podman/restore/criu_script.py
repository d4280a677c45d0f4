"""The command `criu` that a runtime finds in its PATH: a script around Relive's CRIU, made for one restore."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_errors import read_error_lines

__all__ = ["CriuForRuntime"]

_NULL = "/dev/null"
_STRANGE = re.compile(r"[\s\"'#\\\]]")  # what CRIU's configuration or its options would read otherwise
_SCRIPT = """\
#!/bin/sh
# Runs in the container's bundle, as its runtime does, where CRIU is to restore from ./checkpoint.
# Who lays the page files out holds this lock until they are there, or until it died; in the meantime podman gets so far.
if [ -d checkpoint ]; then
    flock --shared {gate} true && [ -e {opened} ] || exit 1
fi
# Page files are linked in here: they need not go through an archive.
for pages in {images}/pages-*.img; do
    target=checkpoint/${{pages##*/}}
    [ -e "$pages" ] && [ -d checkpoint ] && [ ! -e "$target" ] || continue
    ln "$pages" "$target" 2>/dev/null || cp --reflink=auto "$pages" "$target" || exit 1
done
# The log lies in the bundle, which podman removes with a container that failed; what was linked before it is opened stays.
: >> restore.log && ln -f restore.log {log} 2>/dev/null
export CRIU_CONFIG_FILE={configuration}
exec {enter}env LD_PRELOAD={shim} {criu} "$@"
"""


class CriuForRuntime:
    """Writes the script to a new ``directory``, which is to stand first in the runtime's PATH.

    Whoever runs it waits for ``open``, or fails when the process that made it has ended without that or called ``close``.
    """

    def __init__(
        self, tools: CriuTools, *, images: Path, network: Path | None, masked: Iterable[str], directory: Path
    ) -> None:
        """Write it.

        Args:
            images: where page files are laid out.
            network: file of the network namespace that CRIU enters first; None: it stays where it is started.
            masked: paths of the container that nobody shall read.
        """
        self.directory = directory
        self._log = directory / "restore.log"
        directory.mkdir()
        gate, self._opened = directory / "gate", directory / "opened"
        self._gate = os.open(gate, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        configuration = directory / "criu.conf"
        configuration.write_text("".join(f"{line}\n" for line in ("tcp-close", *_masks(masked))))
        script = directory / "criu"
        script.write_text(
            _SCRIPT.format(
                gate=quote(str(gate)),
                opened=quote(str(self._opened)),
                images=quote(str(images)),
                log=quote(str(self._log)),
                configuration=quote(str(configuration)),
                enter="" if network is None else f"nsenter --net={quote(str(network))} -- ",
                shim=quote(str(tools.prlimit_shim)),
                criu=quote(str(tools.criu)),
            )
        )
        script.chmod(0o755)

    def open(self) -> None:
        """The page files are there."""
        self._opened.touch()
        self.close()

    def close(self) -> None:
        """Let nobody wait any longer; doing it twice is no error."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def errors(self) -> list[str]:
        """What CRIU reported, as ``failures.explain`` reads it; empty where it was not reached."""
        return read_error_lines(self._log)


def _masks(paths: Iterable[str]) -> Iterator[str]:
    """What covers masked files, by the name that runc has CRIU write and by those of crun; a restore asks for those it finds.

    The runtime names its own too, but need not be the one that ran the container.
    """
    for name in (_NULL, *paths):
        if not _STRANGE.search(name):
            yield f"external mnt[{name}]:{_NULL}"
