"""The moment of failure: what is seen of it, what is kept of it, and standing still for its commit."""
