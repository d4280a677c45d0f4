"""First paint of the dashboard's pages in a browser, with many commits and incidents.

    python benchmarks/dashboard.py [--commits 100000] [--incidents 10000] [--home DIRECTORY] [--rounds 20] [--json]

Fills ``DIRECTORY`` as ``benchmarks/index.py`` does (made where there is none, and kept; else one in /dev/shm, removed at the end),
starts ``relive dashboard`` on it and opens its pages with Chromium, by turns with the same pages of an empty home, so that a busy
machine is as busy for both. *Painted* is the time from the navigation to the last row of the page's first page of rows, with
nothing in the browser's cache (a new context for each); *script* is what the server took for it: the page's script without a
browser, in this process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from _lab import load_average, print_json, print_table
from index import fill
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest

from relive import dashboard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.browser import browser_for

_RELIVE = Path(sys.executable).with_name("relive")
_LIMIT = 120_000  # [ms]


def pages(incident: int) -> dict[str, tuple[str, str]]:
    """Page, what stands on it when its rows do (more than fit on one), and what stands on it where there are none."""
    return {
        "": ("page 1", "Nothing has failed yet"),
        f"incident?number={incident}": ("What the request did", f"there is no incident {incident}"),
        "commits": ("page 1", "Nothing has been committed yet"),
        "commits?service=payments-api": ("page 1", "There is no commit of payments-api"),
    }


@contextmanager
def _served(home: Path) -> Iterator[str]:
    environment = {**os.environ, "RELIVE_HOME": str(home)}
    command = [_RELIVE, "dashboard", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().split()[-1]
        finally:
            process.terminate()


def painted(browser: Browser, address: str, page: str, words: str) -> float:
    """Milliseconds until the words are seen."""
    with browser.new_context() as context:
        tab = context.new_page()
        began = time.perf_counter()
        tab.goto(address + page)
        expect(tab.get_by_text(words).first).to_be_visible()
        return (time.perf_counter() - began) * 1000


def measure(
    asked: dict[str, tuple[str, str]], homes: dict[str, Path], rounds: int
) -> dict[tuple[str, str], list[float]]:
    """By (page, home)."""
    times: dict[tuple[str, str], list[float]] = {}
    with (
        _served(homes["full"]) as full,
        _served(homes["empty"]) as empty,
        browser_for(*(urlsplit(address).port or 0 for address in (full, empty))) as browser,
    ):
        for number in range(rounds + 1):
            for page, (rows, nothing) in asked.items():
                found = {
                    "full": painted(browser, full, page, rows),
                    "empty": painted(browser, empty, page, nothing),
                }
                if number:  # the first one fills the servers' caches
                    for home, took in found.items():
                        times.setdefault((page, home), []).append(took)
    return times


def scripts(asked: Iterable[str], home: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each page's script."""
    os.environ["RELIVE_HOME"] = str(home)
    times: dict[str, list[float]] = {}
    app = AppTest.from_file(
        str(Path(dashboard.__file__).with_name("app.py")), default_timeout=_LIMIT / 1000
    ).run()
    for page in asked:
        name, _, query = page.partition("?")
        app.switch_page(f"views/{name or 'incidents'}.py")
        key, _, value = query.partition("=")
        if key:
            app.query_params[key] = value
        for number in range(rounds + 1):
            began = time.perf_counter()
            app.run()
            assert not app.exception
            if number:
                times.setdefault(page, []).append((time.perf_counter() - began) * 1000)
    return times


def main() -> None:
    """Fill, ask, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp(prefix="relive-dashboard-", dir="/dev/shm"))
    expect.set_options(timeout=_LIMIT)
    asked = pages(options.incidents * 9 // 10)
    try:
        if not (home / "store").exists():
            fill(home, options.commits, options.incidents)
        with tempfile.TemporaryDirectory(prefix="relive-empty-") as empty:
            times = measure(asked, {"full": home, "empty": Path(empty)}, options.rounds)
        rows = [_row(page, times, own) for page, own in scripts(asked, home, options.rounds).items()]
    finally:
        if options.home is None:
            shutil.rmtree(home)
    if options.json:
        print_json({"rounds": options.rounds, "pages": rows})
    else:
        print_table(f"Milliseconds, medians of {options.rounds} rounds; load {load_average()}", rows)


def _row(page: str, times: dict[tuple[str, str], list[float]], own: list[float]) -> dict[str, Any]:
    full, empty = (statistics.median(times[page, home]) for home in ("full", "empty"))
    return {
        "page": page or "incidents",
        "painted": round(full),
        "painted, empty home": round(empty),
        "ratio": round(full / empty, 2),
        "script": round(statistics.median(own)),
    }


if __name__ == "__main__":
    main()
