"""The service that keeps more and more: what stays is what its page says, and its fix ends it."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sessions"


def kept_after_logout(program: Path) -> tuple[int, int]:
    """How many sessions of three users who have signed out are left, by token and by user."""
    service = runpy.run_path(str(program))
    for user in ("ada", "bob", "eve"):
        token = service["login"](user)["token"]
        assert service["whoami"](token) == {"user": user}
        service["logout"](user)
    return len(service["sessions"]), len(service["signed_in"])


def test_sessions_stay_when_users_sign_out_and_go_with_the_fix(tmp_path: Path) -> None:
    fixed = tmp_path / "examples" / "sessions" / "app.py"
    fixed.parent.mkdir(parents=True)
    shutil.copy(EXAMPLE / "app.py", fixed)
    subprocess.run(["patch", "-p1", "-s", "-i", EXAMPLE / "fix.patch"], cwd=tmp_path, check=True)
    assert kept_after_logout(EXAMPLE / "app.py") == (3, 0)
    assert kept_after_logout(fixed) == (0, 0)
