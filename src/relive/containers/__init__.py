"""Containers of podman and Docker: commits of them, their checkpoint archives, and restoring both."""
