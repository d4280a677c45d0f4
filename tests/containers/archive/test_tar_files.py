"""Checkpoint archives as hostile input: refused in words, before anything harmful is done, and nothing of them is kept."""

from __future__ import annotations

import gzip
import json
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.containers.archive import tar_files, unpacking
from relive.containers.archive.tar_files import TarReader
from relive.errors import ArchiveInvalid, DiskFull, ReliveError
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import messages
from relive.model.commit import HostFacts
from relive.operations.imports import import_archive
from relive.store import Store
from remotes.conftest import silent

from .checkpoints import FIRST, Entry, changed, contents_of, entries_of, image, plain, tar_of

HERE = HostFacts(name="here", kernel="6.1", criu="4.2", machine="x86_64")
FILES = contents_of(plain(FIRST))
CONFIG, SPEC = json.loads(FILES["config.dump"]), json.loads(FILES["spec.dump"])


def take(store, path):
    return import_archive(store, path, HERE, keys=pytest.fail, force=False, show=silent)


def kept(store: Store) -> list[Path]:
    """Files of the store that hold something of a commit or of one in the making."""
    home = store.internals.directory
    return [
        path
        for kind in ("objects", "packs", "placements", "manifests", "incoming", "arriving")
        for path in (home / kind).rglob("*")
        if path.is_file() and path.name != "lock"
    ]


@pytest.fixture
def refuses(sender, tmp_path):
    """Hands an archive to the import; returns the error's words after looking that nothing is left."""

    def check(data: bytes, kind: type[ReliveError] = ArchiveInvalid) -> str:
        (tmp_path / "x.tar").write_bytes(data)
        with pytest.raises(kind) as caught:
            take(sender.store, tmp_path / "x.tar")
        assert caught.value.remedy
        assert kept(sender.store) == [] and sender.store.log() == []
        return str(caught.value)

    return check


def header(name: str, kind: bytes = b"0", size: int = 0, **facts: object) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    for key, value in facts.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.GNU_FORMAT)


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def records(*pairs: tuple[str, str]) -> bytes:
    """A PAX header."""
    body = b""
    for key, value in pairs:
        rest = f" {key}={value}\n".encode()
        length = len(rest) + 1
        while length != len(rest) + len(str(length)):
            length = len(rest) + len(str(length))
        body += str(length).encode() + rest
    return header("pax", b"x", len(body)) + block(body)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("a", kind=tarfile.SYMTYPE, facts={"linkname": "/etc/passwd"}), "a symbolic link"),
        (Entry("a", kind=tarfile.LNKTYPE, facts={"linkname": "spec.dump"}), "a hard link"),
        (Entry("a", kind=tarfile.CHRTYPE, facts={"devmajor": 1, "devminor": 3}), "a device"),
        (Entry("a", kind=tarfile.BLKTYPE), "a device"),
        (Entry("a", kind=tarfile.FIFOTYPE), "a pipe"),
        (Entry("a", kind=tarfile.CONTTYPE), "an entry of type"),
        (Entry("a", kind=b"V"), "an entry of type"),
        (Entry("/etc/passwd"), "'/etc/passwd'"),
        (Entry("../a"), r"'../a'"),
        (Entry("checkpoint/../../a"), "lead out"),
        (Entry("checkpoint/./a"), "lead out"),
        (Entry("checkpoint//a"), "lead out"),
        (Entry("a\x1b[2J"), "lead out"),
        (Entry("a" * 256), "lead out"),
        (Entry("/".join(["a" * 99] * 11)), "lead out"),
        (Entry("spec.dump"), "twice"),
        (Entry("./spec.dump"), "twice"),
        (Entry("spec.dump/a"), "below a file"),
        (Entry("pod.dump"), "whole pod"),
        (Entry("checkpointed.pods"), "several pods"),
        (Entry("oci-layout"), "OCI image"),
        (Entry("pre-checkpoint/a"), "pre-checkpoint"),
    ],
)
def test_an_entry_that_has_no_place_in_an_archive_is_refused_by_name(refuses, entry, words):
    assert words in refuses(tar_of([*entries_of(plain(FIRST)), entry]))


