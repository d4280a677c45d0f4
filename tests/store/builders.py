"""Commits made up for tests of the store: small, and checked bit for bit by ``verify``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from relive.model.commit import (
    MANIFEST_VERSION,
    CommitId,
    Cursor,
    EntryKind,
    FileEntry,
    HostFacts,
    ImageFile,
    Layer,
    LayerKind,
    Manifest,
    TargetFacts,
    TargetKind,
    Trigger,
)
from relive.store import IngestedImages, Staging, Store, StoredCommit, WrittenCommit

SECOND = 1_000_000_000
OLD = 2  # version of manifests whose files are objects
DEFAULT_FILES: Mapping[str, bytes] = {"etc/pay.conf": b"limit=5\n"}


def make_manifest(
    *,
    name: str = "pay",
    life: str | None = "L1",
    wall_ns: int = 1_700_000_000 * SECOND,
    sequence: int | None = None,
    capture: str = "c0ffee",
    parents: list[CommitId] | None = None,
    images: list[ImageFile] | None = None,
    layers: list[Layer] | None = None,
    version: int = MANIFEST_VERSION,
    trigger: Trigger = Trigger.MANUAL,
    stopped_pid: int | None = None,
) -> Manifest:
    return Manifest(
        version=version,
        capture=capture,
        target=TargetFacts(
            kind=TargetKind.CAPSULE, name=name, life=life, root=2, command=["pay", "--now"], processes=[]
        ),
        host=HostFacts(name="host", kernel="6.1", criu="4.2"),
        trigger=trigger,
        stopped_pid=stopped_pid,
        taken_wall_ns=wall_ns,
        taken_monotonic_ns=wall_ns // 2,
        pause_us=1234,
        parents=parents or [],
        cursor=None if sequence is None else Cursor(sequence=sequence),
        images=images or [],
        layers=layers or [],
        connections=[],
        listening=[],
    )


def fill_images(directory: Path, pages: bytes, small: Mapping[str, bytes]) -> None:
    """What CRIU leaves: a page file, small images, and things that are not stored."""
    (directory / "pages-1.img").write_bytes(pages)
    for name, data in small.items():
        (directory / name).write_bytes(data)
    (directory / "criu.log").write_text("not stored")


def commit(
    store: Store,
    *,
    pages: bytes = b"page" * 1024,
    small: Mapping[str, bytes] = {"core-1.img": b"core", "files.img": b"files"},
    files: Mapping[str, bytes] = DEFAULT_FILES,
    **facts: object,
) -> StoredCommit:
    """Take a commit in as the engine does."""
    return take_in(store, stage(store, pages=pages, small=small, files=files), files, **facts)


def stage(store: Store, *, pages: bytes, small: Mapping[str, bytes], files: Mapping[str, bytes]) -> Staging:
    """What the engine has written when the target runs again."""
    staging = store.stage()
    fill_images(staging.images, pages, small)
    for number, data in enumerate(files.values()):
        (staging.files / f"{number}").write_bytes(data)
    return staging


def take_in(
    store: Store,
    staging: Staging,
    files: Mapping[str, bytes],
    **facts: object,
) -> StoredCommit:
    """Make it durable; the staging directory is gone afterwards. With ``version=2`` as a Relive did before files lay in packs."""
    try:
        parents: list[CommitId] = facts.get("parents") or []  # type: ignore[assignment]
        with store.taking_in(parents[0] if parents else None):
            return store.add(*read_in(store, staging, files, **facts))
    finally:
        staging.discard()


def group(store: Store, commits: Sequence[Mapping[str, Any]]) -> list[StoredCommit]:
    """Take commits in that become durable together, each on top of the one before; each as ``commit`` is told."""
    written: list[WrittenCommit] = []
    with store.taking_in():
        for facts in commits:
            if written:
                store.go_on_from(written[-1])
                assert written[-1].pages is None  # a group would hold the memory of all
            parents = [one.id for one in written[-1:]]
            rest = dict(facts)
            files = rest.pop("files", DEFAULT_FILES)
            pages, small = rest.pop("pages", b"page" * 1024), rest.pop("small", {"core-1.img": b"core"})
            staging = stage(store, pages=pages, small=small, files=files)
            try:
                written.append(store.write(*read_in(store, staging, files, parents=parents, **rest)))
            finally:
                staging.discard()
        return store.publish(written)


def read_in(
    store: Store, staging: Staging, files: Mapping[str, bytes], **facts: object
) -> tuple[Manifest, IngestedImages]:
    """What ``Store.add`` or ``Store.write`` makes a commit of."""
    layer = take_layer(store, staging.files, files, as_objects=facts.get("version") == OLD)
    taken = store.ingest_images(staging.images)
    return make_manifest(images=taken.images, layers=[layer], **facts), taken  # type: ignore[arg-type]


def take_layer(store: Store, staging: Path, files: Mapping[str, bytes], *, as_objects: bool = False) -> Layer:
    directories = sorted({str(parent) for path in files for parent in Path(path).parents if parent.name})
    entries = [FileEntry(path=path, kind=EntryKind.DIRECTORY, mode=0o755) for path in directories]
    for number, (path, data) in enumerate(files.items()):
        staged = staging / f"{number}"
        name = (
            store.internals.objects.ingest(staged) if as_objects else store.ingest_file(staged, ("/", path))
        )
        entries.append(FileEntry(path=path, kind=EntryKind.FILE, mode=0o640, size=len(data), object=name))
    return Layer(point="/", kind=LayerKind.OVERLAY, entries=sorted(entries, key=lambda entry: entry.path))


def contents(store: Store, commit_id: CommitId) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """({image name: bytes}, {path: bytes}) of a commit, through the doors that a restore uses."""
    manifest = store.manifest(commit_id)
    directory = Path(tempfile.mkdtemp(dir=store.internals.directory / "incoming"))  # of the same file system
    try:
        store.images.lay_out(manifest, directory)
        images = {path.name: path.read_bytes() for path in directory.iterdir()}
    finally:
        shutil.rmtree(directory)
    files = {
        entry.path: store.files.content(entry)
        for layer in manifest.layers
        for entry in layer.entries
        if entry.kind is EntryKind.FILE
    }
    for layer in manifest.layers:
        store.files.lay_out_layer(layer)
    return images, files


def beyond(
    keep: int, pinned: Collection[CommitId] = ()
) -> Callable[[Sequence[StoredCommit]], list[CommitId]]:
    """For ``Store.thin``: all but the newest ``keep`` and the pinned."""
    return lambda lines: [line.id for line in lines[keep:] if line.id not in pinned]


def is_whole(store: Store, commit_id: CommitId) -> bool:
    """It can be given back; raises the store's error where it cannot."""
    contents(store, commit_id)
    return True
