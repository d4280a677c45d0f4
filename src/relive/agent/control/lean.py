"""Import this first in a process that stays: what libraries import on the chance that somebody uses it is left out.

``structlog`` imports Rich and Twisted where they are installed, for outputs that no agent has: a sixth of an agent's memory, and a
quarter of the time in which it starts.
"""

from __future__ import annotations

import sys

__all__ = ["LEFT_OUT"]

LEFT_OUT = ("rich", "twisted")

for _name in LEFT_OUT:
    sys.modules.setdefault(_name, None)  # type: ignore[arg-type]  # "import" then fails as if it were not installed
