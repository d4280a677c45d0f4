"""Lazy restore: a branch runs before its memory is all there, and a page daemon brings pages in as they are touched."""
