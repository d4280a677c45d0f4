"""Commits that say what no dump says: refused before CRIU restores them, with the reason, and nothing left on the host.

A real commit is changed where the restore reads it: its images when they are laid out, its manifest when it is read. Who could do
so to a stored one has the key of a host that this one trusts; without it, signatures and hashes stop him (``store/test_damage``).
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from relive.containers.restore.restoring import restore
from relive.errors import ReliveError
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries, read_inventory, write_entries, write_inventory
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind, Manifest, Outlet
from relive.sandbox import builder, fitted_images
from relive.sandbox.branch import Branch, list_branches
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store
from support.waiting import eventually

from .harness import PYTHON, Relive

Alter = Callable[[Path], None]
_COMMON = 0x54564319
_SERVICE = (
    "import os, tempfile, time\n"
    "kept = open('/proc/meminfo'), tempfile.TemporaryFile(), open('/dev/shm/PLACE', 'w')\n"
    "kept[1].write(b'x'); kept[1].flush()\n"
    "print('here', flush=True)\n"
    "time.sleep(1e6)\n"
)


@dataclass
class Commit:
    relive: Relive
    store: Store
    id: str

    def restore(self, alter: Alter | None = None) -> Branch:
        settings = self.relive.settings
        lay = (lambda rings: alter(rings.parent / "images")) if alter is not None else None
        return restore(settings, self.store, self.store.resolve(self.id), RestoreRequest(lay_beside=lay))

    def refused(self, alter: Alter | None = None) -> str:
        """Why it was refused; nothing is left of it."""
        with pytest.raises(ReliveError) as refused:
            self.restore(alter).stop()
        assert list_branches(self.relive.settings) == [] and os.listdir(self.relive.settings.branches) == []
        assert "trust" in (refused.value.remedy or "")
        return f"{refused.value.code}: {refused.value}"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each restore reads and checks the commit anew: here the same id stands for many contents."""
    monkeypatch.setattr(fitted_images, "_known", OrderedDict())


@pytest.fixture(scope="module")
def commit() -> Iterator[Commit]:
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    relive = Relive(home, "hostile")
    try:
        capsule = relive.run(PYTHON, "-c", _SERVICE.replace("PLACE", home.name))
        eventually(lambda: relive.output(capsule) != "")
        taken = relive.commit(capsule)
        with closing(Store(relive.settings.store)) as store:
            yield Commit(relive, store, taken.id)
    finally:
        relive.close()
        shutil.rmtree(home)
        (Path("/dev/shm") / home.name).unlink(missing_ok=True)


def altered(name: str, kind: type[pb.CoreEntry], change: Callable[[pb.CoreEntry], None]) -> Alter:
    """Change every entry of the images of that name."""

    def alter(images: Path) -> None:
        for path in images.glob(name):
            entries = read_entries(path, kind)
            for entry in entries:
                change(entry)
            write_entries(path, entries)

    return alter


def open_file(name: str, flags: int = os.O_RDONLY, like: str = "/proc/meminfo") -> Alter:
    """The file that the service has open for reading has another name, and is said to be ``like`` one of the host."""

    def change(entry: pb.FileEntry) -> None:
        if entry.reg.name == "/proc/meminfo":
            entry.reg.name, entry.reg.flags = name, flags
            entry.reg.mode = os.stat(like).st_mode
            entry.reg.ClearField("size")

    return altered("files.img", pb.FileEntry, change)


def image(name: str, content: bytes = b"") -> Alter:
    return lambda images: (images / name).write_bytes(struct.pack("<II", _COMMON, 0) + content) and None


def test_it_is_restored_as_it_is(commit: Commit) -> None:
    commit.restore().stop()


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("/tmp/../etc/shadow", os.O_RDWR),
        ("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        ("/proc/1/root/etc/shadow", os.O_RDWR),
        ("/proc/self/fd/1023/../../../etc/shadow", os.O_RDWR),
        ("/proc/thread-self/cwd/x", os.O_RDONLY),
        ("/proc/1/mem", os.O_RDWR),
        ("/proc/sysrq-trigger", os.O_WRONLY),
        ("/proc/kcore", os.O_RDONLY),
        ("/sys/kernel/uevent_helper", os.O_WRONLY),
    ],
)
def test_open_files_that_lead_out(commit: Commit, name: str, flags: int) -> None:
    assert name.partition("..")[0] in commit.refused(open_file(name, flags))


