"""A container's commit as a container of podman again: other name, other ports, no way out, any number side by side."""
