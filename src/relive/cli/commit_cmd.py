"""``relive commit``: commit a capsule, a container or any process tree."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import duration, size
from relive.operations.committing import CommitParams
from relive.operations.committing import commit as take_commit

__all__ = ["commit"]


@from_params(CommitParams, arguments=("target",))
def commit(params: CommitParams, as_json: AsJson = False) -> None:
    """Commit the live state of a target, which runs on

    Prints the commit's id. Says how long the target stood still (pause) and when the commit was safe (durable).

    A container's commit holds its memory and what it changed in its file system; its image and its volumes by choice. The
    container is podman's as root sees it, by name or id.

    A branch's commit holds what `--set`, `--write` or `relive exec` have changed there, and lasts when the branch
    has ended. It stands where its parent does in the recording, so `relive replay` sends it what came after that.
    """
    terminal = Terminal(as_json=as_json)
    taken = take_commit(load_settings(), params, terminal)
    terminal.answer(taken, taken.id)
    terminal.status(
        f"Committed {taken.name}: pause {duration(taken.pause_us)}, durable after {duration(taken.durable_us)}, "
        f"{size(taken.bytes)}, of which {size(taken.new_bytes)} new."
    )
