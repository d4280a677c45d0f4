"""``relive show`` of an incident: what failed, the frames, the timeline, as wide as the terminal, and the files it writes."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from incidents.report.builders import (
    PID,
    Events,
    add_incident,
    keep_beside,
    package_json,
    paying,
    record_by_proxy,
)
from relive.cli.accounts import show_account
from relive.cli.terminal import Terminal
from relive.config import Settings
from relive.incidents.report.detail import account_of
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

SHOWN = """\
incident 1 of pay: request 7 (POST /pay) was answered with status 500
Raised:   KeyError: 'EUR'
Where:    rates.py:41 in in_euro; it escaped from the handler
Request:  POST /pay?token=<secret:0a0b0c0d>
Seen:     2023-11-14 22:13:15.024, 1 time, kind answer
Before:   no commit
At:       no commit
Answered: 500 Internal Server Error after 24.5 ms, 21 bytes of text/plain
  Internal Server Error

Frames, innermost first:
  rates.py:41 in in_euro
    > return RATES[order.currency] * order.amount
      order = Order(id=17, currency='EUR')
      note  = <script>document.title='owned'</script>"'><img src=x onerror=alert(1)>
  pay.py:20 in pay
    > price = in_euro(order)
      order = Order(id=17, currency='EUR')
      key   = <secret:0a0b0c0d>
      … 2 more locals were not kept
  … 1 frame of libraries or further out (--all)

While handling: TimeoutError: timed out
  pay.py:20 in pay
    > price = in_euro(order)
      order = Order(id=17, currency='EUR')
      key   = <secret:0a0b0c0d>
      … 2 more locals were not kept

Timeline, 24.5 ms in all:
at ms  lane  kind      what                               result                            took
  0.0     -  request   POST /pay?token=<secret>&x=1       500 Internal Server Error      24.5 ms
  1.0     1  handler   POST /pay?token=<secret:0a0b0c0d>  500 Internal Server Error      22.0 ms
  1.1     1  readings  time.time × 4                      1700000001.35 … 1700000001.65
  2.0     1  query     SELECT … FROM orders WHERE id = ?  3 rows                          2.0 ms
  4.5     1  redis     GET cart:17                        b'2 books'                      500 us
  5.0     2  http      GET http://rates:8080/EUR?day=1    503 Service Unavailable         4.0 ms
  6.0     -  commit    commit, not kept
 10.0     1  http      GET http://rates:8080/EUR?day=2    TimeoutError: timed out        10.0 ms
 21.0     1  log       no rate for EUR                    ERROR
 21.5     -  clock     time.monotonic                     3.5
 22.0     1  failure   KeyError: 'EUR'                    escaped from the handler

Recorded: request 7, from event 2; 15 events inside process 12
Python:   3.11.7, 1 package (--json lists them)
Revision: aaaaaaaaaaaa, with changes in /srv/shop
Note:     left out: 2 locals of pay

Next:
  no replay: there is no commit before it; `--every request` takes one before each request
  relive reproduce 1  # try it in a fresh process, without any commit: tells whether the request alone suffices
