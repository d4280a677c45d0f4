"""Branches of containers' commits: what their engine set up around the processes, set up again without the engine.

What the commit tells of it is read from the members of its checkpoint archive (``specification``). The root file system is the
image's (``image``), over it what the container had changed (``changes``), over that an empty layer. CRIU restores the mount, PID,
IPC and UTS namespaces from its images; what came from outside of them, bind mounts above all, is prepared for it (``binds``,
``container_root``).
"""