def test_a_link_in_its_files_that_leads_to_the_kernel_s(
    commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRIU follows it. What the process holds then is seen before it runs."""
    layers = _with_entries(
        commit, FileEntry(path="innocent", kind=EntryKind.LINK, link="/proc/sys/kernel/core_pattern")
    )
    monkeypatch.setattr(commit.store, "manifest", lambda _: layers)
    assert "core_pattern" in commit.refused(
        open_file("/innocent", os.O_WRONLY, "/proc/sys/kernel/core_pattern")
    )


def _with_entries(commit: Commit, *entries: FileEntry) -> Manifest:
    manifest = commit.store.manifest(commit.store.resolve(commit.id))
    layers = [
        layer.model_copy(update={"entries": [*layer.entries, *entries]}) if layer.point == "/" else layer
        for layer in manifest.layers
    ]
    return manifest.model_copy(update={"layers": layers})


def test_a_device_node_without_a_name(commit: Commit) -> None:
    def change(entry: pb.GhostFileEntry) -> None:
        entry.mode, entry.rdev = stat.S_IFBLK | 0o600, os.stat("/").st_dev

    def alter(images: Path) -> None:
        for path in images.glob("ghost-file-*.img"):
            entry = pb.GhostFileEntry(uid=0, gid=0, mode=0)
            change(entry)
            write_entries(path, [entry])

    assert "device node" in commit.refused(alter)


@pytest.mark.parametrize(
    "name",
    ["mountpoints-9.img", "netdev-9.img", "userns-9.img", "pidns-9.img", "iptables-9.img", "nftables-9.img"],
)
def test_namespaces_that_criu_would_make(commit: Commit, name: str) -> None:
    assert name in commit.refused(image(name))


def test_threads_without_rights_of_their_own(commit: Commit) -> None:
    """CRIU would leave them its own."""
    without = altered("core-*.img", pb.CoreEntry, lambda entry: entry.thread_core.ClearField("creds"))
    assert "which rights" in commit.refused(without)


@pytest.mark.parametrize("mode", [3, 7])
def test_threads_without_a_filter(commit: Commit, mode: int) -> None:
    def change(entry: pb.CoreEntry) -> None:
        entry.thread_core.seccomp_mode = mode

    assert "filter of system calls" in commit.refused(altered("core-*.img", pb.CoreEntry, change))


def test_more_processes_than_a_machine_has(commit: Commit) -> None:
    def alter(images: Path) -> None:
        found = read_entries(images / "pstree.img", pb.PstreeEntry)
        write_entries(images / "pstree.img", found + found[-1:] * 70_000)

    assert "70001 processes" in commit.refused(alter)


@pytest.mark.parametrize("number", [0, 1 << 22, (1 << 32) - 1])
def test_numbers_that_no_kernel_gives(commit: Commit, number: int) -> None:
    def change(entry: pb.PstreeEntry) -> None:
        entry.pid = number

    assert "a number that no kernel gives" in commit.refused(altered("pstree.img", pb.PstreeEntry, change))


def test_labels_policies_and_groups_are_left_out(commit: Commit) -> None:
    """Not refused: honest commits have them."""

    def change(entry: pb.CoreEntry) -> None:
        entry.thread_core.creds.lsm_profile = "unconfined"
        entry.tc.cg_set, entry.thread_core.cg_set = 9, 9
        entry.tc.oom_score_adj = -1000
        entry.thread_core.sched_policy, entry.thread_core.sched_prio = 1, 50

    def alter(images: Path) -> None:
        altered("core-*.img", pb.CoreEntry, change)(images)
        inventory = read_inventory(images)
        inventory.lsmtype = 2
        write_inventory(images, inventory)
        image("apparmor.img", b"x")(images)

    branch = commit.restore(alter)
    try:
        root = branch.facts.root
        assert os.sched_getscheduler(root) == os.SCHED_OTHER
        assert Path(f"/proc/{root}/oom_score_adj").read_text() == "0\n"
        members = [Path(group, "cgroup.procs").read_text().split() for group in branch.facts.groups]
        assert all(str(root) in group for group in members)
    finally:
        branch.stop()


def _pointed(commit: Commit, point: str, kind: LayerKind, name: str = "planted") -> Manifest:
    manifest = commit.store.manifest(commit.store.resolve(commit.id))
    entry = FileEntry(path=name, kind=EntryKind.DIRECTORY, mode=0o755)
    return manifest.model_copy(
        update={"layers": [*manifest.layers, Layer(point=point, kind=kind, entries=[entry])]}
    )


@pytest.mark.parametrize(
    "paths",
    [["../planted"], ["/tmp/planted"], ["x/../../planted"], [""], ["link", "link/planted"]],
    ids="/".join,
)
def test_files_whose_paths_lead_out(
    commit: Commit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paths: list[str]
) -> None:
    entries = [FileEntry(path=path, kind=EntryKind.LINK, link=str(tmp_path)) for path in paths]
    made = _with_entries(commit, *entries)
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    assert "names a file" in commit.refused()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", [LayerKind.OVERLAY, LayerKind.TMPFS])
@pytest.mark.parametrize(
    "point",
    [
        "/../../../../PLACE",
        "PLACE",
        "//PLACE",
        "/tmp/../PLACE",
        "/proc/sys",
        "/run/relive/io",
        "/sys/kernel",
        "/run/x",
    ],
)
def test_files_at_places_that_are_none(
    commit: Commit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str, kind: LayerKind
) -> None:
    place = point.replace("PLACE", str(tmp_path).lstrip("/"))
    made = _pointed(commit, place, kind)
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    assert "has files at" in commit.refused()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("directory", ["home", "tools"])
def test_files_in_the_place_of_relive_s_own_programs(
    commit: Commit, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    settings = commit.relive.settings
    place = settings.home / "store" if directory == "home" else settings.tools_path
    made = _pointed(commit, str(place), LayerKind.OVERLAY)
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    assert "Relive's own files" in commit.refused()


def test_programs_of_relive_s_names_in_a_layer_of_the_root_do_not_run(
    commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies over the tools is hidden by the tools."""
    tools = commit.relive.settings.tools_path
    above = [str(parent).lstrip("/") for parent in [*reversed(tools.parents), tools][1:]]
    entries = [FileEntry(path=path, kind=EntryKind.DIRECTORY, mode=0o755) for path in above]
    fake = FileEntry(path=f"{above[-1]}/relive-init", kind=EntryKind.LINK, link="/bin/false")
    known = {
        entry.path
        for layer in commit.store.manifest(commit.store.resolve(commit.id)).layers
        for entry in layer.entries
    }
    made = _with_entries(commit, *(one for one in entries if one.path not in known), fake)
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    branch = commit.restore()
    try:
        assert branch.is_alive and os.readlink(f"/proc/{branch.facts.init}/exe").endswith("/relive-init")
    finally:
        branch.stop()


@pytest.mark.parametrize("name", ["run", "dev", "var"])
def test_links_in_the_place_of_directories_that_a_branch_mounts(
    commit: Commit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Followed before the branch has its root, they would lead to the host."""
    manifest = commit.store.manifest(commit.store.resolve(commit.id))
    layers = [
        layer.model_copy(
            update={
                "entries": [
                    *(one for one in layer.entries if one.path.split("/")[0] != name),
                    FileEntry(path=name, kind=EntryKind.LINK, link=str(tmp_path)),
                ]
            }
        )
        if layer.point == "/"
        else layer
        for layer in manifest.layers
    ]
    made = manifest.model_copy(update={"layers": layers})
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    with suppress(ReliveError):  # refused, or hidden by what is mounted there
        commit.restore().stop()
    assert os.listdir(tmp_path) == []


def test_libraries_of_a_commit_are_not_those_of_criu(commit: Commit, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a commit that holds CRIU's own number, so that CRIU is started late, and a list of libraries to load first, THEN CRIU
    has begun before names lead to the branch.
    """
    manifest = commit.store.manifest(commit.store.resolve(commit.id))
    known = {entry.path for layer in manifest.layers for entry in layer.entries}
    etc = [FileEntry(path="etc", kind=EntryKind.DIRECTORY, mode=0o755)] if "etc" not in known else []
    made = _with_entries(commit, *etc, FileEntry(path="etc/ld.so.preload", kind=EntryKind.LINK, link="/evil"))
    seen: list[str] = []
    started = builder.CriuProcess.__init__

    def start(self: object, *arguments: object, **options: object) -> None:
        seen.append(
            os.readlink("/etc/ld.so.preload") if Path("/etc/ld.so.preload").is_symlink() else "the host's"
        )
        started(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builder.CriuProcess, "__init__", start)
    monkeypatch.setattr(builder, "free_number", lambda taken: 28_000 if taken else 30_000)
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    commit.restore().stop()
    assert seen == ["the host's"] * 2


@pytest.mark.parametrize("key", ["file[1:2]", "pipe:[1]x", "mnt[]", "tty[../x]"])
def test_external_names_that_are_none(commit: Commit, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    manifest = commit.store.manifest(commit.store.resolve(commit.id))
    made = manifest.model_copy(update={"outlets": [Outlet(key=key, writable=True)]})
    monkeypatch.setattr(commit.store, "manifest", lambda _: made)
    assert key in commit.refused()
