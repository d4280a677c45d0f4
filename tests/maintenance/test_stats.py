"""What takes the room: the sums are those of the disk, and every byte is laid to what it is for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.maintenance.stats import measure
from relive.maintenance.stats_page import stats_page
from relive.maintenance.usage import CommitUsage, share_out
from relive.model.commit import CommitId
from relive.store.keyring import Keyring
from store.builders import commit
from store.series import Service, take

names = st.sets(st.sampled_from("abcdefg"))
facts = st.lists(st.tuples(st.sampled_from(["pay", "mail"]), names), max_size=6).map(
    lambda drawn: [
        CommitUsage(CommitId(f"{number}"), name, number, 100, 10, needs)
        for number, (name, needs) in enumerate(drawn)
    ]
)


@given(facts, st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 50)))
def test_dropping_a_commit_takes_what_it_has_alone_from_its_service(commits, sizes):
    services, shares = share_out(commits, sizes)
    stored = {one.name: one.stored for one in services}
    assert [one.stored for one in services] == sorted(stored.values(), reverse=True)
    for at, share in enumerate(shares):
        left, _ = share_out([*commits[:at], *commits[at + 1 :]], sizes)
        rest = next((one.stored for one in left if one.name == share.name), 0)
        others = [one for other, one in zip(commits, commits, strict=True) if other is not commits[at]]
        used = {name for one in others for name in one.needs}
        assert share.alone == sum(sizes.get(name, 0) for name in commits[at].needs - used)
        assert stored[share.name] - rest >= share.alone


def disk_use(home: Path) -> int:
    found = (
        path for part in ("packs", "placements", "manifests", "objects") for path in (home / part).rglob("*")
    )
    return sum(path.stat().st_size for path in found if path.is_file())


def test_every_byte_is_laid_to_what_it_is_for(store, home):
    service = Service(pages=300)
    first = take(store, service, None).id
    for pages in service._memory.values():
        pages[:256] += 1_000_003
    service.live()
    take(store, service, first)
    files = {"f": os.urandom(5000), "g": os.urandom(3000)}
    other = commit(store, name="mail", files=files, pages=os.urandom(9 * 4096), wall_ns=5)
    found = measure(store)
    assert sum(found.dominance.values()) == found.stored >= disk_use(home)
    assert 8000 <= found.dominance["file"] < 8100  # compressed, with what a frame has beside its pages
    assert found.dominance["full"] > 9 * 4096
    assert 0 < found.dominance["xor"] < found.dominance["full"]
    assert found.dominance["index"] > 0
    assert found.dominance["dead"] == found.dominance["unknown"] == 0
    assert {one.name: one.commits for one in found.services} == {"pay": 2, "mail": 1}
    (mail,) = (one for one in found.commits if one.name == "mail")
    assert mail.alone >= 8000 + 9 * 4096
    assert found.logical == sum(line.bytes for line in store.log())
    store.delete(first)
    assert measure(store).dominance["dead"] > 0
    store.delete(other.id)
    assert measure(store).dominance["file"] == 0


def test_pages_that_are_sealed_with_a_key_that_is_not_there_are_told_apart(tmp_path, store):
    Keyring(tmp_path / "keys").make_store_key()
    commit(store, pages=os.urandom(9 * 4096))
    assert measure(store).dominance["unknown"] == 0
    (tmp_path / "keys" / "store.key").unlink()
    assert measure(store).dominance["unknown"] > 9 * 4096


def test_an_empty_store_can_be_measured_and_shown(store):
    found = measure(store)
    assert (found.logical, found.services, found.commits) == (0, [], [])
    assert "nothing to plot" in stats_page(found, where="x")


class Balanced(HTMLParser):
    """Fails on tags that are not closed in order; collects those that load or run something."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.reaches_out: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "link", "img", "iframe", "object") or any(
            k in ("src", "href") for k, _ in attrs
        ):
            self.reaches_out.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        pass


@pytest.fixture
def page(store, tmp_path) -> Path:
    service, parent = Service(pages=30), None
    for _ in range(4):
        parent = take(store, service, parent, name="<b>&pay").id
        service.live()
    path = tmp_path / "stats.html"
    path.write_text(stats_page(measure(store), where="/st<o>re"))
    return path


def test_the_page_is_whole_needs_nothing_else_and_shows_what_names_say(page):
    text = page.read_text()
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert (parser.open, parser.reaches_out) == ([], [])
    assert "url(" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;&amp;pay" in text
    assert len(re.findall(r"<polyline", text)) == 2
    (stored,) = re.findall(r'<polyline points="([^"]+)"[^>]*#3266a8', text)
    heights = [float(point.split(",")[1]) for point in stored.split()]
    assert len(heights) == 4
    assert heights == sorted(heights, reverse=True)


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
def test_a_browser_shows_the_page(page, tmp_path):
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )  # fmt: skip
    assert "<polyline" in done.stdout
    assert "&lt;b&gt;&amp;pay" in done.stdout
