"""Relive: a time machine for running services. The rooms and their order are in docs/architecture.md."""

__version__ = "0.1.0"
