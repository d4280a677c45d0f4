"""All there is to know of the files below some directories, to be compared: kind, mode, owner, times, attributes, content, names
of one file.

    python likeness.py DIRECTORY...     prints it as JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import Any

Likeness = dict[str, Any]


def likeness(*directories: object) -> Likeness:
    """By path (names that are no UTF-8 with surrogates), what there is."""
    found: Likeness = {}
    names: dict[tuple[int, int], list[str]] = {}
    pending = [os.fspath(str(directory)) for directory in directories]
    while pending:
        path = pending.pop()
        facts = os.lstat(path)
        found[path] = _described(path, facts)
        if stat.S_ISDIR(facts.st_mode):
            pending += [f"{path}/{name}" for name in os.listdir(path)]
        elif facts.st_nlink > 1:
            names.setdefault((facts.st_dev, facts.st_ino), []).append(path)
    for paths in names.values():
        for path in paths if len(paths) > 1 else []:
            found[path]["names"] = sorted(paths)
    return found


def _described(path: str, facts: os.stat_result) -> dict[str, Any]:
    kind = stat.S_IFMT(facts.st_mode)
    one: dict[str, Any] = {
        "kind": oct(kind),
        "mode": oct(stat.S_IMODE(facts.st_mode)),
        "owner": [facts.st_uid, facts.st_gid],
        "mtime": facts.st_mtime_ns,
    }
    if kind == stat.S_IFLNK:
        one["link"] = os.readlink(path)
    if kind in (stat.S_IFREG, stat.S_IFDIR):
        attributes = {name: os.getxattr(path, name).hex() for name in os.listxattr(path)}
        one["attributes"] = {
            name: value for name, value in attributes.items() if not name.startswith("trusted.overlay.")
        }
    if kind == stat.S_IFREG:
        one["size"] = facts.st_size
        with open(path, "rb") as file:  # noqa: PTH123 - runs where pathlib need not be imported
            one["content"] = hashlib.file_digest(file, "blake2b").hexdigest()
    return one


def differences(expected: Likeness, found: Likeness) -> list[str]:
    """What is not as expected, a line each."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        one, other = expected.get(path), found.get(path)
        if one is None or other is None:
            lines.append(f"{path!r}: {'should not be' if one is None else 'is missing'}")
            continue
        lines += [
            f"{path!r}: {key} is {other.get(key)!r}, should be {one.get(key)!r}"
            for key in sorted(one.keys() | other.keys())
            if one.get(key) != other.get(key)
        ]
    return lines


if __name__ == "__main__":
    print(json.dumps(likeness(*sys.argv[1:])))
