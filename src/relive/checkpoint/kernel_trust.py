"""Whether micro-commits believe what the kernel's own objects tell (``native/micro/unchanged.h``), or ask for everything.

They are believed until something that was asked differed from what they told (``native/micro/audit.h``): then by no agent of this
host any more, as long as the same kernel runs. That is kept in a file of Relive's home; who removes it has them believed again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from relive.kernel.atomic_write import Durability, replace_file

__all__ = ["KernelTrust", "running_kernel"]


class KernelTrust:
    """Of one home."""

    def __init__(self, home: Path) -> None:
        self.path = home / "kernel-objects-distrusted.json"

    def lost(self) -> str | None:
        """Why the kernel that runs is not believed; None: it is."""
        try:
            said = json.loads(self.path.read_text())
            is_this = said["kernel"] == running_kernel()
            return str(said["reason"]) if is_this else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            return f"{self.path} cannot be read: {error}"

    def lose(self, reason: str) -> None:
        """From now on the kernel that runs is not believed.

        Raises:
            OSError: that cannot be kept.
        """
        said = json.dumps({"kernel": running_kernel(), "reason": reason}) + "\n"
        replace_file(self.path, said.encode(), durability=Durability.CONTENT, shared=True)


def running_kernel() -> str:
    """As it names itself; another build of the same release is another kernel."""
    about = os.uname()
    return f"{about.release} {about.version}"
