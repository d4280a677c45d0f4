"""Which of the host's mounts are covered by an overlay, decided from made-up tables of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.kernel.mounts import Mount
from relive.sandbox.rootfs import plan_points


class Host:
    """A table of mounts whose points lie in a temporary directory, since only directories that exist are covered."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.home = top / "home-of-relive"
        self.home.mkdir()
        self.mounts = [Mount(1, "8:1", "/", "/", "ext4", "/dev/sda1", "rw")]

    def mount(self, name: str, kind: str = "ext4") -> None:
        (self.top / name).mkdir(parents=True, exist_ok=True)
        self.mount_at(str(self.top / name), kind)

    def mount_at(self, point: str, kind: str) -> None:
        self.mounts.append(Mount(len(self.mounts) + 1, "8:2", "/", point, kind, "x", "rw"))

    def points(self) -> list[str]:
        """Names of the points below the temporary directory."""
        planned = plan_points(self.mounts, self.home)
        assert planned[0].point == "/"
        assert [point.slot for point in planned] == [f"{number:02}" for number in range(len(planned))]
        return [point.point.removeprefix(f"{self.top}/") for point in planned[1:]]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_root_is_always_covered(host):
    assert host.points() == []


def test_nested_mounts_are_covered_parents_first(host):
    for name in ("a-b", "a", "a/b", "a/b/c"):
        host.mount(name)
    assert host.points() == ["a", "a-b", "a/b", "a/b/c"]


def test_what_a_later_mount_hides_is_left_out(host):
    host.mount("a/b")
    host.mount("a/b/c")
    host.mount("a")
    host.mount("ab")
    assert host.points() == ["a", "ab"]


def test_a_mount_made_again_below_a_hiding_one_is_covered(host):
    host.mount("a/b")
    host.mount("a")
    host.mount("a/b")
    assert host.points() == ["a", "a/b"]


def test_two_mounts_at_one_point_are_one_and_the_upper_one_counts(host):
    host.mount("a", "ext4")
    host.mount("a", "tmpfs")
    assert host.points() == ["a"]
    host.mount("a", "proc")
    assert host.points() == []


def test_a_new_root_hides_all_below_it(host):
    host.mount("a")
    host.mount_at("/", "overlay")
    assert host.points() == []


@pytest.mark.parametrize(
    "kind", ["proc", "sysfs", "cgroup2", "devpts", "mqueue", "nfs", "fuse.sshfs", "autofs", "nsfs"]
)
def test_kernel_and_network_file_systems_are_not_covered(host, kind):
    host.mount("a", kind)
    assert host.points() == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay"])
def test_disks_and_memory_are(host, kind):
    host.mount("a", kind)
    assert host.points() == ["a"]


def test_a_mount_of_a_single_file_is_left_out(host):
    """As container engines make them for /etc/hosts."""
    (host.top / "hosts").touch()
    host.mount_at(str(host.top / "hosts"), "ext4")
    assert host.points() == []


def test_a_mount_point_that_is_gone_is_left_out(host):
    host.mount_at(str(host.top / "gone"), "ext4")
    assert host.points() == []


@pytest.mark.parametrize(
    "point", ["/run", "/run/lock", "/dev", "/dev/shm", "/proc", "/sys", "/sys/fs/cgroup"]
)
def test_what_is_kept_apart_is_not_covered(host, point):
    host.mount_at(point, "tmpfs")
    assert host.points() == []


def test_a_neighbour_whose_name_begins_alike_is_covered(host):
    host.mount("home-of-relive", "ext4")
    host.mount("home-of-relive/branches", "tmpfs")
    host.mount("home-of-relive-too", "ext4")
    assert host.points() == ["home-of-relive-too"]


names = st.sampled_from(["a", "b", "a/a", "a/b", "a/a/a", "ab", "b/a"])


@given(st.lists(st.tuples(names, st.sampled_from(["ext4", "tmpfs", "proc"])), max_size=12))
def test_of_any_table_exactly_what_can_be_seen_is_covered(tmp_path_factory, table):
    """GIVEN mounts in any order, THEN a point is covered if the last mount on its way hides it not, and is of a disk."""
    host = Host(tmp_path_factory.mktemp("points"))
    for name, kind in table:
        host.mount(name, kind)
    expected = set()
    for number, (name, kind) in enumerate(table):
        hiders = [later for later, _ in table[number + 1 :] if name == later or name.startswith(later + "/")]
        if not hiders and kind != "proc":
            expected.add(name)
    found = host.points()
    assert set(found) == expected
    assert found == sorted(found)
