"""Programs and sources of this machine's Debian archive, unpacked beside it: nothing is installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

__all__ = ["program", "source"]


def program(package: str, path: str, place: Path) -> Path:
    """A program of a package that need not be installed; skips the test where it cannot be fetched."""
    if not (place / path).exists():
        place.mkdir(parents=True, exist_ok=True)
        _apt(["apt-get", "-q", "download", package], place)
        (archive,) = place.glob(f"{package}_*.deb")
        subprocess.run(["dpkg", "-x", archive, place], check=True)
    return place / path


def source(package: str, place: Path) -> Path:
    """The upstream source of a package, unpacked; skips the test where it cannot be fetched."""
    place.mkdir(parents=True, exist_ok=True)
    words = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(CODENAME) $(LABEL)",
        "Created-By: Packages",
    ]
    targets = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    debian = next((line.split() for line in targets if line.endswith(" Debian")), None)
    if debian is None:
        pytest.skip("apt knows no Debian archive here")
    (place / "sources.list").write_text(f"deb-src {debian[0]} {debian[1]} main\n")
    (place / "lists").mkdir(exist_ok=True)
    options = [f"-oDir::Etc::SourceList={place}/sources.list", f"-oDir::Etc::SourceParts={place}/none"]
    options += [f"-oDir::State::Lists={place}/lists", f"-oDir::Cache={place}/cache"]
    _apt(["apt-get", "-q", *options, "update"], place)
    _apt(["apt-get", "-q", *options, "source", "--tar-only", package], place)
    (archive,) = place.glob("*.orig.tar.*z*")
    before = set(place.iterdir())
    subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
    (tree,) = set(place.iterdir()) - before
    return tree


def _apt(words: list[str], place: Path) -> None:
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(words[:2])} failed: {done.stderr.strip().splitlines()[-1:]}")
