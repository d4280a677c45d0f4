"""The ``relive`` command: one file per subcommand, no logic beyond reading arguments and showing values."""

from relive.cli.start import main

__all__ = ["main"]
