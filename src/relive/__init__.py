"""Relive: a time machine for running services. The rooms and their order are in docs/architecture.md."""

import os
import sys

__version__ = "0.1.0"


def _look_last_where_the_service_looks_first(begun_as: list[str], variable: str | None) -> None:
    """Have a process of Relive's own find its modules before those of ``PYTHONPATH``, which is meant for the service.

    The variable itself stays, since the service inherits it. Relive may lie in one of its directories, so they are still looked in.

    Args:
        begun_as: the words that the process was started with.
    """
    if not variable or not _is_ours(begun_as):
        return
    theirs = {os.path.abspath(entry) for entry in variable.split(os.pathsep)}  # noqa: PTH100 - as site(5) makes them
    sys.path[:] = sorted(sys.path, key=lambda entry: entry in theirs)


def _is_ours(words: list[str]) -> bool:
    """``relive``, or ``python -m relive.x``; not a process that imports a part of Relive, as pytest does with its plugin."""
    if "-m" in words[:4]:
        return (
            words[words.index("-m") + 1 :][:1] != []
            and words[words.index("-m") + 1].split(".")[0] == "relive"
        )
    return any(os.path.basename(word) == "relive" for word in words[:3])  # noqa: PTH119 - pathlib takes as long as all of this


_look_last_where_the_service_looks_first(sys.orig_argv, os.environ.get("PYTHONPATH"))
