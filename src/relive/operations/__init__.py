"""What every face can ask for: one noun a file, plain values in and out, the same functions for CLI, REST, MCP and dashboard.

A function takes the settings, its *params* (a value) where it has one, and a ``Progress``, and returns a value. Those that act are
also an ``Operation``, by which a face with threads of its own has them done in a process apart (``subprocess_runner``).
"""
