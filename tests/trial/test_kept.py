"""The file of a kept state."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.errors import KeptInvalid
from relive.replay.plan import Pace
from relive.trial.kept import CodePlace, KeptState, code_places, parse_kept, read_kept, written_kept

STATE = KeptState(
    name="shop-1",
    service="shop",
    was="KeyError: 'tea' {in} price: \"x\"",
    asked="GET /price/tea",
    commit="a" * 64,
    request=4,
    expect='status == 200 and json["id"] > 0',
    code=[CodePlace(at="/srv/app", here="../..")],
    remote="file:///srv/remote",
    times=3,
    pace=Pace.FAST,
    on_miss=["http-call=pass"],
)


def test_what_is_written_is_read_again():
    text = written_kept(STATE)
    assert parse_kept(text, "it") == STATE
    assert text.startswith("# A state that Relive keeps") and "\nignore" not in text


def test_places_begin_beside_the_file(tmp_path: Path) -> None:
    assert code_places(STATE, Path("/repo/tests/regressions")) == [("/srv/app", Path("/repo"))]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "dict"),
        ("[1]", "dict"),
        ("a: [", "while parsing"),
        ("relive_kept: 9\nname: x\ncommit: abc", "format is 9"),
        ("relive_kept: 1\nname: ../x\ncommit: abc", "name"),
        ("relive_kept: 1\nname: x\ncommit: abc\nexpects: 1", "expects"),
        ("relive_kept: 1\nname: x\ncommit: abc\nexpect: open('x')", "not of the language"),
        ("relive_kept: 1\nname: x\ncommit: abc\ncode: [{at: relative, here: x}]", "code.0.at"),
        ("!!python/object/apply:os.system ['true']", "could not determine"),
    ],
)
def test_what_is_none_is_refused(text, cause):
    with pytest.raises(KeptInvalid) as refused:
        parse_kept(text, "it")
    assert cause in (refused.value.cause or "")


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(KeptInvalid, match="cannot be read"):
        read_kept(tmp_path / "none.relive.yaml")
    (tmp_path / "binary.relive.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(KeptInvalid, match="cannot be read"):
        read_kept(tmp_path / "binary.relive.yaml")
