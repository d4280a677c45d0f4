"""What a patch makes of a service's files, and which it is not for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import pytest

from relive.errors import PatchUnfit
from relive.trial.patches import apply_patch, paths_of_patch

OLD = "one\ntwo\nthree\n"
NEW = "one\nTWO\nthree\n"


def patch(name: str, old: str = OLD, new: str = NEW, prefix: tuple[str, str] = ("a/", "b/")) -> str:
    lines = difflib.unified_diff(
        old.splitlines(True), new.splitlines(True), prefix[0] + name, prefix[1] + name
    )
    return "".join(lines)


def applied(text: str, files: Mapping[str, str], *roots: str) -> tuple[str, dict[str, str]]:
    root, changes = apply_patch(text, roots, files.get)
    return root, {one.path: one.new for one in changes}


def test_its_files_are_found_below_the_first_directory_that_has_them():
    files = {"/srv/app/lib/words.py": OLD, "/srv/words.py": OLD}
    assert applied(patch("lib/words.py"), files, "/srv", "/srv/app") == (
        "/srv/app",
        {"/srv/app/lib/words.py": NEW},
    )
    assert applied(patch("words.py"), files, "/srv/app", "/srv") == ("/srv", {"/srv/words.py": NEW})
    assert paths_of_patch(patch("lib/words.py")) == ["lib/words.py"]


def test_one_that_diff_made_has_no_directories_in_front():
    files = {"/srv/lib/words.py": OLD}
    assert applied(patch("lib/words.py", prefix=("", "")), files, "/srv")[1] == {"/srv/lib/words.py": NEW}
    assert paths_of_patch(patch("words.py", prefix=("", ""))) == ["words.py"]
    assert applied(patch("words.py", prefix=("", "")), {"/srv/words.py": OLD}, "/srv")[0] == "/srv"


def test_the_directory_is_that_to_whose_files_it_applies():
    files = {"/srv/words.py": "other\n", "/old/words.py": OLD}
    assert applied(patch("words.py"), files, "/srv", "/old")[0] == "/old"


def test_a_new_file_comes_with_a_change_of_one_that_is_there():
    made = "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    files = {"/srv/words.py": OLD}
    assert applied(patch("words.py") + made, files, "/srv")[1] == {
        "/srv/words.py": NEW,
        "/srv/new.py": "x = 1\n",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no patch"),
        ("that is no patch\n", "no patch"),
        (patch("words.py", "other\n", "text\n"), "does not apply"),
        (patch("elsewhere.py"), "of no file of the service"),
        ("diff --git a/words.py b/words.py\ndeleted file mode 100644\n--- a/words.py\n+++ /dev/null\n"
         "@@ -1,3 +0,0 @@\n-one\n-two\n-three\n", "deletes"),
        ("diff --git a/words.py b/words.py\nold mode 100644\nnew mode 120000\n", "no patch|deletes|does not apply"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied_is_refused(text, words):
    with pytest.raises(PatchUnfit, match=words):
        applied(text, {"/srv/words.py": OLD}, "/srv")


@pytest.mark.parametrize("form", ["..", "absolute"])
def test_nothing_is_written_outside_of_where_a_patch_is_applied(tmp_path, form):
    """GIVEN a patch of a file of the host, of which the branch has another text, THEN the host's stays."""
    hosts = tmp_path / "hosts"
    hosts.write_text("the host's\n")
    name = f"/{hosts}" if form == "absolute" else f"{'../' * 12}{str(hosts)[1:]}"

    with pytest.raises(PatchUnfit, match="outside of its directory"):
        apply_patch(patch(name), ["/srv"], lambda _path: OLD)
    assert hosts.read_text() == "the host's\n"
