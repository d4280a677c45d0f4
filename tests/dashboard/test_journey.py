"""The way of somebody who is woken at night, in a real browser: from the list of incidents over the story to a replay's verdict."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Page, expect

from relive.config import Settings
from relive.dashboard.verdicts import words_of
from relive.operations.runs import RunsParams, list_runs
from support.browser import browser_for
from support.payments import Payments

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
_LIMIT = 60_000  # [ms] for anything that is waited for; the machine may be busy
PLACE = "ledger.py:127"  # where it fails


@contextmanager
def served(payments: Payments) -> Iterator[str]:
    """The address that ``relive dashboard`` prints."""
    command = [RELIVE, "dashboard", "--port", "0"]
    with subprocess.Popen(
        command, env=payments.relive.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            assert line.startswith("The dashboard is at http://127.0.0.1:"), line
            yield line.split()[-1]
        finally:
            process.terminate()
    assert process.returncode in (0, -15)


def see_the_verdict(page: Page, address: str, payments: Payments) -> None:
    """Click by click."""
    page.goto(address)
    page.get_by_role("link", name=re.compile("KeyError")).last.click()
    expect(page.locator(".rl-lead")).to_contain_text("KeyError")
    expect(page.get_by_text(f"incident {payments.incident}", exact=True)).to_be_visible()
    expect(page.locator(".rl-ran").first).to_contain_text("_open_batches")
    expect(page.locator(".js-plotly-plot")).to_be_visible()
    expect(page.get_by_text("before the failing request")).to_be_visible()
    page.get_by_role("spinbutton").fill("2")
    page.get_by_role("spinbutton").press("Enter")
    page.get_by_role("button", name="Replay 2 times").click()
    expect(page.get_by_text("Verdict: ")).to_be_visible()
    # Whether the race is won again is the replay's to tell; here, that the page tells just that.
    (kept, *_) = list_runs(Settings(home=payments.relive.home), RunsParams(incident=payments.incident)).items
    assert kept.times == 2
    verdict = f"Verdict: {words_of(kept.verdict, kept.reproduced, kept.times)}."
    expect(page.get_by_text(verdict)).to_be_visible()
    expect(page.get_by_text("No packets left the sandboxes")).to_be_visible()
    page.reload()  # what was begun is the dashboard's, not the page's
    expect(page.get_by_text(verdict)).to_be_visible()
    expect(page).to_have_title(f"Incident {payments.incident} · Relive")
    page.get_by_role("link", name=f"Replay {kept.number} of incident {payments.incident}").click()
    expect(page).to_have_url(re.compile("/run\\?number="))
    expect(page.get_by_text(verdict)).to_be_visible()


def explore(page: Page, payments: Payments) -> None:
    """What a person asks next: a value at a line, another state, where two runs part.

    Another schedule is only offered: what is told of one is looked at in ``test_views``, since each takes replays.
    """
    page.get_by_role("link", name=f"Incident {payments.incident}").click()
    page.get_by_role("button", name="Line by line").click()
    page.get_by_label("At the line").fill(PLACE)
    page.get_by_label("what is", exact=True).fill("account.batch_id")
    page.get_by_role("button", name="Tell the values").click()
    expect(page.get_by_text("account.batch_id = ").first).to_be_visible()
    page.get_by_role("button", name="With another state").click()
    page.get_by_label("Set, a statement a line").fill("nobody.knows = 1")
    page.get_by_role("button", name="Replay with it").click()
    expect(page.get_by_text("nobody.knows = 1 could not be run in the branch")).to_be_visible()
    page.get_by_role("button", name="Where two runs part").click()
    page.get_by_role("button", name="Compare them").click()
    expect(page.get_by_text(re.compile(r"run/\d+\.recorded and run/\d+\.1"))).to_be_visible()
    page.get_by_role("button", name="Vary the schedule").click()
    expect(page.get_by_role("button", name="Replay under varied schedules")).to_be_visible()


def keep_it(page: Page, payments: Payments) -> None:
    """As a test, to be taken along: no file of the host is written."""
    page.get_by_role("button", name="Keep as a test").click()
    page.get_by_role("textbox", name="What the answer has to be").fill("status == 201")
    page.get_by_role("button", name="Keep it", exact=True).click()
    expect(page.get_by_text("With the code that was committed it fails")).to_be_visible()
    page.keyboard.press("Escape")
    with page.expect_download() as downloaded:
        page.get_by_role("button", name="Download the file").click()
    assert downloaded.value.suggested_filename == f"payments-{payments.incident}.relive.yaml"
    assert "expect: status == 201" in downloaded.value.path().read_text()


def branches(payments: Payments) -> set[str]:
    """Those that run."""
    return {one["id"] for one in payments.relive("ps") if one["kind"] == "branch"}


def has_been_drawn(page: Page) -> None:
    """While a page is still drawn anew, a key or a click may be taken by the button before, and by the one in its place."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def step_through_it(page: Page) -> None:
    """From the line that failed back by one, into the caller's frame, to a breakpoint, and to the end."""
    page.get_by_role("button", name="Step through it").click()
    said, ran = page.locator(".st-key-debugger-said"), page.locator(".st-key-debugger-source .rl-ran")
    expect(ran).to_contain_text("_open_batches")
    position = int(said.inner_text().split()[0].removeprefix("@"))
    page.get_by_role("button", name=PLACE.split(":")[1], exact=True).click()
    expect(page.locator(".st-key-debugger-stops")).to_contain_text(PLACE)
    page.get_by_role("button", name="Back by a line").click()
    expect(said).to_contain_text(f"@{position - 1} ")
    has_been_drawn(page)
    page.keyboard.press("F8")
    expect(said).to_contain_text(f"@{position} ")
    expect(said).to_contain_text("a breakpoint")
    has_been_drawn(page)
    page.get_by_role("button", name=re.compile(r"^pay app.py:\d+")).click()
    expect(ran).to_contain_text("ledger.pay(")
    page.get_by_role("button", name="End", exact=True).click()
    expect(page.get_by_role("button", name="Begin again")).to_be_visible()


def test_from_the_list_over_the_story_to_the_verdict(payments):
    expect.set_options(timeout=_LIMIT)
    with served(payments) as address:
        parts = urlsplit(address)
        assert httpx.get(f"http://{parts.netloc}/").status_code == 403
        with browser_for(parts.port or 0) as browser:
            page = browser.new_page()
            page.set_default_timeout(_LIMIT)
            hosts: set[str] = set()
            page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
            see_the_verdict(page, address, payments)
            explore(page, payments)
            keep_it(page, payments)
            before = branches(payments)
            step_through_it(page)
            assert branches(payments) == before
            assert hosts - {""} == {parts.netloc}  # nothing comes from anywhere else
