"""``python -m relive.agent.reviving DIRECTORY``: give the life whose directory is given another agent, if it has none."""

from __future__ import annotations

import sys
from pathlib import Path

from relive.agent.tending import tend_life
from relive.config import load_settings

__all__ = ["main"]


def main() -> int:
    """What ``native/supervisor.c`` runs."""
    tend_life(load_settings(), Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
