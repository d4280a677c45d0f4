"""Keeping commits: immutable objects named by their content, manifests that refer to them, names, and an index.

Layout below ``$RELIVE_HOME/store`` (docs/format.md):

- ``format``: ``{"version": 1}``
- ``objects/ab/cdef...``: bytes named by their BLAKE3, never changed
- ``manifests/ID.json``: canonical JSON of a manifest, named by its BLAKE3
- ``tags/NAME``: the id a tag stands for
- ``index.sqlite``: what can be listed and searched; can be rebuilt from the manifests
- ``lock``: held shared by who takes a commit in, alone by who drops one
- ``incoming/``: commits being written; anything here that no process holds locked is left over from a crash
- ``trees/``: layers laid out as directories for branches to read; can be deleted when no branch lives
"""

from relive.store.store import Staging, Store, StoredCommit

__all__ = ["Staging", "Store", "StoredCommit"]
