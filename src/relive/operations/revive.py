"""``python -m relive.operations.revive DIRECTORY``: give the life whose directory is given another agent, if it has none."""

from __future__ import annotations

import sys
from pathlib import Path

from relive.config import load_settings
from relive.operations.respawning import tend_life

__all__ = ["main"]


def main() -> int:
    """What ``native/supervisor.c`` runs."""
    tend_life(load_settings(), Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
