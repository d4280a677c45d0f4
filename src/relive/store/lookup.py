"""Finding the commit that a reference names: among the tags, and in the index."""

from __future__ import annotations

from relive.errors import RefAmbiguous
from relive.model.commit import CommitId
from relive.store.index import CommitIndex
from relive.store.names import AtTime, Back, CommitName, Reference
from relive.store.tags import Tags

__all__ = ["find_commit"]


def find_commit(reference: Reference, tags: Tags, index: CommitIndex) -> CommitId | None:
    """The commit's id; None if there is none. A tag comes before an id, and an id before a target's name.

    What was kept of a branch is named by tag or id only.

    Raises:
        RefAmbiguous: the beginning of an id fits several.
        ObjectCorrupt: the tag is damaged.
    """
    match reference:
        case Back(name, count):
            commits = index.newest_lived(name, count + 1)
            return commits[count].id if len(commits) > count else None
        case AtTime(name, wall_ns):
            commit = index.newest_before(name, wall_ns)
            return commit.id if commit is not None else None
        case CommitName():
            return tags.find(reference.text) or _find_untagged(reference, index)


def _find_untagged(reference: CommitName, index: CommitIndex) -> CommitId | None:
    if reference.is_prefix:
        ids = index.by_prefix(reference.text)
        if len(ids) > 1:
            raise RefAmbiguous(
                f"{reference.text!r} fits several commits",
                cause=", ".join(i[:12] for i in ids),
                remedy="give more digits",
            )
        if ids:
            return ids[0]
    newest = index.newest_lived(reference.text, 1)
    return newest[0].id if newest else None
