"""podman's containers as targets: found with podman's own command, dumped by Relive's CRIU as runc would do it.

Neither podman nor runc takes part in the commit itself: their checkpoint freezes by control group, locks the network with iptables
and copies files when the container runs again. What they would have written beside CRIU's images is read from podman's database
and from the container's layers.
"""
