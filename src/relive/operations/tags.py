"""Tags: names that keep commits."""

from __future__ import annotations

from relive.config import Settings
from relive.model.commit import CommitId
from relive.operations.operation import Result
from relive.store import Store

__all__ = ["Tag", "add_tag", "delete_tag", "list_tags"]


class Tag(Result):
    """A name and the commit that it keeps."""

    tag: str
    id: CommitId


def list_tags(settings: Settings) -> list[Tag]:
    """All, in order of their names."""
    return [Tag(tag=name, id=commit) for name, commit in Store(settings.store).tags().items()]


def add_tag(settings: Settings, name: str, ref: str, *, force: bool = False) -> Tag:
    """Give a commit a tag.

    Raises:
        RefUnknown, RefAmbiguous: there is no such commit.
        UsageError: the name is not allowed, or taken and ``force`` (move it) is not given.
    """
    store = Store(settings.store)
    commit = store.resolve(ref)
    store.tag(name, commit, force=force)
    return Tag(tag=name, id=commit)


def delete_tag(settings: Settings, name: str) -> None:
    """Remove a tag; the commit stays. Raises RefUnknown."""
    Store(settings.store).untag(name)
