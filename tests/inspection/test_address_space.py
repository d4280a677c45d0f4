import pytest

from relive.images import criu_images_pb2 as pb
from relive.inspection.address_space import ANON_SHARED, PageRuns, permissions, region_name
from relive.store.pages.runs import PageFile
from relive.store.pages.size import PAGE

RUNS = PageRuns.of(PageFile("pages-1.img", "pagemap-1.img", 0, [(10, 2), (4, 1), (20, 3)]))


@pytest.mark.parametrize(
    ("page", "position"), [(4, 2), (10, 0), (11, 1), (22, 5), (5, None), (0, None), (23, None)]
)
def test_pages_are_found_by_address_though_their_file_has_another_order(page, position):
    assert RUNS.position(page) == position


@pytest.mark.parametrize(
    ("begin", "end", "pages"), [(0, 100, 6), (11, 21, 2), (5, 10, 0), (4, 5, 1), (23, 30, 0), (10, 11, 1)]
)
def test_pages_within_a_mapping_are_counted(begin, end, pages):
    assert RUNS.within(begin * PAGE, end * PAGE) == pages


def vma(**fields: int) -> pb.VmaEntry:
    wanted = {
        "start": 0x1000,
        "end": 0x2000,
        "pgoff": 0,
        "shmid": 5,
        "prot": 3,
        "flags": 2,
        "status": 1,
        "fd": -1,
    }
    return pb.VmaEntry(**wanted | fields)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"status": 1 | 1 << 6}, "/lib"),
        ({"status": 1 | 1 << 5}, "[heap]"),
        ({"status": 1, "start": 0x5000, "end": 0x6000}, "[heap]"),
        ({"status": 1, "start": 0x9000, "end": 0xA000}, "[stack]"),
        ({"status": 1 | ANON_SHARED, "shmid": 6}, "[shared memory 0x6]"),
        ({"status": 1}, ""),
    ],
)
def test_a_mapping_is_named_by_what_it_is(fields, name):
    zero = dict.fromkeys(
        "mm_start_code mm_end_code mm_start_data mm_end_data mm_arg_start mm_arg_end mm_env_start mm_env_end".split(),
        0,
    )
    mm = pb.MmEntry(**zero, mm_start_stack=0x9800, mm_start_brk=0x5000, mm_brk=0x6000, exe_file_id=1)
    assert region_name(vma(**fields), mm, {5: "/lib"}) == name


def test_permissions_are_written_as_the_kernel_writes_them():
    assert permissions(vma(prot=5, flags=1)) == "r-xs"
    assert permissions(vma(prot=0)) == "---p"
