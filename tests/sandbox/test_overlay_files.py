"""Files that are laid over the host's in a sandbox to come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.errors import UsageError
from relive.sandbox.overlay_files import Laying
from relive.sandbox.rootfs import CoveredPoint


@pytest.fixture
def laying(tmp_path: Path) -> Laying:
    inner = tmp_path / "disk"
    inner.mkdir()
    points = [CoveredPoint("/", "00"), CoveredPoint(str(inner), "01")]
    return Laying(points, tmp_path / "layers")


def test_a_file_goes_into_the_layer_of_the_mount_it_lies_in_with_the_hosts_owner_and_mode(laying, tmp_path):
    target = tmp_path / "disk/deep/shop.db"
    target.parent.mkdir(mode=0o711)
    target.write_text("the host's")
    target.chmod(0o640)
    os.chown(target, 12, 13)
    source = tmp_path / "fixture.db"
    source.write_text("laid")
    laying.file(source, str(target))
    laid = laying.layers / "01/upper/deep/shop.db"
    facts = laid.stat()
    assert (laid.read_text(), facts.st_mode & 0o777, facts.st_uid, facts.st_gid) == ("laid", 0o640, 12, 13)
    assert laid.parent.stat().st_mode & 0o777 == 0o711
    assert target.read_text() == "the host's"


def test_links_on_the_way_lead_where_they_lead_on_the_host(laying, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert laying.place(tmp_path / "link/a") == laying.layers / "01/upper/a"


@pytest.mark.parametrize(
    "path", ["relative", "/", "/proc/1/x", "/run/x", "/dev/null", "/sys/x", "/run", "/tmp/../dev/x"]
)
def test_what_a_sandbox_has_of_its_own_is_not_laid_over(laying, path):
    with pytest.raises(UsageError):
        laying.place(path)


def test_a_mount_itself_and_a_source_that_is_none_are_refused(laying, tmp_path):
    with pytest.raises(UsageError):
        laying.place(tmp_path / "disk")
    with pytest.raises(UsageError):
        laying.file(tmp_path / "gone", "/tmp/x")


def test_what_is_not_seen_in_the_sandbox_is_told(laying, tmp_path):
    source = tmp_path / "source"
    source.write_text("laid")
    laying.file(source, "/srv-of-nobody/x")
    with pytest.raises(OSError, match="srv-of-nobody"):
        laying.check(tmp_path)
    laying.check(laying.layers / "00/upper")
