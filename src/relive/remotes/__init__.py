"""Sharing commits: to and from remotes (an object store or a directory), and as archives of one file.

A commit travels with the objects and packs it needs, its placement and its manifest, in this order, so that whoever finds a
manifest finds all it names. Its ancestors are not needed. The layout of a remote is that of ``remote_layout``, and with the
archive's it is specified in docs/format.md. Nothing is put into the store before its bytes match its name and its signer is
trusted.
"""
