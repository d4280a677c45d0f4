"""Inode numbers of a commit's files, which a process reads once for all branches of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from relive.errors import ObjectMissing
from relive.model.commit import CommitId, LayerKind
from relive.sandbox import committed_numbers as module
from relive.sandbox.committed_numbers import committed_numbers


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    module._known.clear()
    yield
    module._known.clear()


def manifest() -> Any:
    layer = SimpleNamespace(kind=LayerKind.OVERLAY, point="/", entries=[SimpleNamespace(path="srv/held")])
    return SimpleNamespace(layers=[layer])


def test_they_are_read_once_and_are_those_of_files_that_the_commit_holds() -> None:
    read: list[Any] = []

    def read_small(asked: Any, _name: str) -> bytes:
        read.append(asked)
        return b'{"/srv/held": 7, "/srv/other": 8}'

    store: Any = SimpleNamespace(images=SimpleNamespace(read_small=read_small))
    one, other = manifest(), manifest()
    for _ in range(2):
        assert committed_numbers(store, CommitId("a" * 64), one) == {"/srv/held": 7}
    assert committed_numbers(store, CommitId("b" * 64), other) == {"/srv/held": 7}
    assert read == [one, other]


def test_what_cannot_be_read_is_not_taken_for_none() -> None:
    def read_small(_manifest: Any, _name: str) -> bytes:
        raise ObjectMissing("gone", cause="deleted")

    store: Any = SimpleNamespace(images=SimpleNamespace(read_small=read_small))
    for _ in range(2):
        with pytest.raises(ObjectMissing):
            committed_numbers(store, CommitId("a" * 64), manifest())
