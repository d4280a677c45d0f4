"""What the files of a service were like at the moment of a commit, and what its branch finds, both seen while nothing moves.

CRIU loads a plugin of the tests (``tests/programs/frozen_plugin.c``): it looks at the files at the end of a dump, before the
service goes on, and in a branch before anything of it runs. So the two can be compared however busy a service is.
"""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

from .harness import PROGRAMS, TOOLS, Branch, Commit, Relive
from .likeness import Likeness
from .obedient import LIKENESS

__all__ = ["FrozenLook"]


class FrozenLook:
    """Looks at some directories of one service, at each of its commits and restores."""

    def __init__(self, relive: Relive, place: Path, *directories: Path) -> None:
        """``place``: an empty directory that the service sees at the same path, and does not touch."""
        self._relive, self._out = relive, place / "out"
        self._out.mkdir()
        self._taken = 0
        tools = place / "tools"
        plugins = tools / "plugins"
        plugins.mkdir(parents=True)
        for path in TOOLS.iterdir():
            if path.name != "plugins":
                (tools / path.name).symlink_to(path)
        for path in (TOOLS / "plugins").iterdir():
            shutil.copy(path, plugins)
        source = PROGRAMS / "frozen_plugin.c"
        target = plugins / "frozen_plugin.so"
        subprocess.run(
            ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", target, source], check=True
        )
        program = place / "likeness.py"
        shutil.copy(LIKENESS, program)
        look = shlex.join(["/usr/bin/python3", "-S", "-I", str(program), *(str(one) for one in directories)])
        (plugins / "frozen.sh").write_text(
            f'[ "$1" = restore ] || exec > {shlex.quote(str(self._out))}/$$.new\n{look}\n'
        )
        relive.environment["RELIVE_TOOLS"] = str(tools)
        relive.settings = relive.settings.model_copy(update={"tools": tools})

    def then(self) -> Likeness:
        """At the last commit; to be asked for once after each."""
        (found,) = self._out.iterdir()
        told: Likeness = json.loads(found.read_text())
        found.unlink()
        return told

    def commit(self, service: str) -> tuple[Commit, Likeness]:
        """Commit; and what there was."""
        commit = self._relive.commit(service, measured=False)
        return commit, self.then()

    def in_branch(self, branch: Branch, then: Likeness) -> tuple[Likeness, Likeness]:
        """What is expected there, and what there was before anything of it ran.

        Where CRIU has made and removed names for deleted files, directories have no times: these are put back after the look.
        """
        images = self._relive.settings.branches / branch.id / "images"
        told: Likeness = json.loads((images / "frozen.json").read_text())
        expected = copy.deepcopy(then)
        if any(images.glob("ghost-file-*.img")) or (images / "remap-fpath.img").exists():
            for one in (*told.values(), *expected.values()):
                if int(one["kind"], 8) == stat.S_IFDIR:
                    del one["mtime"]
        return expected, told
