"""Tells, without a network, whether requirements.lock follows from what pyproject.toml requires now.

The lock's second line holds a hash of those requirements. Without arguments that line is printed (for
``scripts/lock.sh``); with ``--check`` the line in the lock must be the same, else the exit status is 1.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent


def stamp_line(pyproject: str) -> str:
    """The line that stands for everything the lock depends on, in whatever order and layout it is written."""
    data = tomllib.loads(pyproject)
    inputs = [
        data["project"]["requires-python"],
        sorted(data["project"]["dependencies"]),
        sorted(data["build-system"]["requires"]),
        {name: sorted(map(str, group)) for name, group in data["dependency-groups"].items()},
    ]
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return f"# requirements sha256: {digest}"


def main() -> int:
    """Print the line, or compare it with the lock's; returns the exit status."""
    line = stamp_line((REPO / "pyproject.toml").read_text())
    if "--check" not in sys.argv[1:]:
        print(line)
        return 0
    if line in (REPO / "requirements.lock").read_text().splitlines()[:3]:
        return 0
    print("Error: requirements.lock is older than the requirements in pyproject.toml.", file=sys.stderr)
    print("Hint: run make lock, then make setup.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
