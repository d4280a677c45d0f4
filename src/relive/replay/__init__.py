"""Replaying what was recorded against restored commits, and judging whether the same thing happened."""
