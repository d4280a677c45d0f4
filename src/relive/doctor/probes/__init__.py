"""The probes: each tries one thing and returns a ``Result``, or raises. They run in a process of their own."""
