"""Hypothesis strategies for the values that are written into files."""

from __future__ import annotations

import os

from hypothesis import strategies as st

from relive.model.commit import (
    CONTAINER_VERSION,
    MANIFEST_VERSION,
    CommitId,
    Connection,
    ContainerFacts,
    Cursor,
    EntryKind,
    FileEntry,
    HostFacts,
    ImageFile,
    Layer,
    LayerKind,
    Manifest,
    OpenRequest,
    Outlet,
    ProcessFacts,
    TargetFacts,
    TargetKind,
    Trigger,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(0, 2**63 - 1)
object_names = st.text("0123456789abcdef", min_size=64, max_size=64)
commit_ids = object_names.map(CommitId)
ports = st.integers(1, 65535)
addresses = st.tuples(st.ip_addresses().map(str), ports)
# What the kernel allows in a path or an argument: any bytes but NUL.
native_text = st.binary(max_size=16).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))

file_entries = st.builds(
    FileEntry,
    path=native_text,
    kind=st.sampled_from(EntryKind),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 2**32 - 2),
    gid=st.integers(0, 2**32 - 2),
    mtime_ns=st.integers(-(2**40), 2**63 - 1),
    size=numbers,
    object=st.none() | object_names,
    link=st.none() | native_text,
    opaque=st.booleans(),
    attributes=st.dictionaries(native_text, st.binary(max_size=4).map(bytes.hex), max_size=2),
)
layers = st.builds(
    Layer,
    point=native_text,
    kind=st.sampled_from(LayerKind),
    entries=st.lists(file_entries, max_size=3),
    left_out=st.lists(native_text, max_size=2),
)
targets = st.builds(
    TargetFacts,
    kind=st.sampled_from(TargetKind),
    name=words,
    life=st.none() | words,
    root=numbers,
    command=st.lists(native_text, max_size=3),
    processes=st.lists(
        st.builds(
            ProcessFacts, pid=numbers, parent=numbers, command=native_text, threads=numbers, uid=numbers
        ),
        max_size=2,
    ),
)
cursors = st.builds(
    Cursor,
    sequence=numbers,
    open_requests=st.lists(st.builds(OpenRequest, request=numbers, local_port=ports), max_size=2),
)
containers = st.builds(ContainerFacts, engine=words, id=words, image=words, runtime=words, created=words)


def _manifest(container: ContainerFacts | None, **facts: object) -> Manifest:
    """With what goes together: a container, its version and its kind of target."""
    target: TargetFacts = facts.pop("target")  # type: ignore[assignment]
    if container is not None:
        kind, version = TargetKind.CONTAINER, CONTAINER_VERSION
    else:
        kind = TargetKind.PROCESS if target.kind is TargetKind.CONTAINER else target.kind
        version = MANIFEST_VERSION
    target = target.model_copy(update={"kind": kind})
    return Manifest(version=version, target=target, container=container, **facts)  # type: ignore[arg-type]


manifests = st.builds(
    _manifest,
    container=st.none() | containers,
    capture=words,
    target=targets,
    host=st.builds(
        HostFacts,
        name=words,
        kernel=words,
        criu=words,
        machine=st.none() | words,
        cpu=st.none() | st.lists(words, max_size=2),
    ),
    trigger=st.sampled_from(Trigger),
    taken_wall_ns=numbers,
    taken_monotonic_ns=numbers,
    pause_us=numbers,
    parents=st.lists(commit_ids, max_size=2),
    cursor=st.none() | cursors,
    images=st.lists(st.builds(ImageFile, name=words, size=numbers, object=object_names), max_size=2),
    layers=st.lists(layers, max_size=2),
    connections=st.lists(
        st.builds(Connection, local=addresses, peer=addresses, inward=st.booleans()), max_size=2
    ),
    listening=st.lists(addresses, max_size=2),
    outlets=st.lists(st.builds(Outlet, key=words, writable=st.booleans()), max_size=2),
    stopped_by=st.none() | st.integers(1, 64),
    stopped_pid=st.none() | numbers,
    stopped_thread=st.none() | numbers,
)
