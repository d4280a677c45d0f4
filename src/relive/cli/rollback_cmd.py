"""``relive rollback``: put a branch back to its commit."""

from __future__ import annotations

from relive.cli.giving_up import taken_back_when_asked_to_end
from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import duration
from relive.operations.rolling_back import RollbackParams
from relive.operations.rolling_back import rollback as roll_back

__all__ = ["rollback"]


@from_params(RollbackParams, arguments=("branch", "ref"))
def rollback(params: RollbackParams, as_json: AsJson = False) -> None:
    """Put a branch back to its commit, or to another of the same life; it keeps its id, name and ports

    All that happened in it is gone: memory, files, what it said, and what `--set` or `--write` had changed. A branch whose service
    has ended comes to life again. The clock, the clients and the answers of others are as the branch was restored with.

    The commit is restored beside the branch and then takes its place. If that fails, the branch goes on as it was; connections to
    its published ports are closed. From then on it is put back in place, within milliseconds: what has changed is written. Where
    something has changed that cannot be put back, it is restored anew, and the reason is said.
    """
    terminal = Terminal(as_json=as_json)
    with taken_back_when_asked_to_end():
        branch = roll_back(load_settings(), params, terminal)
    terminal.answer(branch, branch.id)
    terminal.status(f"Rolled {branch.name} back to {branch.commit[:10]} in {duration(branch.restore_us)}.")
