"""Which content stood where in a commit, by hashes."""

from __future__ import annotations

import numpy as np

from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind
from relive.store.pages.places import FilePlaces
from relive.store.pages.table import ContentTable, PageTable


def name_of(number: int) -> str:
    return f"{number:064x}"


def layer(point: str, paths: dict[str, int]) -> Layer:
    entries = [
        FileEntry(path=path, kind=EntryKind.FILE, object=name_of(number)) for path, number in paths.items()
    ]
    directory = FileEntry(path="d", kind=EntryKind.DIRECTORY)
    return Layer(point=point, kind=LayerKind.OVERLAY, entries=[directory, *entries])


def test_each_file_is_found_by_its_point_and_its_path() -> None:
    contents = ContentTable(
        [name_of(number) for number in range(500)], np.zeros(500, np.int64), PageTable.of_zeros(0)
    )
    at_root = {f"d/{number}": number for number in range(400)}
    at_run = {f"d/{number}": 499 - number for number in range(400)}
    places = FilePlaces([layer("/", at_root), layer("/run", at_run)], contents)
    for point, paths in (("/", at_root), ("/run", at_run)):
        assert all(places.get((point, path)) == name_of(number) for path, number in paths.items())
    assert [places.get(place) for place in (("/", "d"), ("/", "d/400"), ("/tmp", "d/1"))] == [None] * 3


def test_what_the_contents_lack_is_left_out() -> None:
    places = FilePlaces(
        [layer("/", {"a": 1, "b": 2})],
        ContentTable([name_of(2)], np.zeros(1, np.int64), PageTable.of_zeros(0)),
    )
    assert (places.get(("/", "a")), places.get(("/", "b"))) == (None, name_of(2))


def test_of_no_files_there_is_none() -> None:
    assert FilePlaces([], ContentTable.none()).get(("/", "a")) is None
