"""Does a failure that depends on the state come back, and is the word for it true? 30 small services of ``corpus/``, 11 languages.

    python benchmarks/fidelity.py [--only NAME,...] [--rates 30s,2s,request] [--replays 40] [--others twin,...] [--keep FILE]

All of it takes an hour or two. With ``--keep`` each row is kept in a file as soon as it is measured, and what the file has is not
measured again: a run that was ended, however, goes on, and parts are told as one. What a killed run left at work is stopped
first. A service that could not be measured is named with the reason, and the run goes on; it ends with status 1 then. A service
whose language is not installed is left out, and named.

Each service runs under ``relive run`` with its default options. It is asked what builds its state, what poisons it, and what then
fails; the incident is replayed with the default options. ``30s``, ``2s``, ``request``: the rate of commits (``--every``) and the
word. At 2s a commit falls between the poison and the failure; at 30s all since the start is sent again. ``replays``: how many of
``--replays`` more of the last rate gave the same word for the same outcome.

``fresh``: the failing request alone, sent to a new instance without Relive: "well" where it does not fail, so that the state
matters.

Then what must never be called reproduced, at the last rate:

- ``twin``: before its bug the service asks a server of rates that is not recorded (``--no-record-egress``). In the branch that
  server is missing, and the service gives the same answer (status, exit, signal, silence) for that reason.
- ``other cause``: nothing poisons the service; the server of rates says something that is no rate.
- ``outside``: nothing poisons the service; it is stopped (SIGSTOP) under a request, or sent the signal that its bug would raise.

``false``: incidents of healthy services, before anything was done to them. ``incidents``: how many one failure made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from _corpus import Around, Declared, NotRunning, around, ask, corpus, plain
from _lab import free_port, load_average, print_json, print_table
from _resuming import Kept, state_of_the_tree, workplace

from relive.config import load_settings
from relive.kernel import procfs

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
_LIMIT = 60.0  # [s] for anything that is waited for
_COMMAND_LIMIT = 1800.0  # [s] for a command, 40 replays among them
_STOP_LIMIT = 120.0  # [s]
_COMMIT_LIMIT = 20.0  # [s] for a commit of the clock, which may be held back
_HANG = ["--hang-after", "2"]
_FAILING = 500
_OTHERS = ("twin", "other cause", "outside")


class NotMeasured(Exception):
    """A service could not be measured, for the reason given."""


@dataclass(frozen=True, slots=True)
class Life:
    """A service under Relive. ``port``: of the proxy; ``root``: host pid of its first process."""

    name: str
    port: int
    root: int


class Bench:
    """A home of Relive in a directory, and the servers around."""

    def __init__(self, directory: Path, place: Around) -> None:
        self._place = place
        self._environment = _environment(directory)

    def relive(self, command: str, *words: str, environment: dict[str, str] | None = None) -> tuple[int, Any]:
        """Exit status and the JSON answer of a command."""
        try:
            done = subprocess.run(
                [RELIVE, command, "--json", *words],
                env=self._environment | (environment or {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_COMMAND_LIMIT,
            )
            return done.returncode, json.loads(done.stdout or "null")
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"relive {command} did not end within {_COMMAND_LIMIT:g} s") from None
        except ValueError:
            raise NotMeasured(f"relive {command} said {done.stdout!r} {done.stderr!r}") from None

    @contextlib.contextmanager
    def life(self, declared: Declared, every: str, rates: str, *more: str) -> Iterator[Life]:
        """A new life of a service, committed once."""
        inner, outer = free_port(), free_port()
        words, environment = self._place.words(declared, inner, rates)
        name = f"{declared.name}-{inner}"
        options = ["--detach", "--name", name, "--every", every, *declared.options, *more]
        listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
        try:
            status, answer = self.relive("run", *options, *listen, "--", *words, environment=environment)
            if status != 0:
                raise NotMeasured(f"it does not start: {answer}")
            life = Life(name, outer, answer["pid"])
            self._wait(lambda: self.commits(life), f"the first commit of {name}")
            yield life
        finally:
            self.relive("stop", "--timeout", "2", name)

    def commits(self, life: Life) -> int:
        """How many there are."""
        status, found = self.relive("log", life.name)
        return len(found) if status == 0 else 0

    def incidents(self, life: Life) -> list[dict[str, Any]]:
        """Of a life, in the order they were seen."""
        _, found = self.relive("incidents", life.name)
        return sorted(found or [], key=lambda one: int(one["number"]))

    def wait_for_commit(self, life: Life) -> None:
        """Of the clock; where it is held back, no commit comes."""
        before, until = self.commits(life), time.monotonic() + _COMMIT_LIMIT
        while self.commits(life) == before and time.monotonic() < until:
            time.sleep(0.2)

    def replay(self, incident: int, times: int = 1) -> list[dict[str, Any]]:
        """Runs; of a refused replay one with the code of the error as its word."""
        _, answer = self.relive("replay", str(incident), "--times", str(times))
        if "runs" not in answer:
            return [{"verdict": {"kind": answer["error"]["code"]}, "outcome": None, "error": answer["error"]}]
        return list(answer["runs"])

    def incident(self, life: Life, kind: str | None, seen: int = 0) -> dict[str, Any] | None:
        """The incident that came behind so many, of the wanted kind where there is one."""
        until = time.monotonic() + _LIMIT
        while time.monotonic() < until:
            found = self.incidents(life)[seen:]
            if found:
                time.sleep(0.5)  # another that one failure makes comes soon
                found = self.incidents(life)[seen:]
                return next((one for one in found if one["sighting"]["kind"] == kind), found[0])
            time.sleep(0.1)
        return None

    @staticmethod
    def _wait(check: Callable[[], Any], what: str) -> None:
        until = time.monotonic() + _LIMIT
        while not check():
            if time.monotonic() > until:
                raise NotMeasured(f"{what} was not there after {_LIMIT:g} s")
            time.sleep(0.1)


def _environment(directory: Path) -> dict[str, str]:
    """For ``relive`` commands on the home in a directory."""
    return dict(os.environ, RELIVE_HOME=str(directory / "home"), RELIVE_TOOLS=str(load_settings().tools_path))


def _stop(directory: Path) -> None:
    """End what lives in the home of a directory."""
    if (directory / "home").exists():
        words = [RELIVE, "stop", "--all", "--capsules", "--timeout", "2"]
        environment = _environment(directory)
        subprocess.run(words, env=environment, capture_output=True, check=True, timeout=_STOP_LIMIT)


def fresh(place: Around, declared: Declared) -> str:
    """Whether the failing request alone fails on a new instance."""
    port = free_port()
    with plain(place, declared, port) as process:
        for _ in range(declared.attempts):
            statuses = _failing(port, declared, 5.0)
            if any(_is_failing(status) for status in statuses) or process.poll() is not None:
                return f"FAILS {statuses}"
    return "well"


def _is_failing(status: int) -> bool:
    return status == 0 or status >= _FAILING


def _failing(port: int, declared: Declared, limit: float) -> list[int]:
    """Ask what fails: at one time, where it is of several that wait for each other."""
    paths = declared.fail
    if declared.kind == "hang":
        return ask(port, [[path for path in paths if isinstance(path, str)]], limit=limit)
    return ask(port, paths, declared.connection, limit)


def _fail(life: Life, declared: Declared) -> bool:
    """Ask until it fails; whether it did."""
    limit = 6.0 if declared.kind == "hang" else 20.0
    for _ in range(declared.attempts):
        try:
            statuses = _failing(life.port, declared, limit)
        except OSError:
            return True
        if any(_is_failing(status) for status in statuses):
            return True
    return False


def own(bench: Bench, declared: Declared, every: str, replays: int) -> dict[str, Any]:
    """Let it fail at a rate of commits, and replay it."""
    with bench.life(declared, every, "0") as life:
        ask(life.port, declared.healthy, declared.connection)
        false = len(bench.incidents(life))
        ask(life.port, declared.poison, declared.connection)
        if every.endswith("s") and float(every[:-1]) <= 5:
            bench.wait_for_commit(life)
        time.sleep(declared.age)
        if not _fail(life, declared):
            return {"word": "did not fail", "false": false}
        incident = bench.incident(life, declared.kind, false)
        if incident is None:
            return {"word": "no incident", "false": false}
        seen = len(bench.incidents(life)) - false
        began = time.monotonic()
        (run,) = bench.replay(int(incident["number"]))
        took = time.monotonic() - began
        more = bench.replay(int(incident["number"]), replays) if replays else []
    found = {
        "word": run["verdict"]["kind"],
        "false": false,
        "incidents": seen,
        "kind": incident["sighting"]["kind"],
    }
    return found | {"took": took, "why": _why(run), "replays": Counter(_told(one) for one in more)}


def twin(bench: Bench, declared: Declared, every: str) -> dict[str, Any]:
    """The same with a server that is missing in the branch, since what it said is not recorded."""
    with bench.life(declared, every, declared.twin, "--no-record-egress") as life:
        ask(life.port, declared.healthy, declared.connection)
        false = len(bench.incidents(life))
        ask(life.port, declared.poison, declared.connection)
        time.sleep(declared.age)
        if not _fail(life, declared):
            return {"word": "did not fail", "false": false}
        return _replayed(bench, life, declared.kind, false)


def other(place: Around, bench: Bench, declared: Declared, every: str) -> dict[str, Any]:
    """The control: a healthy service that fails since another one answers badly."""
    with bench.life(declared, every, declared.twin) as life:
        ask(life.port, declared.healthy, declared.connection)
        was_well = not _fail(life, declared)
        false = len(bench.incidents(life))
        if not was_well:
            return {"word": "was not well", "false": false}
        place.says = "x"
        try:
            _fail(life, declared)
        finally:
            place.says = "2"
        return _replayed(bench, life, declared.kind, false)


def outside(bench: Bench, declared: Declared, every: str) -> dict[str, Any]:
    """The control: a healthy service that somebody stops, or sends the signal of its bug."""
    more = [] if declared.kind in {"hang", "signal"} else _HANG
    with bench.life(declared, every, "0", *more) as life:
        ask(life.port, declared.healthy, declared.connection)
        false = len(bench.incidents(life))
        pids = procfs.tree_of(life.root)
        if declared.kind == "signal":
            os.kill(pids[-1], signal.SIGSEGV)
            return _replayed(bench, life, "signal", false)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        asking = threading.Thread(target=_fail, args=(life, declared))
        asking.start()
        try:
            incident = bench.incident(life, "hang", false)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            asking.join()
        return _of(bench, incident, false)


def _replayed(bench: Bench, life: Life, kind: str, false: int) -> dict[str, Any]:
    return _of(bench, bench.incident(life, kind, false), false)


def _of(bench: Bench, incident: dict[str, Any] | None, false: int) -> dict[str, Any]:
    if incident is None:
        return {"word": "no incident", "false": false}
    (run,) = bench.replay(int(incident["number"]))
    return {"word": run["verdict"]["kind"], "false": false, "why": _why(run)}


def _why(run: dict[str, Any]) -> str:
    """What is told beside the word."""
    verdict = run["verdict"]
    if "error" in run:
        return str(run["error"]["message"])
    return str(verdict["difference"] or "; ".join([*verdict["unseen"], *verdict["evidence"]]))


def _told(run: dict[str, Any]) -> str:
    """What must be equal in all replays of one failure."""
    outcome = run["outcome"] or {}
    parts = [outcome.get(name) for name in ("end", "status", "signal", "exit_status", "body")]
    return json.dumps([run["verdict"]["kind"], *parts])


def measure(bench: Bench, place: Around, declared: Declared, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one service."""
    rates = options.rates.split(",")
    began = time.monotonic()
    row: dict[str, Any] = {"service": declared.name, "language": declared.language, "fails": declared.kind}
    row["fresh"] = fresh(place, declared)
    details, false = {}, 0
    for every in rates:
        details[every] = own(bench, declared, every, options.replays if every == rates[-1] else 0)
        row[every] = details[every]["word"]
    last = details[rates[-1]]
    counts = last.get("replays") or Counter()
    most = max(counts.values(), default=0)
    row["replays"] = f"{most} of {counts.total()}" if counts else "-"
    row["incidents"] = last.get("incidents")
    ways = {"twin": twin, "other cause": partial(other, place), "outside": outside}
    for name in filter(None, options.others.split(",")):
        details[name] = ways[name](bench, declared, rates[-1])
        row[name] = details[name]["word"]
    false = sum(one["false"] for one in details.values())
    return row | {"false": false, "s": time.monotonic() - began, "details": details}


