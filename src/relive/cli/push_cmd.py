"""``relive push``: send a commit to a remote."""

from __future__ import annotations

import time

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.model.quantities import rate, size
from relive.operations.remotes import Pushed, PushParams
from relive.operations.remotes import push as send

__all__ = ["push"]


@from_params(PushParams, arguments=("remote", "ref"), words={"force": ("--force", "-f")})
def push(params: PushParams, as_json: AsJson = False) -> None:
    """Send a commit to a remote, of which only what it does not have travels

    Prints the commit's id, by which any host can pull it. If REF is a tag, the remote gets the tag too. Incidents that refer to the
    commit go along with all that a replay needs, so that who pulls it can replay them; of an incident all its commits go. After a
    break run it again: it goes on where it ended. Endpoint and credentials of S3 come from the AWS_* variables.
    """
    terminal = Terminal(as_json=as_json)
    began = time.monotonic()
    pushed = send(load_settings(), params, terminal)
    terminal.answer(pushed, pushed.id)
    terminal.status(_sentence(pushed, time.monotonic() - began))
    if pushed.incidents:
        numbers = ", ".join(map(str, pushed.incidents))
        terminal.status(f"With it what replays of its incidents need: {numbers}.")
    if pushed.tag is not None:
        terminal.status(f"The tag {pushed.tag} names it there.")


def _sentence(pushed: Pushed, seconds: float) -> str:
    if not pushed.is_new and not pushed.sent_parts:
        return f"{pushed.remote} has it already."
    return (
        f"Pushed to {pushed.remote}: {size(pushed.sent_bytes)} in {pushed.sent_parts} parts, "
        f"{rate(pushed.sent_bytes, seconds)}; {pushed.held_parts} parts were there."
    )
