"""``relive stop``: end a branch, a capsule's service, or a watch."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.stops import StopParams
from relive.operations.stops import stop as stop_all

__all__ = ["stop"]


@from_params(StopParams, arguments=("names",), words={"all_branches": ("--all",)})
def stop(params: StopParams, as_json: AsJson = False) -> None:
    """End branches and remove what was theirs; end a capsule's service

    A service's first process gets the stop signal, then what it leaves gets SIGTERM, and what is left after the timeout is killed.
    The command returns when all of it has ended: the name and the port are free. Stopping what has ended is no error.
    Of what `relive watch` was told only the watch is ended: the container, process or unit runs on.

    `--all` ends branches, which are copies. Services are ended by their names, or all together by `--capsules`.
    """
    terminal = Terminal(as_json=as_json)
    done = stop_all(load_settings(), params, terminal)
    terminal.answer(done, "\n".join(done.stopped) or "nothing to stop")
