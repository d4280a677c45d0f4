"""Which commit is probed next, and what is known then."""
