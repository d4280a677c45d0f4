"""Programs that are sent to other processes, as one text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from relive.inspection.python.program_text import program_text
from relive_inprocess import relive_chaos, relive_stepper

PARTS = Path(relive_stepper.__file__).parent


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (
                    one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
                )


def test_a_module_is_its_own_text() -> None:
    assert program_text(relive_chaos) == Path(relive_chaos.__file__).read_text()


def test_the_parts_of_a_package_define_each_name_once_and_know_each_other_by_it() -> None:
    text = program_text(relive_stepper)
    tree = ast.parse(text)
    counted = Counter(_defined(tree))
    assert [name for name, times in counted.items() if times > 1] == []
    assert [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level] == []
    taken = {
        (part, one.name, one.asname)
        for part in relive_stepper.PARTS
        for node in ast.parse((PARTS / f"{part}.py").read_text()).body
        if isinstance(node, ast.ImportFrom) and node.level
        for one in node.names
    }
    assert taken
    assert [one for one in taken if one[1] not in counted or one[2] is not None] == []


def test_no_module_of_a_package_is_left_out() -> None:
    found = {path.stem for path in PARTS.glob("*.py")} - {"__init__"}
    assert found == set(relive_stepper.PARTS)
