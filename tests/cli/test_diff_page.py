"""A difference as a page: its layers fold, what came out of a service is text, and nothing is loaded."""

from __future__ import annotations

import re

from relive.cli.diff_page import diff_page

LINES = [
    "shop: a -> b",
    "They are of different starts.",
    "",
    "files: 1 differ",
    "  content  /srv/<b>.txt",
    "    ",
    "    +<script>alert(1)</script>",
    "",
    "memory: 0 of 9 pages differ",
    "",
    "Python values: 100 differ",
    *(f"  cache[{number}]: 1 -> 2" for number in range(100)),
]


def test_each_layer_folds_and_short_ones_are_open():
    text = diff_page("a and b", LINES)
    assert re.findall(r"<details( open)?><summary>(.*?)</summary>", text) == [
        (" open", "files: 1 differ"),
        ("", "memory: 0 of 9 pages differ"),
        ("", "Python values: 100 differ"),
    ]
    assert "<p>shop: a -&gt; b</p>" in text and "<h1>a and b</h1>" in text
    assert "cache[99]: 1 -&gt; 2" in text


def test_markup_of_a_service_is_text_and_nothing_is_loaded():
    text = diff_page("<i>", LINES)
    assert "<script" not in text and "<b>" not in text and "<i>" not in text
    assert not re.search(r"(src|href)=|url\(|@import", text)
    assert "default-src 'none'" in text


def test_what_has_no_layers_is_told_all_the_same():
    assert "<details" not in diff_page("a", ["No event inside differs."])
