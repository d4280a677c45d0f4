"""``relive podman-args``: what ``podman run`` must be told so that a container's Python processes are recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from relive.cli.terminal import AsJson, Terminal
from relive.config import load_settings
from relive.operations.watching import options_for

__all__ = ["podman_args"]


def podman_args(
    image: Annotated[str, typer.Argument(help="The image that the container will be made of")],
    engine: Annotated[str, typer.Option(help="Which engine has the image: podman or docker")] = "podman",
    as_json: AsJson = False,
) -> None:
    """Print options that put the recorder into a new container

    For one container: podman run $(relive podman-args IMAGE) --name web IMAGE. Its Python processes then tell `relive watch`
    what they do, and of exceptions the frames. Two mounts and two variables, PYTHONPATH of the image kept.
    """
    found = options_for(load_settings(), image, engine=engine)
    Terminal(as_json=as_json).answer(found, " ".join(found.options))
