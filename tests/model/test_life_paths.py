"""Where the files of a life lie."""

from __future__ import annotations

from relive.model.life_paths import LifePaths


def test_the_files_of_a_life_do_not_collide(tmp_path):
    paths = LifePaths(tmp_path)
    names = [
        name for name, value in vars(LifePaths).items() if isinstance(value, property) and name != "logs"
    ]
    files = [getattr(paths, name) for name in names] + paths.logs
    assert len(set(files)) == len(files)
    assert all(tmp_path in file.parents for file in files)