def summary(rows: list[dict[str, Any]], rates: list[str], declared: dict[str, Declared]) -> dict[str, Any]:
    """The figures that matter. ``best``: as good as can be true of the service."""
    others = [row[name] for row in rows for name in _OTHERS if name in row]
    counts = [row["details"][rates[-1]].get("replays") or Counter() for row in rows]
    return {
        "services": len(rows),
        "well when fresh": sum(row["fresh"] == "well" for row in rows),
        **{every: sum(row[every] == "reproduced" for row in rows) for every in rates},
        **{
            f"{every} best": sum(row[every] == declared[row["service"]].best for row in rows)
            for every in rates
        },
        "wrong words": sum(word == "reproduced" for word in others),
        "judged": len(others),
        "false incidents": sum(row["false"] for row in rows),
        "equal replays": sum(max(count.values(), default=0) for count in counts),
        "replays": sum(count.total() for count in counts),
    }


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    for detail in row["details"].values():
        if "replays" in detail:
            detail["replays"] = Counter(detail["replays"])
    return row


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of services, with commas between them")
    parser.add_argument("--rates", default="30s,2s,request", help="of commits (default %(default)s)")
    parser.add_argument("--replays", type=int, default=40, help="of each, at the last rate (default 40)")
    parser.add_argument(
        "--others", default=",".join(_OTHERS), help="twins and controls (default %(default)s)"
    )
    parser.add_argument("--directory", default="/var/tmp", help="where to work (default %(default)s)")
    parser.add_argument("--keep", type=Path, help="a file of rows: those in it are told, others are added")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    # So that it is cleaned up then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: terminated"))
    declared = corpus()
    wanted = options.only.split(",") if options.only else list(declared)
    load = load_average()
    asked = {"rates": options.rates, "replays": options.replays, "others": options.others}
    kept, tree = Kept(options.keep, asked, "service"), state_of_the_tree()
    left_out: dict[str, str] = {}
    not_measured: dict[str, str] = {}
    for name in wanted:
        one = declared[name]
        if name in kept.rows:
            continue
        if one.missing:
            left_out[name] = f"{', '.join(one.missing)} is not installed"
            continue
        # A home for each: what is measured does not depend on what was before.
        with workplace(Path(options.directory), "fidelity-", _stop) as directory, around(directory) as place:
            try:
                row = measure(Bench(directory, place), place, one, options)
            except (NotMeasured, NotRunning) as error:
                not_measured[name] = str(error)
                print(f"error: {name}: {error}", file=sys.stderr)
                continue
        on = time.strftime("%Y-%m-%d")
        row = kept.add(row | {"load": load_average(), "on": on, "tree": tree})
        if not options.json:
            print({key: value for key, value in row.items() if key != "details"}, file=sys.stderr)
            for what, detail in row["details"].items():
                print(f"    {what}: {detail['word']}: {detail.get('why', '')}", file=sys.stderr)
    rows = [_counted(kept.rows[name]) for name in wanted if name in kept.rows]
    found = summary(rows, options.rates.split(","), declared)
    found |= {"trees": sorted({row["tree"] for row in rows if "tree" in row})}
    found |= {"left out": left_out, "not measured": not_measured}
    if options.json:
        print_json({"load": load, "summary": found, "rows": rows})
    else:
        apart = {"details", "load", "on", "tree"}
        table = [{key: value for key, value in row.items() if key not in apart} for row in rows]
        print_table(f"Failures of the corpus (load {load})", table)
        print(json.dumps(found, indent=1))
    sys.exit(1 if not_measured else 0)


if __name__ == "__main__":
    main()
