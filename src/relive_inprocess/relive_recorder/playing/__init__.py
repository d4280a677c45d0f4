"""Answers from a recording. ``begin...`` and ``recognise`` are for others; ``player`` says what they promise."""

from __future__ import annotations

from typing import List

from relive_recorder.playing.player import begin, begin_started, recognise

__all__ = ["begin", "begin_afresh", "begin_started", "recognise"]


def begin_afresh(names: List[str]) -> None:
    """Called when a process that was not restored begins in a replay; see ``afresh``, which seldom has to be loaded."""
    from relive_recorder.playing import afresh

    afresh.begin(names)
