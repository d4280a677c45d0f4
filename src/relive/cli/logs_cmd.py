"""``relive logs``: what a branch or a capsule wrote to its standard output and error."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.branches import log_streams, mask_of_output, masked_lines

__all__ = ["logs"]


def logs(
    name: Annotated[str, typer.Argument(help="A branch's id or a capsule's name")],
    stubs: Annotated[
        bool, typer.Option("--stubs", help="What the branch's stubs could not answer as recorded, instead")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the output of a branch or capsule: stdout on stdout, stderr on stderr

    Secrets are masked. On a terminal what would steer it is shown as an escape.
    """
    settings, terminal = load_settings(), Terminal(as_json=as_json)
    streams, lost = log_streams(settings, name)
    mask = mask_of_output(settings, name)
    if as_json:
        texts = {
            kind: b"".join(masked_lines(path, mask)).decode(errors="replace")
            for kind, path in streams.items()
        }
        terminal.answer(texts if lost is None else {**texts, lost.code.replace("-", "_"): lost.as_json()})
        return
    if stubs:
        said = streams.get("stubs")
        if said is not None:
            terminal.output(masked_lines(said, mask))
        return
    terminal.output(masked_lines(streams["stdout"], mask))
    terminal.output(masked_lines(streams["stderr"], mask), errors=True)
    if lost is not None:
        terminal.failed(lost)
