"""Naming commits at a remote: an id, a unique beginning of one, or a tag that was pushed there.

A tag there is JSON ``{"tag", "commit"}``. It is not signed: who may write to the remote may move it. What it leads to is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from relive.errors import ObjectCorrupt, RefAmbiguous, RefUnknown, UsageError
from relive.model.commit import CommitId
from relive.remotes.remote import Remote
from relive.remotes.remote_layout import manifests_directory, tag_path
from relive.store.names import CommitName
from relive.store.objects import is_id

__all__ = [
    "ResolvedReference",
    "read_tag",
    "refuse_move",
    "resolve_remote_reference",
    "unknown_there",
    "write_tag",
]


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """The commit that was meant, and the tag that named it; None if it was named by its id."""

    commit: CommitId
    tag: str | None


def resolve_remote_reference(remote: Remote, text: str) -> ResolvedReference:
    """The commit that a reference names at the remote; an id is not looked for there.

    Raises:
        RefUnknown: none; RefAmbiguous: the beginning of an id fits several.
        ObjectCorrupt: the tag is damaged.
    """
    if is_id(text):
        return ResolvedReference(CommitId(text), None)
    tagged = read_tag(remote, text)
    if tagged is not None:
        return ResolvedReference(tagged, text)
    if CommitName(text).is_prefix:
        directory = manifests_directory(text)
        ids = [text[:2] + name.removesuffix(".json") for name in remote.sizes(directory)]
        fitting = sorted(found for found in ids if found.startswith(text) and is_id(found))
        if len(fitting) > 1:
            raise RefAmbiguous(
                f"{text!r} fits several commits of {remote.url}",
                cause=", ".join(found[:12] for found in fitting[:5]),
                remedy="give more digits",
            )
        if fitting:
            return ResolvedReference(CommitId(fitting[0]), None)
    raise unknown_there(remote, text)


def unknown_there(remote: Remote, text: str) -> RefUnknown:
    """The error of a name that stands for nothing at the remote."""
    return RefUnknown(
        f"{text!r} names no commit at {remote.url}",
        cause="a remote knows ids and the tags that were pushed to it",
        remedy="push it from the host that has it: `relive push REMOTE REF`",
    )


def read_tag(remote: Remote, name: str) -> CommitId | None:
    """What a tag names there; None if there is none of that name."""
    data = remote.read(tag_path(name))
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["tag"] != name or not is_id(value["commit"]):
            raise ValueError("it holds no commit's id, or belongs to another tag")
    except (ValueError, KeyError, TypeError) as error:
        raise ObjectCorrupt(
            f"the tag {name!r} at {remote.url} is damaged",
            cause=str(error),
            remedy="push it again with --force, or name the commit by its id",
        ) from error
    return CommitId(value["commit"])


def write_tag(remote: Remote, name: str, commit_id: CommitId, *, force: bool) -> None:
    """Let a tag stand for a commit there; raises UsageError where it names another and ``force`` is not given."""
    data = json.dumps({"tag": name, "commit": commit_id}).encode()
    if remote.write_new(tag_path(name), data):
        return
    if force:
        remote.write(tag_path(name), data)
        return
    refuse_move(remote, name, commit_id)


def refuse_move(remote: Remote, name: str, commit_id: CommitId) -> None:
    """Raises UsageError where the tag names another commit there."""
    there = read_tag(remote, name)
    if there is not None and there != commit_id:
        raise UsageError(
            f"the tag {name!r} exists at {remote.url}",
            cause=f"it names {there[:10]}",
            remedy="use --force to move it",
        )
