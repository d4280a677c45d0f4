"""What a commit of a service would meet, found out by looking only: ``relive check``.

- ``snapshot``: what was seen of a process tree, as a value
- ``reading``: takes it from /proc, sock_diag and file systems; nothing is stopped, signalled or attached to
- ``rules``: functions from a snapshot to findings; a new kind of finding is one function there
- ``estimate``: what a commit will cost
- ``command``: what can be known of a command that does not run yet
- ``report``: all of it together, with a verdict
"""
