"""What docstrings list is there: each name below ``Args:`` is a parameter, each below ``Attributes:`` an attribute."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
ITEM = re.compile(r" *(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*)(?: \([^)]*\))?:")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def listed(docstring: str | None, title: str) -> list[str]:
    """Names that open the lines of a section: ``a: ...`` or ``a, b: ...``."""
    found = re.search(rf"^( *){title}:\n((?:\1 +.*\n?|\n)+)", f"{docstring or ''}\n", re.MULTILINE)
    lines = [line for line in found[2].splitlines() if line.strip()] if found is not None else []
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    items = [ITEM.match(line) for line in lines if line[indent : indent + 1].strip()]
    return [name.lstrip("*") for item in items if item is not None for name in item[1].split(", ")]


def parameters(function: Function) -> set[str]:
    given = function.args
    rest = [one for one in (given.vararg, given.kwarg) if one is not None]
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest)}


def assigned(kind: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(kind):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                parts = [part for target in targets for part in ast.walk(target)]
                yield from (
                    one.id if isinstance(one, ast.Name) else getattr(one, "attr", "") for one in parts
                )
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.AnnAssign(target=ast.Attribute(attr=name)):
                yield name


def wrong_in(path: Path, tree: ast.Module, kinds: dict[str, list[ast.ClassDef]]) -> Iterator[str]:
    def attributes(kind: ast.ClassDef, seen: frozenset[str]) -> set[str]:
        bases = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in kind.bases} - seen
        below = [attributes(one, seen | bases) for base in bases for one in kinds[base] if one is not kind]
        return set(assigned(kind)).union(*below)

    for node in ast.walk(tree):
        if not isinstance(node, Function | ast.ClassDef):
            continue
        text = ast.get_docstring(node)
        names = [*listed(text, "Args"), *listed(text, "Attributes")] if text and ":\n" in text else []
        if names and isinstance(node, ast.ClassDef):
            made = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
            known = attributes(node, frozenset({node.name})).union(*map(parameters, made))
        else:
            known = parameters(node) if isinstance(node, Function) else set()
        yield from (f"{path}:{node.lineno}: {name}" for name in names if name not in known)


def main() -> int:
    """Print each name that is not there; 1 if there is one."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if "_pb2" not in path.name}
    kinds: dict[str, list[ast.ClassDef]] = defaultdict(list)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                kinds[node.name].append(node)
    found = [one for path, tree in trees.items() for one in wrong_in(path, tree, kinds)]
    sys.stderr.writelines(f"{one} is in a docstring and not in the code\n" for one in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
