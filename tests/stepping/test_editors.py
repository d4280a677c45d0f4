"""The entry for an editor: beside what stands there, in the place of an older one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relive.errors import UsageError
from relive.stepping.editors import entry_name, write_entry


def test_an_entry_is_made_and_replaced_beside_others(tmp_path: Path):
    file = write_entry(tmp_path, 3, 4000)
    told = json.loads(file.read_text())
    told["configurations"].insert(0, {"name": "mine"})
    file.write_text(json.dumps(told))
    write_entry(tmp_path, 3, 4001)
    configurations = json.loads(file.read_text())["configurations"]
    assert [one["name"] for one in configurations] == ["mine", entry_name(3)]
    assert configurations[1]["debugServer"] == 4001


@pytest.mark.parametrize("text", ["// mine\n{}", "[]", '{"configurations": 1}', "\udc80"])
def test_a_file_that_cannot_be_kept_is_left_as_it_is(tmp_path: Path, text: str):
    file = tmp_path / ".vscode" / "launch.json"
    file.parent.mkdir()
    data = text.encode("utf-8", "surrogateescape")
    file.write_bytes(data)
    with pytest.raises(UsageError, match="left as it is") as refused:
        write_entry(tmp_path, 3, 4000)
    assert "debugServer" in (refused.value.remedy or "") and file.read_bytes() == data
