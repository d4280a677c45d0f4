"""Small files on their way into the store, one behind the other in one file."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.store import Store
from relive.store.small_files import SMALL_MOST, FilePart, SmallFiles

from .builders import make_manifest

SIZES = [0, 1, 4095, 4096, 4097, 20_000, SMALL_MOST]
CONTENTS = [random.Random(size).randbytes(size) for size in SIZES] + [bytes(5000), b"x" * 100]


def sources(place: Path) -> list[str]:
    found = []
    for number, content in enumerate(CONTENTS):
        path = place / f"{number}.dat"
        path.write_bytes(content)
        found.append(str(path))
    return found


def spooled(place: Path, names: list[str]) -> tuple[SmallFiles, list[FilePart]]:
    small = SmallFiles(place / "small")
    parts = [small.add(name) for name in names]
    return small, [part for part in parts if part is not None]


def test_each_begins_with_a_page_and_is_followed_by_zeros(tmp_path: Path) -> None:
    small, parts = spooled(tmp_path, sources(tmp_path))
    data = small.path.read_bytes()
    for part, content in zip(parts, CONTENTS, strict=True):
        assert part.begin % 4096 == 0
        page_end = part.begin + -(-part.size // 4096) * 4096
        assert data[part.begin : page_end] == content.ljust(page_end - part.begin, b"\0")


def test_a_file_that_has_become_large_is_not_taken_and_what_comes_after_it_is(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (SMALL_MOST + 1))
    (tmp_path / "small file").write_bytes(b"y")
    small = SmallFiles(tmp_path / "small")
    assert small.add(str(tmp_path / "large")) is None
    assert small.add(str(tmp_path / "small file")) == FilePart(0, 1)


def test_a_link_that_a_service_has_put_in_a_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"the host's")
    (tmp_path / "link").symlink_to("secret")
    small = SmallFiles(tmp_path / "small")
    with pytest.raises(OSError, match="symbolic links"):
        small.add(str(tmp_path / "link"))
    assert small.add(str(tmp_path / "link"), follow=True) == FilePart(0, 10)


@pytest.mark.parametrize("turned", [False, True], ids=["in-order", "in-another-order"])
def test_the_store_gives_back_what_was_taken_of_such_a_file(tmp_path: Path, turned: bool) -> None:
    """The order of the listing and that of the file need not be the same; changed again, they are compared with what was there."""
    with contextlib.closing(Store(tmp_path / "store")) as store:
        parent = []
        for round_ in range(2):
            place = tmp_path / str(round_)
            place.mkdir()
            names = sources(place)
            if round_:
                for name in names[3:6]:
                    Path(name).write_bytes(Path(name).read_bytes()[:-9] + b"some more")
            wanted = {str(number): Path(name).read_bytes() for number, name in enumerate(names)}
            small, parts = spooled(place, names)
            order = list(enumerate(parts))
            with store.taking_in(parent[0] if parent else None):
                objects = {
                    number: store.ingest_file(small.path, ("/", str(number)), part)
                    for number, part in (reversed(order) if turned else order)
                }
                entries = [
                    FileEntry(path=str(number), kind=EntryKind.FILE, size=part.size, object=objects[number])
                    for number, part in order
                ]
                layer = Layer(point="/", kind=LayerKind.OVERLAY, entries=entries)
                manifest = make_manifest(layers=[layer], parents=parent, capture=f"c{round_}")
                stored = store.add(manifest)
            small.path.unlink()
            laid_out = store.files.lay_out_layer(store.manifest(stored.id).layers[0])
            assert {path.name: path.read_bytes() for path in laid_out.iterdir()} == wanted
            parent = [stored.id]


def test_a_part_can_be_read_by_itself_before_its_commit_is_stored(tmp_path: Path) -> None:
    small, parts = spooled(tmp_path, sources(tmp_path))
    with contextlib.closing(Store(tmp_path / "store")) as store, store.taking_in():
        name = store.ingest_file(small.path, None, parts[2])
        entry = FileEntry(path="a", kind=EntryKind.FILE, size=parts[2].size, object=name)
        assert store.files.content(entry) == CONTENTS[2]
        assert small.path.exists()
