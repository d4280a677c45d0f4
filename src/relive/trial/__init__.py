"""Trying a fix on the very state and request that failed, and keeping both as a test: docs/try.md specifies it."""
