"""What is kept of images that were fitted once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relive.errors import RefUnknown
from relive.model.commit import CommitId
from relive.sandbox import fitted_images
from relive.sandbox.fitted_images import FittedImages

COMMIT = CommitId("a" * 64)


@pytest.fixture
def kept() -> Iterator[FittedImages]:
    manifest: Any = SimpleNamespace(version=2)
    facts: Any = None
    made = FittedImages([], True, manifest, facts, {"core-1.img": b"fitted"})
    fitted_images._known[COMMIT] = made
    yield made
    fitted_images._known.clear()


def test_what_was_fitted_is_laid_out_as_it_was_beside_the_pages(kept: FittedImages, tmp_path: Path) -> None:
    def pages(_manifest: Any, directory: Path) -> None:
        (directory / "pages-1.img").write_bytes(b"pages")

    store: Any = SimpleNamespace(images=SimpleNamespace(lay_out_page_files=pages))
    kept.lay_out(store, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "core-1.img": b"fitted",
        "pages-1.img": b"pages",
    }


def test_the_next_branch_has_links_to_what_is_as_it_was(kept: FittedImages, tmp_path: Path) -> None:
    store: Any = SimpleNamespace(
        images=SimpleNamespace(lay_out_page_files=lambda _manifest, _directory: None)
    )
    places = [tmp_path / name for name in ("first", "second", "third", "fourth")]
    for place in places:
        place.mkdir()
    first, second, third, fourth = (place / "core-1.img" for place in places)
    kept.lay_out(store, places[0])
    kept.lay_out(store, places[1])
    assert first.samefile(second)
    second.write_bytes(b"changed")
    kept.lay_out(store, places[2])
    assert third.read_bytes() == b"fitted" and not third.samefile(second)
    shutil.rmtree(places[2])
    kept.lay_out(store, places[3])
    assert fourth.read_bytes() == b"fitted"


def test_of_a_commit_that_was_dropped_nothing_is_known(kept: FittedImages) -> None:
    def gone(_commit: CommitId) -> None:
        raise RefUnknown("it was dropped")

    here: Any = SimpleNamespace(facts=lambda _commit: None)
    dropped: Any = SimpleNamespace(facts=gone)
    assert FittedImages.known(here, COMMIT) is kept
    with pytest.raises(RefUnknown):
        FittedImages.known(dropped, COMMIT)
