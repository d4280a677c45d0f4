"""Random operations on a store and on a plain dictionary must agree, across closing, losing the index and rebuilding it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from relive.errors import RefAmbiguous, RefUnknown, UsageError
from relive.model.commit import CommitId
from relive.store import Store, sweep
from relive.store.pages import ingest

from .builders import SECOND, beyond, commit, contents

NAMES = ("pay", "mail")
contents_of_files = st.sampled_from([b"", b"shared", b"rare", b"x" * 5000])
file_sets = st.dictionaries(st.sampled_from(["a", "d/b", "d/c"]), contents_of_files, max_size=3)
A_PAGE = bytes(range(256)) * 16
# All zero, full, a little changed, much changed, all changed, something else; in the end maybe no whole page.
PAGE_KINDS = {
    "z": bytes(4096),
    "f": A_PAGE,
    "l": b"12345678" + A_PAGE[8:],
    "m": A_PAGE[:1000] + bytes(3096),
    "a": A_PAGE[::-1],
    "x": b"x" * 4096,
    "e": b"rest",
}
memories = st.from_regex("[zflmax]{1,5}e?", fullmatch=True)


tags = st.sampled_from(["best", "cafe", "v1.0", "ü"])


@dataclass
class Model:
    """What the store should hold."""

    commits: dict[CommitId, tuple[str, int, dict[str, bytes], bytes]] = field(default_factory=dict)
    tags: dict[str, CommitId] = field(default_factory=dict)

    def newest_first(self, name: str | None = None) -> list[CommitId]:
        fits = [commit_id for commit_id, facts in self.commits.items() if name in (None, facts[0])]
        return sorted(fits, key=lambda commit_id: -self.commits[commit_id][1])


class StoreAgrees(RuleBasedStateMachine):
    commits = Bundle("commits")

    def __init__(self) -> None:
        super().__init__()
        # So that key commits and repacking come up in short runs.
        self.before = (ingest.KEY_EVERY, sweep._REPACK_FROM)
        ingest.KEY_EVERY, sweep._REPACK_FROM = 3, 1
        self.directory = Path(tempfile.mkdtemp(prefix="relive-stateful-"))
        self.store = Store(self.directory / "store")
        self.model = Model()
        self.clock = 0

    def teardown(self) -> None:
        ingest.KEY_EVERY, sweep._REPACK_FROM = self.before
        self.store.close()
        shutil.rmtree(self.directory)

    @rule(
        target=commits,
        name=st.sampled_from(NAMES),
        files=file_sets,
        pages=memories,
        has_parent=st.booleans(),
    )
    def add(self, name: str, files: dict[str, bytes], pages: str, has_parent: bool) -> CommitId:
        self.clock += 1
        memory = b"".join(PAGE_KINDS[kind] for kind in pages)
        one = commit(
            self.store,
            name=name,
            files=files,
            pages=memory,
            wall_ns=self.clock * SECOND,
            sequence=self.clock,
            parents=self.model.newest_first(name)[:1] if has_parent else [],
        )
        self.model.commits[one.id] = (name, self.clock * SECOND, files, memory)
        return one.id

    @rule(commit_id=consumes(commits))
    def delete(self, commit_id: CommitId) -> None:
        self.store.delete(commit_id)
        self.model.commits.pop(commit_id, None)

    @rule(commit_id=commits, tag=tags, force=st.booleans())
    def tag(self, commit_id: CommitId, tag: str, force: bool) -> None:
        try:
            self.store.tag(tag, commit_id, force=force)
        except UsageError:
            assert tag in self.model.tags
            assert not force
        except RefUnknown:
            assert commit_id not in self.model.commits
        else:
            assert commit_id in self.model.commits
            assert force or tag not in self.model.tags
            self.model.tags[tag] = commit_id

    @rule(tag=tags)
    def untag(self, tag: str) -> None:
        try:
            self.store.untag(tag)
        except RefUnknown:
            assert tag not in self.model.tags
        else:
            del self.model.tags[tag]

    @rule(name=st.sampled_from(NAMES), keep=st.integers(0, 3), data=st.data())
    def thin(self, name: str, keep: int, data: st.DataObject) -> None:
        pinned = (
            data.draw(st.sets(st.sampled_from(sorted(self.model.commits)), max_size=2))
            if self.model.commits
            else set()
        )
        kept = pinned | set(self.model.tags.values())
        doomed = [one for one in self.model.newest_first(name)[keep:] if one not in kept]
        assert self.store.thin(name, beyond(keep, pinned)) == doomed
        for one in doomed:
            del self.model.commits[one]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.directory / "store")

    @rule()
    def lose_the_index(self) -> None:
        self.store.close()
        for path in (self.directory / "store").glob("index.sqlite*"):
            path.unlink()
        self.store = Store(self.directory / "store")

    @rule()
    def rebuild_the_index(self) -> None:
        assert self.store.rebuild_index() == len(self.model.commits)

    @precondition(lambda self: self.model.commits)
    @rule(data=st.data(), digits=st.integers(4, 64))
    def resolve_a_prefix(self, data: st.DataObject, digits: int) -> None:
        prefix = data.draw(st.sampled_from(sorted(self.model.commits)))[:digits]
        fits = [one for one in self.model.commits if one.startswith(prefix)]
        try:
            assert [self.store.resolve(prefix)] == fits
        except RefAmbiguous:
            assert len(fits) > 1

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 4))
    def resolve_counting_back(self, name: str, count: int) -> None:
        self.agree(f"{name}@{{{count}}}", self.model.newest_first(name)[count : count + 1])

    @rule(name=st.sampled_from(NAMES), seconds=st.integers(0, 30))
    def resolve_at_a_time(self, name: str, seconds: int) -> None:
        fits = [
            one for one in self.model.newest_first(name) if self.model.commits[one][1] <= seconds * SECOND
        ]
        self.agree(f"{name}@{{1970-01-01 00:00:{seconds:02}+00:00}}", fits[:1])

    @rule(tag=tags)
    def resolve_a_tag(self, tag: str) -> None:
        self.agree(tag, [self.model.tags[tag]] if tag in self.model.tags else [])

    def agree(self, text: str, expected: list[CommitId]) -> None:
        try:
            assert [self.store.resolve(text)] == expected
        except RefUnknown:
            assert expected == []

    @rule(sequence=st.integers(0, 30))
    def look_before_an_event(self, sequence: int) -> None:
        """All are of one life, and the sequence is the clock."""
        found = self.store.before_event("L1", sequence)
        fits = [one for one in self.model.newest_first() if self.model.commits[one][1] < sequence * SECOND]
        assert ([found.id] if found else []) == fits[:1]

    @invariant()
    def the_lists_agree(self) -> None:
        assert [line.id for line in self.store.log()] == self.model.newest_first()
        assert self.store.tags() == self.model.tags

    @invariant()
    def every_commit_is_placed_and_no_pack_is_there_that_nobody_needs(self) -> None:
        home = self.directory / "store"
        placements = self.store.internals.placements
        assert set(os.listdir(home / "placements")) == set(self.model.commits)
        needed = {name for one in self.model.commits for name in placements.read(one).needed()}
        assert set(os.listdir(home / "packs")) == needed

    @precondition(lambda self: self.model.commits)
    @rule(data=st.data())
    def give_one_back(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.model.commits)))
        images, files = contents(self.store, one)
        _, _, expected, pages = self.model.commits[one]
        assert files == expected
        assert images["pages-1.img"] == pages


StoreAgrees.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_a_store_agrees_with_a_dictionary = StoreAgrees.TestCase