@pytest.mark.parametrize(
    ("bytes_", "words"),
    [
        (header("a", b"S"), "sparse"),
        (header("a/", b"5", 512) + bytes(512), "has content"),
        (records(("path", "../a")) + header("a"), "'../a'"),
        (records(("path", "a\0b")) + header("a"), "lead out"),
        (records(("path", "")) + header("a"), "lead out"),
        (records(("GNU.sparse.major", "1")) + header("a"), "sparse"),
        (records(("size", "-1")) + header("a"), "size='-1'"),
        (records(("size", "9" * 16)) + header("a"), "size='999"),
        (records(("mtime", "now")) + header("a"), "mtime is 'now'"),
        (records(("uid", "4294967295")) + header("a"), "uid is 4294967295"),
        (header("pax", b"x", 11) + block(b"99 path=a\n\n") + header("a"), "PAX header is damaged"),
        (header("pax", b"x", 10) + block(b"10 path=a/") + header("a"), "PAX header is damaged"),
        (header("pax", b"x", 8) + block(b"0 path=a") + header("a"), "PAX header is damaged"),
        (header("pax", b"x", 4) + block(b"path") + header("a"), "PAX header is damaged"),
        (header("pax", b"x", 12) + block(b"12 path=\xff\xff\xff\n") + header("a"), "no UTF-8"),
        (header("pax", b"x", 1 << 40), "a header has 1099511627776 bytes"),
        (header("pax", b"g", 0), "an entry of type"),
        (header("././@LongLink", b"L", 1 << 30), "a header has 1073741824 bytes"),
        (header("././@LongLink", b"L", 6) + block(b"../../") + header("a"), "lead out"),
        (header("././@LongLink", b"L", 4) + block(b"\xff\xfe\xfd\0") + header("a"), "no UTF-8"),
        (header("././@LongLink", b"K", 4) + block(b"/etc") + header("a"), "an entry of type"),
        (records(("path", "a")), "nothing follows"),
        (header("a", size=8 << 80), "damaged|bytes"),
        (header("a") + b"\xff" * 512, "damaged"),
    ],
)
def test_a_header_that_lies_is_refused(refuses, bytes_, words):
    found = refuses(bytes_ + bytes(1024))
    assert any(word in found for word in words.split("|")), found


def test_what_would_not_fit_on_the_disk_is_refused_before_it_is_written(refuses):
    assert "does not fit" in refuses(header("a", size=1 << 48) + bytes(1024), DiskFull)


def test_a_number_of_entries_without_end_is_refused(refuses, monkeypatch):
    monkeypatch.setattr(tar_files, "_MEMBERS_MOST", 50)
    assert "more than 50" in refuses(tar_of(Entry(f"a{number}") for number in range(60)))


def test_images_beyond_all_measure_are_refused(refuses, monkeypatch):
    monkeypatch.setattr(unpacking, "_BUNDLED_MOST", 4000)
    assert "besides memory" in refuses(plain(FIRST))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_bomb_takes_no_memory(refuses, pack):
    """Zeros without end in a header, and behind the end."""
    bomb = header("pax", b"x", 1 << 26) + bytes(1 << 26)
    behind = plain(FIRST) + bytes(1 << 26)
    for data, words in ((bomb, "a header has"), (behind, "behind its end")):
        packed = pack(data)
        del data
        tracemalloc.start()
        assert words in refuses(packed)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 32 << 20
    assert len(packed) < 1 << 20


def test_a_window_that_is_too_large_is_refused(refuses):
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert "cannot be unpacked" in refuses(packer.compress(plain(FIRST)) + packer.flush())


@pytest.mark.parametrize("magic", [b"BZh9", b"\xfd7zXZ\0", b"\x04\x22\x4d\x18"])
def test_another_compression_is_named(refuses, magic):
    assert "unpack it" in refuses(magic + bytes(2000))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["tar", "gzip", "zstd"])