= 0"""


@pytest.fixture
def incident(home):
    home.mkdir()
    made = add_incident(home)
    keep_beside(home, made.number, package_json(), paying())
    record_by_proxy(home)
    return made


def test_an_incident_is_told_from_what_failed_to_what_belongs_to_it(relive, incident):
    assert str(relive("show", "1")) == SHOWN


def test_everything_is_told_where_it_is_asked_for(relive, incident):
    said = relive("show", "1", "--all").out
    assert "/usr/lib/python3/site-packages/starlette/routing.py:73 in app" in said
    assert said.count("time.time ") == 4
    assert "(--all)" not in said


def test_in_json_the_whole_model_stands(relive, incident):
    shown = json.loads(relive("show", "1", "--json").out)
    assert shown["number"] == 1
    assert shown["package"]["chain"][0]["frames"][2]["locals"]["order"].startswith("Order(")
    rows = shown["timeline"]["rows"]
    assert len([row for row in rows if row["kind"] == "clock"]) == 5
    assert shown["recording"]["pid"] == PID
    assert shown["proxied"]["body"]["text"] == '{"order": 17, "password": "<secret>"}'


def test_files_are_written_and_said(relive, incident, tmp_path):
    names = {"--html": "i.html", "--otlp": "i.otlp.json", "--har": "i.har"}
    words = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    said = relive("show", "1", *words)
    assert said.err.splitlines() == [f"Wrote {tmp_path / name}." for name in names.values()]
    assert (tmp_path / "i.html").read_text().startswith("<!DOCTYPE html>")
    assert "resourceSpans" in json.loads((tmp_path / "i.otlp.json").read_text())
    assert json.loads((tmp_path / "i.har").read_text())["log"]["version"] == "1.2"


def test_a_file_that_cannot_be_written_is_an_error(relive, incident, tmp_path):
    said = relive("show", "1", "--har", str(tmp_path / "no" / "i.har"))
    assert (said.status, said.out) == (2, "")
    assert "cannot be written" in said.err


def test_files_are_for_incidents_only(relive, home):
    said = relive("show", "pay", "--html", "x.html")
    assert said.status == 2
    assert "--html, --otlp and --har are for incidents" in said.err


def test_the_list_of_incidents_says_the_exception_in_short(relive, incident, home):
    keep_beside(home, 1, package_json(text="x\n" * 100), [])
    line = relive("incidents").out.splitlines()[1]
    assert re.search(r"  KeyError: x x x [x ]+…  request 7", line)


# -- on a terminal -----------------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(home, monkeypatch, columns: int) -> list[str]:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    account = account_of(Settings(home=home), add_incident(home))
    show_account(Terminal(), account, everything=False)
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [80, 100, 132, 200])
def test_each_row_of_a_timeline_is_one_line_of_the_terminal(home, monkeypatch, columns):
    events = Events()
    events.add(EventKind.HANDLING_STARTED, 0, method="GET", target="/" + "long/" * 60)
    for at in range(1, 9):
        asked = {
            "statement": f"SELECT a FROM table_{at} WHERE {' AND '.join(f'c{n} = ?' for n in range(30))}"
        }
        events.add(EventKind.QUERY, at, ns=1000, asked=asked, error={"type": "a.Boo", "text": "no " * 60})
    keep_beside(home, 1, None, events.made)
    lines = on_a_terminal(home, monkeypatch, columns)
    begin = next(index for index, line in enumerate(lines) if line.startswith("Timeline"))
    table = lines[begin + 1 : begin + 11]
    assert [line.split()[0] for line in table] == ["at", *(f"{at:.1f}" for at in range(9))]
    assert max(map(len, table)) <= columns
    assert min(len(line.rstrip()) for line in table[2:]) > columns - 4
    assert lines[begin + 11].startswith("Texts that end with … were cut")


def test_of_a_very_long_timeline_what_repeats_is_one_row(home, monkeypatch):
    events = Events()
    for at in range(500):
        events.add(EventKind.LOG_RECORD, at, text=f"line {at}", level="INFO")
    keep_beside(home, 1, None, events.made)
    lines = on_a_terminal(home, monkeypatch, 100)
    assert len([line for line in lines if "  log  " in line]) == 49
    assert any("line 0 × 452" in line for line in lines)
    assert "… 500 steps are told in 49 rows, each that failed among them (--all)" in lines
    assert any("line 499" in line for line in lines)


def test_an_answer_with_escape_sequences_is_shown_without_and_cut_and_masked(relive, home):
    body = "\x1b[2Jgone\u202e " + "x" * 5000
    fail_with(home, body.encode(), "text/plain")
    said = relive("show", "1").out
    assert "  \\x1b[2Jgone\\u202e xxx" in said
    assert "x" * 2001 not in said
    assert "  … (--json has more of it)" in said.splitlines()


def test_a_secret_in_the_failing_answer_is_masked(relive, home):
    fail_with(home, b'{"error": "no", "password": "correct horse 2"}', "application/json")
    said = relive("show", "1").out
    assert '"error": "no"' in said
    assert "correct horse" not in said


def fail_with(home, body: bytes, kind: str) -> None:
    """An incident whose request was answered with that body."""
    add_incident(home)
    directory = home / "capsules" / "pay" / "L1" / "recording"
    directory.mkdir(parents=True)
    writer = RecordingWriter(directory)
    head = f"HTTP/1.1 500 No\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    writer.append(EventKind.REQUEST_STARTED, 1, 7, b"GET /pay HTTP/1.1\r\n\r\n", {})
    writer.append(EventKind.ANSWER_STARTED, 1, 7, head, {"status": 500})
    writer.append(EventKind.ANSWER_BODY, 1, 7, body, {})
    writer.append(EventKind.ANSWER_ENDED, 1, 7, b"", {"bytes": len(body)})
    writer.close()


def test_no_text_of_the_service_steers_the_terminal(home, monkeypatch):
    evil = "\x1b]0;owned\x07\x1b[2J\rfake\nfake line"
    frame = {
        "file": f"/x/{evil}",
        "line": 1,
        "function": evil,
        "module": "x",
        "own": True,
        "source": {"first": 1, "lines": [evil]},
        "locals": {evil: evil},
    }
    package = package_json(
        type=evil,
        text=evil,
        chain=[{"type": evil, "text": evil, "relation": None, "frames": [frame]}],
        versions={"python": evil},
        revision={"commit": "a" * 40, "dirty": None, "root": evil},
        cut=[evil],
    )
    events = Events()
    events.add(EventKind.LOG_RECORD, 1, text=evil, level=evil)
    keep_beside(home, 1, package, events.made)
    text = "\n".join(on_a_terminal(home, monkeypatch, 80))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert not any(line.startswith("fake") for line in text.splitlines())
