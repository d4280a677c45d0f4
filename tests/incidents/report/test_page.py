"""The page is whole by itself, and what a service held is text on it and never markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from relive.incidents.report.detail import Account
from relive.incidents.report.page import incident_page

from .builders import HOSTILE, package_json

CHROMIUM = shutil.which("chromium")


class Seen(HTMLParser):
    """What a parser makes of it: elements, what stands open, and text."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def made(account: Account) -> str:
    return incident_page(account)


def seen(page: str) -> Seen:
    parser = Seen()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def hostile_package() -> bytes:
    """Hostile in every text that a service can choose."""
    frame = {
        "file": HOSTILE,
        "line": 2,
        "function": HOSTILE,
        "module": HOSTILE,
        "own": True,
        "source": {"first": 1, "lines": [HOSTILE, f"</pre>{HOSTILE}"]},
        "locals": {HOSTILE: f"</td>{HOSTILE}"},
    }
    return package_json(
        type=HOSTILE,
        text=f"</code>{HOSTILE}",
        thread=HOSTILE,
        chain=[
            {"type": HOSTILE, "text": HOSTILE, "relation": None, "frames": [frame, frame | {"own": False}]}
        ],
        environment={HOSTILE: HOSTILE},
        versions={"python": HOSTILE, "packages": {HOSTILE: HOSTILE}},
        argv=[HOSTILE],
        cut=[HOSTILE],
    )


def test_the_page_is_whole_and_needs_nothing_else(told):
    page = made(told())
    found = seen(page)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not found.attributes & {"src", "href", "onerror", "onload"}
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page


def test_it_shows_the_exception_the_frames_with_source_and_locals_and_what_belongs_to_it(told):
    text = " ".join(seen(made(told())).text)
    for part in (
        "KeyError: 'EUR'",
        "/srv/shop/rates.py:41",
        "return RATES[order.currency] * order.amount",
        "Order(id=17, currency='EUR')",
        "2 more locals were not kept",
        "1 frame of libraries",
        "SELECT … FROM orders WHERE id = ?",
        "request 7, from event 2",
        "with changes in /srv/shop",
        "relive reproduce 1",
        "The answer",
        "no replay: there is no commit before it",
        "starlette 0.41",
        "API_KEY=<secret:22222222>",
    ):
        assert part in text, part


def test_the_timeline_is_drawn_in_lanes_to_scale(told):
    page = made(told())
    bars = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)"[^>]*><title>(\w+):', page)
    by_label: dict[str, list[tuple[float, int, float]]] = {}
    for x, y, width, label in bars:
        by_label.setdefault(label, []).append((float(x), int(y), float(width)))
    ((start, _, whole),) = by_label["request"]
    ((x, _, width),) = by_label["query"]
    assert (x - start) / whole == pytest.approx(2 / 24.5, abs=0.01)
    assert width / whole == pytest.approx(2 / 24.5, abs=0.01)
    assert len({y for _, y, _ in by_label["http"]}) == 2
    assert len(by_label["clock"]) == 5


def test_hostile_texts_become_no_markup_for_a_parser(told):
    found = seen(made(told(hostile_package())))
    assert not found.tags & {"script", "img"}
    assert "onerror" not in found.attributes
    assert HOSTILE in " ".join(found.text)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
def test_hostile_texts_become_no_markup_for_a_browser(told, tmp_path: Path):
    path = tmp_path / "incident.html"
    path.write_text(made(told(hostile_package())))
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )  # fmt: skip
    assert "<title>Incident 1 of pay</title>" in done.stdout
    assert "<rect" in done.stdout
    assert "<script" not in done.stdout
    assert "<img" not in done.stdout
    assert "&lt;script&gt;" in done.stdout


def test_an_incident_of_which_little_is_known_has_a_page_too(told):
    text = " ".join(seen(made(told(b"{}", inside=False, proxy=False))).text)
    assert "answered with status 500" in text
    assert "an error package cannot be read" in text
