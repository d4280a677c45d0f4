"""Watching services that run already: any process by its pid, and units of systemd, which restart theirs.

All that watches is ``watching``'s. Here is what it asks: how a process or unit is (``process``, ``unit``), what it writes
to its output (``output``), whether it answers (``answering``), and what takes its commits (``taking``) with the files that it has
changed since the watch began (``following``, ``journal``).
"""
