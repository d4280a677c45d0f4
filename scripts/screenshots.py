"""Makes the pictures of docs/dashboard.md, docs/images/*.png, from a home of its own in which the payments example has failed.

    python scripts/screenshots.py

They are of a real dashboard in Chromium, in both themes: the list of incidents, the story with the verdict of a replay, the
commits of the service, a branch, and the store. Look at them before they are committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

REPO = Path(__file__).resolve().parent.parent
IMAGES = REPO / "docs" / "images"
RELIVE = Path(sys.executable).with_name("relive")
WIDTH, HEIGHT = 1280, 720  # [px]; a picture is as high as its page, within bounds
HIGHEST = 2400
TRIES = 4  # a machine that is very busy does not win the race each time
LIMIT = 60_000  # [ms]

sys.path.insert(0, str(REPO / "tests"))
from real.harness import Relive  # noqa: E402
from support.browser import browser_for  # noqa: E402 - of the tests, which lie there
from support.forker import Forker  # noqa: E402
from support.payments import Payments, payments_home  # noqa: E402


@contextmanager
def served(payments: Payments) -> Iterator[str]:
    """The dashboard's address."""
    command = [str(RELIVE), "dashboard", "--port", "0"]
    with subprocess.Popen(command, env=payments.relive.environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().split()[-1]
        finally:
            process.terminate()


def settled(page: Page) -> None:
    """Wait until the page's script has ended and what it drew stands still."""
    expect(page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')).to_be_visible()
    expect(page.locator('[data-testid="stSkeleton"], [data-testid="stSpinner"]')).to_have_count(0)
    page.evaluate("() => document.fonts.ready")


def keep(page: Page, name: str, highest: int = HIGHEST) -> None:
    """Take the picture."""
    settled(page)
    inner = page.locator('[data-testid="stMainBlockContainer"]').evaluate("one => one.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": min(max(inner, 320), highest)})
    settled(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(500)  # drawings follow the new size with an animation that says nothing of its end
    page.screenshot(path=IMAGES / f"{name}.png")
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def act(page: Page, address: str) -> None:
    """Replay, restore and measure, once: what is then to be seen is the dashboard's, whoever looks."""
    page.goto(address)
    page.get_by_role("link", name=re.compile("KeyError")).last.click()
    for _ in range(TRIES):
        page.get_by_role("button", name="Replay 5 times").click()
        expect(page.get_by_text("Verdict: ")).to_be_visible()
        if page.get_by_text("Verdict: reproduced 5 of 5").count():
            break
        page.get_by_role("button", name="Dismiss").click()
        expect(page.get_by_text("Verdict: ")).to_have_count(0)
    page.get_by_role("button", name="Restore the state before").click()
    expect(page.get_by_text("runs, sealed off")).to_be_visible()
    page.get_by_role("button", name="Dismiss").first.click()
    expect(page.get_by_text("runs, sealed off")).to_have_count(0)
    page.goto(f"{address}storage")
    page.get_by_role("button", name="Measure").click()
    expect(page.get_by_text("By service")).to_be_visible()


def pictures(browser: Browser, address: str, number: int, scheme: str) -> None:
    """All pages in one theme."""
    with browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": HEIGHT}) as context:  # type: ignore[arg-type]  # "light" or "dark"
        page = context.new_page()
        page.set_default_timeout(LIMIT)
        for name, path in {
            "incidents": "",
            "incident": f"incident?number={number}",
            "commits": "commits?service=payments",
            "branches": "branches",
            "storage": "storage",
        }.items():
            page.goto(address + path)
            if name in ("incident", "commits"):
                expect(page.locator(".js-plotly-plot")).to_be_visible()
            if name == "branches":
                page.get_by_text("Standard error").click()
                expect(page.locator(".rl-text")).to_be_visible()
            keep(page, f"{name}-{scheme}", 900 if name == "commits" else HIGHEST)


@contextmanager
def forking(directory: Path) -> Iterator[None]:
    """What the tests' harness runs commands by."""
    Relive.commands = Forker(directory)
    try:
        yield
    finally:
        Relive.commands.close()


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    expect.set_options(timeout=LIMIT)
    with (
        tempfile.TemporaryDirectory() as directory,
        forking(Path(directory)),
        payments_home() as payments,
        served(payments) as address,
        browser_for(urlsplit(address).port or 0) as browser,
    ):
        with browser.new_context() as context:
            act(context.new_page(), address)
        for scheme in ("light", "dark"):
            pictures(browser, address, payments.incident, scheme)


if __name__ == "__main__":
    main()
