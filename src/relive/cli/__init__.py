"""The ``relive`` command: one file per subcommand, no logic beyond reading arguments and showing values."""

from relive.cli.app import application, main

__all__ = ["application", "main"]
