"""Checkpoint archives of containers, as podman, CRI-O and containerd (through the kubelet) write them, and checkpointctl reads.

A tar of one container: ``config.dump`` (what its engine knows of it), ``spec.dump`` (its OCI configuration), ``checkpoint/``
(CRIU's images), ``rootfs-diff.tar`` and ``deleted.files`` (what it changed in its root file system), and more that only its
engine understands. How a commit holds that is specified in docs/format.md.
"""
