"""Docker's containers as targets: found by Docker's API, dumped by Relive's CRIU as runc would do it.

What ``containers.podman`` does for podman's, with the same parts. Docker's own checkpoints (an experimental feature of its engine)
are not needed, and not used: they stop for longer, and know nothing of files.
"""
