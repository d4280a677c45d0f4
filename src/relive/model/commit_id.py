"""How a commit is named. It lies apart from what a commit holds, which takes long to import."""

from __future__ import annotations

from typing import NewType

__all__ = ["CommitId"]

CommitId = NewType("CommitId", str)  # 64 hexadecimal digits; made by the store only
