"""The recorder at the border of a capsule: what a service asks of others."""
