"""Page files that are kept from one branch to the next: never given out when they are not what they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.model.commit import ImageFile
from relive.store import image_cache
from relive.store.image_cache import ImageCache
from relive.store.objects import hash_bytes

PAGES = b"p" * 4096


@pytest.fixture
def image() -> ImageFile:
    return ImageFile(name="pages-1.img", size=len(PAGES), object=hash_bytes(PAGES))


@pytest.fixture
def cache(tmp_path: Path, image: ImageFile) -> ImageCache:
    made = ImageCache(tmp_path / "laid")
    (tmp_path / image.name).write_bytes(PAGES)
    made.replace([image], tmp_path)
    return made


def test_many_links_in_a_row_cost_one_hash(
    tmp_path: Path, cache: ImageCache, image: ImageFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache.link_page_file(image, tmp_path / "first")
    monkeypatch.setattr(image_cache, "hash_file", lambda _path: pytest.fail("hashed again"))
    assert cache.link_page_file(image, tmp_path / "second")


def test_a_changed_file_is_not_given_out_however_short_ago_it_was_hashed(
    tmp_path: Path, cache: ImageCache, image: ImageFile
) -> None:
    assert cache.link_page_file(image, tmp_path / "first")
    (tmp_path / "laid" / image.object).write_bytes(b"q" * 4096)
    assert not cache.link_page_file(image, tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_bytes_that_the_disk_changed_are_found_when_the_last_look_is_a_minute_old(
    tmp_path: Path, cache: ImageCache, image: ImageFile
) -> None:
    """GIVEN a file whose bytes changed behind the kernel's back; WHEN the last hash is old; THEN it is not given out."""
    assert cache.link_page_file(image, tmp_path / "first")
    kept, note = tmp_path / "laid" / image.object, tmp_path / "laid" / f"{image.object}.checked"
    facts = kept.stat()
    kept.write_bytes(b"q" * 4096)
    os.utime(kept, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.utime(note, (facts.st_mtime - 3600, facts.st_mtime - 3600))
    assert not cache.link_page_file(image, tmp_path / "second")


def test_what_is_kept_no_longer_leaves_no_note(tmp_path: Path, cache: ImageCache, image: ImageFile) -> None:
    assert cache.link_page_file(image, tmp_path / "first")
    cache.clear()
    assert not list((tmp_path / "laid").iterdir())
