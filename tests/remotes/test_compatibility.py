"""Whether a host can run a commit: said before anything travels, with what lacks."""

from __future__ import annotations

import pytest

from relive.errors import HostUnfit
from relive.model.commit import HostFacts
from relive.remotes.compatibility import refuse_unfit, what_lacks
from store.builders import commit

from .conftest import HERE
from .test_push import fetch, send

NEEDED = HostFacts(
    name="there", kernel="6.1.0-18-amd64", criu="4.1.1", machine="x86_64", cpu=["avx2", "avx512f", "sse2"]
)


@pytest.mark.parametrize(
    "better",
    [
        {},
        {"name": "elsewhere"},
        {"kernel": "6.1.0-9-amd64"},
        {"kernel": "6.18.5"},
        {"kernel": "10.0"},
        {"criu": "4.1.1"},
        {"criu": "4.2"},
        {"cpu": ["amx_tile", "avx2", "avx512f", "sse2"]},
    ],
)
def test_a_host_that_has_as_much_or_more_fits(better):
    assert what_lacks(NEEDED, NEEDED.model_copy(update=better)) == []


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        ({"machine": "aarch64"}, "the machine is aarch64, the commit's was x86_64"),
        ({"machine": None}, "the machine is unknown, the commit's was x86_64"),
        ({"cpu": ["sse2"]}, "the CPU lacks avx2 avx512f"),
        ({"cpu": None}, "the CPU lacks avx2 avx512f sse2"),
        ({"kernel": "5.15.0"}, "the kernel is 5.15.0, the commit's was 6.1.0-18-amd64"),
        ({"kernel": "6.0.99"}, "the kernel is 6.0.99, the commit's was 6.1.0-18-amd64"),
        ({"criu": "4.1"}, "CRIU is 4.1, the commit's was 4.1.1"),
        ({"criu": "3.17.1"}, "CRIU is 3.17.1, the commit's was 4.1.1"),
        ({"criu": "unknown"}, "there is no CRIU of a known version, the commit's was 4.1.1"),
    ],
)
def test_what_lacks_is_named(worse, words):
    assert what_lacks(NEEDED, NEEDED.model_copy(update=worse)) == [words]


def test_all_that_lacks_is_named_at_once_and_what_to_do():
    here = NEEDED.model_copy(update={"kernel": "4.19", "criu": "3.0", "cpu": []})
    with pytest.raises(HostUnfit, match="cannot run the commit, which was taken on there") as caught:
        refuse_unfit(NEEDED, here)
    assert str(caught.value.cause).count(";") == 2
    assert "--force" in str(caught.value.remedy)


def test_a_long_list_of_cpu_features_is_cut():
    (words,) = what_lacks(NEEDED.model_copy(update={"cpu": [f"f{n:02}" for n in range(20)]}), NEEDED)
    assert words.endswith("f11 and 8 more")


def test_what_a_commit_does_not_tell_is_no_reason_against_it():
    silent_one = HostFacts(name="old", kernel="self-made", criu="unknown")
    assert (
        what_lacks(silent_one, HostFacts(name="h", kernel="6.1", criu="4.2", machine="x86_64", cpu=[])) == []
    )


def test_a_commit_for_a_better_host_is_fetched_only_by_force(sender, receiver, directory_remote):
    one = commit(sender.store)
    send(sender, directory_remote, one.id)
    old = HERE.model_copy(update={"kernel": "5.10"})
    with pytest.raises(HostUnfit, match=r"5\.10"):
        fetch(receiver, directory_remote, one.id, here=old)
    assert not list((receiver.home / "store" / "arriving").glob("*-*"))
    assert fetch(receiver, directory_remote, one.id, here=old, force=True).is_new