def test_an_archive_that_is_cut_off_anywhere_is_refused(sender, tmp_path, pack):
    """But in what only fills it up behind its end, and there is nothing to see that zstd lacks its last bytes."""
    data = plain(FIRST)
    end = len(data.rstrip(b"\0"))
    packed = pack(data[: end + -end % 512 + 1024])
    target = tmp_path / "x"
    for size in [*range(0, len(packed) - 1024, len(packed) // 60), len(packed) - 1030]:
        target.write_bytes(packed[:size])
        with pytest.raises(ArchiveInvalid):
            take(sender.store, target)
    assert kept(sender.store) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(plain(FIRST)) - 1), st.integers(1, 255), st.booleans())
def test_any_other_byte_is_refused_in_words_or_makes_another_commit(sender, tmp_path, position, change, head):
    """Never a traceback. Headers are hit as often as contents."""
    data = bytearray(plain(FIRST))
    position = position // 512 * 512 + position % 160 if head else position
    data[position] ^= change
    (tmp_path / "x").write_bytes(data)
    try:
        taken = take(sender.store, tmp_path / "x")
    except ReliveError:
        return
    assert sender.store.manifest(taken.commit).container is not None


def test_a_directory_that_stands_for_the_archive_itself_is_passed_over():
    data = tar_of([Entry("./", kind=b"5"), Entry("./a", b"1")])
    position = 0

    def read(size):
        nonlocal position
        position += size
        return data[position - size : position]

    assert [member.path for member in TarReader("x", read).members()] == ["a"]


# -- what the members hold -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.dump": None}, "no config.dump"),
        ({"spec.dump": None}, "no spec.dump"),
        ({"config.dump": b""}, "no JSON"),
        ({"config.dump": b"[" * 100_000}, "no JSON"),
        ({"config.dump": b"[]"}, "no JSON object"),
        ({"config.dump": b"\xff{}"}, "no JSON"),
        ({"config.dump": json.dumps(CONFIG | {"name": "../../x"}).encode()}, "name is '../../x'"),
        ({"config.dump": json.dumps(CONFIG | {"name": 7}).encode()}, "name is '7'"),
        ({"config.dump": json.dumps(CONFIG | {"name": "a" * 300}).encode()}, "name is 'aaa"),
        ({"config.dump": json.dumps(CONFIG | {"name": ""}).encode()}, "name is ''"),
        ({"config.dump": json.dumps(CONFIG | {"id": ""}).encode()}, "id is ''"),
        ({"config.dump": json.dumps(CONFIG | {"id": "\x1b[2J"}).encode()}, "id is"),
        ({"config.dump": json.dumps(CONFIG | {"rootfsImageName": "\ud800"}).encode()}, "rootfsImageName is"),
        ({"config.dump": json.dumps(CONFIG | {"runtime": ["runc"]}).encode()}, "runtime is"),
        ({"spec.dump": json.dumps(SPEC | {"process": {"args": "x"}}).encode()}, "names a command"),
        ({"spec.dump": json.dumps(SPEC | {"process": {"args": ["\ud800"]}}).encode()}, "no Unicode"),
        ({"spec.dump": json.dumps(SPEC | {"process": {"args": ["a" * 2_000_000]}}).encode()}, "too long"),
    ],
)
def test_a_container_that_cannot_be_is_refused(refuses, files, words):
    assert words in refuses(tar_of(changed(FIRST, files)))


@pytest.mark.parametrize(
    "time",
    [
        "9999-99-99T00:00:00Z",
        "9999-01-01T00:00:00Z",
        "1969-01-01T00:00:00Z",
        "soon",
        "2026-01-01T00:00:00.1234567890Z",
    ],
)
def test_a_time_that_is_none_counts_for_nothing(sender, tmp_path, time):
    files = {"config.dump": json.dumps(CONFIG | {"checkpointedTime": time}).encode()}
    (tmp_path / "x").write_bytes(tar_of(changed(FIRST, files)))
    manifest = sender.store.manifest(take(sender.store, tmp_path / "x").commit)
    assert manifest.taken_wall_ns == 1_795_292_930_000_000_000


