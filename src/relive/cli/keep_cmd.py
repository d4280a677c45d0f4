"""``relive keep``: the state before a failure and its request, as a test."""

from __future__ import annotations

from relive.cli.params_options import from_params
from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.keeping import KeepParams
from relive.operations.keeping import keep as keep_state

__all__ = ["keep"]


@from_params(
    KeepParams, arguments=("incident",), words={"output": ("--output", "-o"), "force": ("--force", "-f")}
)
def keep(params: KeepParams, as_json: AsJson = False) -> None:
    """Keep the state before a failure and its request as a test, with what is expected of the answer

    The file that is written names the commit, which a tag keeps from then on. `pytest --relive` runs it, and so does `relive
    kept`: with the code that is here then.
    """
    terminal = Terminal(as_json=as_json)
    made = keep_state(load_settings(), params, terminal)
    terminal.answer(made, made.file or made.content)
    terminal.status(f"Commit {made.commit[:10]} stays for as long as it has the tag {made.tag}.")
    if made.fails is not None:
        terminal.status(f"With the code that was committed it fails: {made.fails}.")
    else:
        terminal.hint("the committed code meets the expectation already, so that this test finds nothing out")
    if not made.code:
        terminal.hint(
            "it is tried with the code that was committed; --code AT=HERE names the directory whose code shall be tried"
        )
