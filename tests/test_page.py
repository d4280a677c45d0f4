"""Pages need nothing from elsewhere, and their titles and tables hold what they were given."""

from __future__ import annotations

from relive.page import page, table


def test_a_title_is_text_and_never_markup():
    made = page("</title><script>x</script>", ["<p>body</p>"], style=".own { color: red; }", width=900)
    assert "<title>&lt;/title&gt;&lt;script&gt;x&lt;/script&gt;</title>" in made
    assert "<p>body</p>" in made
    assert "max-width: 900px" in made
    assert ".own { color: red; }" in made


def test_a_browser_is_told_to_load_and_run_nothing():
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page("x", [])


def test_both_colour_schemes_are_styled():
    assert "prefers-color-scheme: dark" in page("x", [])


def test_all_columns_of_a_table_but_the_first_are_numbers_unless_said_otherwise():
    assert table(["a", "b"], [["x", "1"]]) == (
        "<table><tr><th>a</th><th class=number>b</th></tr><tr><td>x</td><td class=number>1</td></tr></table>"
    )
    assert "class=number" not in table(["a", "b"], [["x", "1"]], numbers=())