def pagemap(*runs: tuple[int, int, int], pages: int = 1) -> bytes:
    entries = [
        pb.PagemapEntry(vaddr=first << 12, nr_pages=count, flags=flags) for first, count, flags in runs
    ]
    return image(FILES["checkpoint/pagemap-1.img"], pb.PagemapHead(pages_id=pages), *entries)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("inventory", None, "inventory.img is missing"),
        ("inventory", b"", "cut off"),
        ("inventory", FILES["checkpoint/pstree.img"], "magic"),
        ("inventory", FILES["checkpoint/inventory.img"][:-1], "cut off"),
        ("pstree", None, "pstree.img is missing"),
        ("pstree", FILES["checkpoint/pstree.img"][:8], "names no process"),
        ("pstree", FILES["checkpoint/pstree.img"][:-1], "cut off"),
        ("files", None, "files.img is missing"),
        ("files", FILES["checkpoint/files.img"][:-3], "cut off"),
        ("core-1", None, "core-1.img is missing"),
        ("core-1", FILES["checkpoint/core-1.img"][:8], "is empty"),
        ("core-1", b"\0" * 100, "magic"),
        ("mm-1", None, "mm-1.img is missing"),
        ("pagemap-1", None, "pagemap-1.img is missing"),
        ("pagemap-1", b"", "magic"),
        ("pages-1", None, "not there"),
        ("pages-1", FILES["checkpoint/pages-1.img"][:-1], "describes 20480"),
        ("pages-1", FILES["checkpoint/pages-1.img"] * 2, "describes 20480"),
        ("pagemap-1", pagemap((1, 5, 4), pages=2), "pages-2.img"),
        ("pagemap-1", pagemap((1, 2, 4), (9, 3, 5)), "incremental"),
        ("pagemap-1", pagemap((1, 3, 4), (2, 2, 4)), "twice"),
        ("pagemap-1", pagemap((1, 2**63, 4)), "describes"),
        ("pagemap-1", pagemap((1, 0, 4)), "describes 0"),
    ],
)
def test_images_that_are_missing_or_do_not_fit_are_refused(refuses, name, data, words):
    assert words in refuses(tar_of(changed(FIRST, {f"checkpoint/{name}.img": data})))


def test_memory_that_nothing_describes_is_refused(refuses):
    assert "no pagemap" in refuses(tar_of([*entries_of(plain(FIRST)), Entry("checkpoint/pages-7.img", b"x")]))


def test_a_socket_that_cannot_be_is_refused(refuses):
    files = FILES["checkpoint/files.img"]
    socket = pb.InetSkEntry(
        id=9, ino=9, family=2, type=1, proto=6, state=10, src_port=80, dst_port=0, src_addr=[1, 2, 3]
    )
    odd = pb.FileEntry(type=2, id=9, isk=socket)
    entries = [pb.FileEntry.FromString(body) for body in messages("files.img", files)]
    assert "3 words" in refuses(tar_of(changed(FIRST, {"checkpoint/files.img": image(files, *entries, odd)})))


def test_a_process_may_have_no_page_of_its_own(sender, tmp_path):
    (tmp_path / "x").write_bytes(
        tar_of(changed(FIRST, {"checkpoint/pages-1.img": b"", "checkpoint/pagemap-1.img": pagemap()}))
    )
    assert take(sender.store, tmp_path / "x").is_new


def test_a_zombie_has_no_memory(sender, tmp_path):
    """It has a number and an exit status."""
    core = FILES["checkpoint/core-1.img"]
    zombie = pb.CoreEntry.FromString(messages("core-1.img", core)[0])
    zombie.tc.task_state = 6
    tree = FILES["checkpoint/pstree.img"]
    first = pb.PstreeEntry.FromString(messages("pstree.img", tree)[0])
    child = pb.PstreeEntry(pid=2, ppid=1, pgid=1, sid=1, threads=[2])
    files = changed(FIRST, {"checkpoint/pstree.img": image(tree, first, child)})
    (tmp_path / "x").write_bytes(tar_of([*files, Entry("checkpoint/core-2.img", image(core, zombie))]))
    processes = sender.store.manifest(take(sender.store, tmp_path / "x").commit).target.processes
    assert [one.pid for one in processes] == [1, 2]
