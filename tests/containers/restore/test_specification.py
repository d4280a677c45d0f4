"""What a container's commit tells of its surroundings, also where it lies."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest

from containers.archive.checkpoints import FIRST, contents_of, plain
from relive.containers.restore.specification import BindMount, ContainerSpecification, read_specification
from relive.errors import RestoreFailed
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind, Manifest
from relive.store import Store


class Members:
    """In the place of the files of a store that has these."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def content(self, entry: FileEntry) -> bytes:
        return self.files[entry.path]


def specification(**files: object) -> ContainerSpecification:
    contents = {
        name.replace("__", "/").replace("_dot_", "."): one
        if isinstance(one, bytes)
        else json.dumps(one).encode()
        for name, one in files.items()
    }
    return read(contents)


def read(contents: dict[str, bytes]) -> ContainerSpecification:
    entries = [
        FileEntry(path=path, kind=EntryKind.FILE, size=len(data), object="0" * 64)
        for path, data in contents.items()
    ]
    layer = Layer(point="", kind=LayerKind.ARCHIVE, entries=entries)
    manifest = Manifest.model_construct(layers=[layer], container=None)
    return read_specification(cast(Store, SimpleNamespace(files=Members(contents))), manifest)


def test_what_podman_wrote_is_understood() -> None:
    found = read(contents_of(plain(FIRST)))
    assert len(found.image) == 64 and found.image_name == "localhost/counter:latest"
    assert [one.partition(":")[0] for one in found.streams[1:]] == ["pipe", "pipe"]
    assert found.hostname and found.user == (0, 0) and found.addresses == []
    assert found.binds["/dev/shm"].source.endswith("/userdata/shm")


def test_volumes_and_addresses_are_told() -> None:
    mounts = [
        {"type": "bind", "destination": "/data/", "source": "/here", "options": ["rbind", "ro"]},
        {"type": "tmpfs", "destination": "/scratch", "source": "tmpfs"},
        {"type": "none", "destination": "/kept", "source": "/there", "options": ["bind"]},
    ]
    status = {
        "one": {"interfaces": {"eth0": {"subnets": [{"ipnet": "10.88.0.2/16"}, {"ipnet": "fd00::2/64"}]}}}
    }
    found = specification(
        config_dot_dump={
            "namedVolumes": [{"volumeName": "v", "dest": "/kept"}],
            "rootfsImageRef": "sha256:" + "a" * 64,
        },
        spec_dot_dump={"mounts": mounts, "process": {"user": {"uid": 5, "gid": 6}}},
        network_dot_status=status,
    )
    assert found.binds == {
        "/data": BindMount("/data", "/here", None, True),
        "/kept": BindMount("/kept", "/there", "v", False),
    }
    assert found.addresses == ["10.88.0.2", "fd00::2"]
    assert found.image == "a" * 64 and found.user == (5, 6)


@pytest.mark.parametrize(
    ("network", "streams", "spec"),
    [
        ([], {}, {"mounts": {}, "hostname": 5, "process": []}),
        ({"a": {"interfaces": [1]}}, [1, "\0"], {"mounts": [1, {"type": "bind"}], "process": {"user": 1}}),
        (
            {"a": {"interfaces": {"b": {"subnets": [{"ipnet": "x"}, 1]}}}},
            None,
            {"process": {"user": {"uid": -1, "gid": 1 << 40}}},
        ),
        (b"[" * 100_000, b"\xff", {}),
    ],
)
def test_what_is_not_as_it_should_be_is_not_told(network: object, streams: object, spec: object) -> None:
    found = specification(
        config_dot_dump={"rootfsImageID": "../../etc", "namedVolumes": [3]},
        spec_dot_dump=spec,
        network_dot_status=network,
        checkpoint__descriptors_dot_json=streams,
    )
    assert (found.image, found.hostname, found.addresses, found.streams) == ("", "", [], [])
    assert found.user == (0, 0) and set(found.binds) <= {"/"}


@pytest.mark.parametrize("data", [b"", b"[]", b"{"])
def test_without_a_configuration_there_is_no_restore(data: bytes) -> None:
    with pytest.raises(RestoreFailed, match="set up again"):
        specification(config_dot_dump={}, spec_dot_dump=data)
