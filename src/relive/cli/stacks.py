"""Stacks as lines for people: the innermost frames, and what was raised."""

from __future__ import annotations

from relive.model.outcome import Stack

__all__ = ["stack_lines"]

_FRAMES_SHOWN = 6


def stack_lines(stack: Stack) -> list[str]:
    """Indented lines, innermost frame last; how many outer frames were left out is said."""
    frames = stack.frames[-_FRAMES_SHOWN:]
    left_out = len(stack.frames) - len(frames)
    lines = [f"  ... {left_out} outer frames"] if left_out else []
    return [
        *lines,
        *(f"  {file}:{line} in {function}" for file, line, function in frames),
        f"  {stack.exception}",
    ]
