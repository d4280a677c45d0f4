"""What is laid where a container had something of its host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from relive.containers.restore import binds
from relive.containers.restore.binds import Binds, MountContents
from relive.containers.restore.specification import BindMount, ContainerSpecification
from relive.images import criu_images_pb2 as pb


@pytest.mark.parametrize("named", ["/run/x", "/var/run/x"])
def test_what_a_commit_holds_of_a_volume_whose_destination_leads_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """By where the mount was, or by where the configuration has it; the host's directory is not on its root file system."""
    source, held = tmp_path / "source", tmp_path / "held"
    source.mkdir()
    laid: list[Sequence[Path]] = []
    monkeypatch.setattr(binds, "mount", lambda *_: None)
    monkeypatch.setattr(binds, "mount_overlay", lambda _, *, lower, **__: laid.append(lower))
    one = BindMount("/var/run/x", str(source), None, read_only=False)
    specification = cast(
        ContainerSpecification, SimpleNamespace(binds={one.destination: one}, masked=frozenset())
    )
    entry = pb.MntEntry(mountpoint="/run/x", ext_key="/var/run/x", root="/source")
    for number, contents in enumerate((MountContents({}, {named: held}), MountContents({named: source}, {}))):
        made = Binds(tmp_path / f"{number}", tmp_path, specification, contents, tmp_path, {})
        assert list(made.sources([entry])) == ["/var/run/x"]
    assert laid == [[held, source], [source]]
