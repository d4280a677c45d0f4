"""``relive logs``: what a branch or a capsule wrote to its standard output and error."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.branches import copy_whole, log_streams, read_whole

__all__ = ["logs"]


def logs(
    name: Annotated[str, typer.Argument(help="A branch's id or a capsule's name")],
    stubs: Annotated[
        bool, typer.Option("--stubs", help="What the branch's stubs could not answer as recorded, instead")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the output of a branch or capsule: stdout on stdout, stderr on stderr"""
    streams, lost = log_streams(load_settings(), name)
    if as_json:
        texts = {kind: read_whole(path).decode(errors="replace") for kind, path in streams.items()}
        Terminal(as_json=True).answer(texts if lost is None else {**texts, "memory_lost": lost.as_json()})
        return
    if stubs:
        said = streams.get("stubs")
        if said is not None:
            copy_whole(said, sys.stdout.buffer)
        return
    copy_whole(streams["stdout"], sys.stdout.buffer)
    sys.stdout.buffer.flush()
    copy_whole(streams["stderr"], sys.stderr.buffer)
    sys.stderr.flush()
    if lost is not None:
        Terminal().failed(lost)
