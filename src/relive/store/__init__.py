"""Keeping commits: memory as pages in packs, files as objects, manifests that refer to them, names, and an index.

Layout below ``$RELIVE_HOME/store`` (docs/format.md):

- ``format``: the version of this layout, and by which name the store knows its key
- ``manifests/ID.json``: canonical JSON of a manifest, named by its BLAKE3
- ``placements/ID``: where a commit's pages lie; signed, and may be replaced
- ``packs/NAME``: pages and indexes, compressed, named by the BLAKE3 of the header
- ``objects/ab/cdef...``: committed files, named by their BLAKE3, never changed
- ``tags/NAME``: the id a tag stands for
- ``index.sqlite``: what can be listed and searched; can be rebuilt from the manifests
- ``lock``: held shared by who takes a commit in, alone by who drops one
- ``incoming/``: commits being written; anything here that no process holds locked is left over from a crash
- ``making/``: the files of such commits, before they are at their places; the same holds for them
- ``laid/``: page files of the commit that was laid out last; can be deleted at any time
- ``trees/``: layers laid out as directories for branches to read; can be deleted when no branch lives

Keys lie beside it, in ``$RELIVE_HOME/keys`` (``keyring``).

``store`` is the door, and names what is behind it. ``pages`` has how memory and the contents of files lie in packs.
"""

from relive.store.commitquery import CommitQuery
from relive.store.index import StoredCommit, TargetLine
from relive.store.ingested import IngestedImages
from relive.store.paging import Page
from relive.store.staging import Staging
from relive.store.store import Store
from relive.store.written_commit import WrittenCommit

__all__ = [
    "CommitQuery",
    "IngestedImages",
    "Page",
    "Staging",
    "Store",
    "StoredCommit",
    "TargetLine",
    "WrittenCommit",
]
