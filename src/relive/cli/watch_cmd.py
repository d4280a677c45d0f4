"""``relive watch``: what ``relive run`` does for a service, for a container or service that runs already."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.watching import WatchParams
from relive.operations.watching import watch as begin

__all__ = ["watch"]


@from_params(WatchParams, arguments=("target",))
def watch(params: WatchParams, as_json: AsJson = False) -> None:
    """Watch a container or service that runs already: committed, recorded, its failures seen

    Returns at once; an agent of its own goes on watching, through restarts of a container or unit, and to the end of a process.
    What is watched depends on none of it. `relive stop` ends the watch, and it runs on.

    `--record PORT` records its requests from the packets of its port, also on connections that exist; nobody is pointed elsewhere.
    With `--capture proxy` or `--every request` new connections to a service's port reach a recording proxy instead, those that
    exist are left alone, and should the proxy end, connections reach the service again.
    """
    terminal = Terminal(as_json=as_json)
    begun = begin(load_settings(), params, terminal)
    terminal.answer(begun, begun.target)
    where = ""
    if begun.listen is not None:
        where = (
            f"; clients go to {begun.listen}"
            if params.record is None
            else f"; requests to {begun.listen} are recorded"
        )
    terminal.status(f"{begun.target} is watched{where}.")
    for sentence in begun.missing:
        terminal.status(sentence)
