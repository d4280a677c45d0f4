"""Answers from a recording. ``begin`` and ``recognise`` are for others; ``player`` says what they promise."""

from __future__ import annotations

from relive_recorder.playing.player import begin, recognise

__all__ = ["begin", "recognise"]
