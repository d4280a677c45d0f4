"""Sealed places in which commits live again, and the file-system plumbing that capsules share with them."""
