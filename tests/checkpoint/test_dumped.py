"""A capture that cannot be stored: what it brought is forgotten, and who counted on it is told why."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint import file_layers
from relive.checkpoint.dumped import Capture
from relive.checkpoint.file_layers import LayerScanner, LayerSource
from relive.errors import DiskFull
from relive.model.advance import Advance
from relive.model.commit import LayerKind, Manifest
from relive.store import Store
from store.builders import make_manifest

FILES = 5


@dataclass(slots=True)
class Played(Capture):
    """A capture of files alone, whose images cannot be stored while ``is_full``."""

    is_full: bool = False

    def _manifest(self, store: Store, _parents: Any) -> tuple[Manifest, Any]:
        file_layers = self._store_layers(store)
        if self.is_full:
            raise DiskFull("no space left", cause="a test", remedy="make room")
        return make_manifest(layers=file_layers), None  # type: ignore[return-value]


@dataclass
class Service:
    """A directory with files, and captures of it."""

    source: LayerSource
    store: Store

    def take(self, *, is_full: bool = False) -> Capture:
        staging = self.store.stage()
        made: dict[str, Any] = dict.fromkeys(Capture.__dataclass_fields__)
        made |= {
            "staging": staging,
            "is_full": is_full,
            "began_monotonic_ns": 0,
            "_moved": set(),
            "advance": Advance(),
        }
        return Played(**made | {"layers": [(self.source, self.source.scanner.scan(staging.files))]})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    top = tmp_path / "upper"
    top.mkdir()
    for number in range(FILES):
        (top / f"{number}.dat").write_bytes(bytes([number]) * 9000)
    with contextlib.closing(Store(tmp_path / "store")) as store:
        yield Service(LayerSource("/", LayerKind.OVERLAY, LayerScanner(top)), store)


def test_after_a_commit_that_could_not_be_stored_the_very_next_one_can_be(service):
    """It took as many commits as there were files, each with "a copy is lost"."""
    with pytest.raises(DiskFull):
        service.take(is_full=True).store(service.store, [])
    stored = service.take().store(service.store, [])
    layer = service.store.manifest(stored.id).layers[0]
    assert len(layer.entries) == FILES
    assert all(
        (service.store.files.lay_out_layer(layer) / f"{n}.dat").read_bytes()[0] == n for n in range(FILES)
    )


def test_a_commit_that_counted_on_one_that_found_no_room_is_told_of_the_full_disk(service, monkeypatch):
    monkeypatch.setattr(
        file_layers.time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + 60 * 10**9
    )
    first, second = service.take(is_full=True), service.take()
    with pytest.raises(DiskFull):
        first.store(service.store, [])
    with pytest.raises(DiskFull, match="no space left"):
        second.store(service.store, [])
