"""How often each example's failure comes back, and what a replay costs: each is made to fail once, and replayed many times.

    python benchmarks/reproduction.py [--times 100] [--only payments,checkout] [--json]

For every example its servers are started (PostgreSQL and Redis must be installed; Node for ``prices``), the service runs under
Relive with a commit a second, and its traffic goes on until a request fails. Then ``relive replay --times N`` is run as a user
would, two branches at a time. Told are: how many of the replays reproduced the failure; replays a minute, restoring included; and
where the time of one goes, as medians over the replays.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import free_port, load_average, median, print_json, print_table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.servers import postgres_server, redis_server  # noqa: E402 - the servers of the tests are those of the benchmarks

EXAMPLES = ROOT / "examples"
SCRIPTS = Path(sysconfig.get_path("scripts"))
_LIMIT = 60.0  # [s] for a service, or an incident, to be there
_STEPS = ("restore", "seal", "stubs", "request", "compare")


@dataclass(frozen=True, slots=True)
class Example:
    """One of ``examples/``.

    Attributes:
        prepare: starts what the service needs; gives its environment.
        service: its command line, for a port.
        options: for ``relive run``.
        traffic: further arguments of its ``traffic.py``, for an environment.
        first: a page that answers when it is ready.
    """

    name: str
    prepare: Callable[[ExitStack], dict[str, str]]
    service: Callable[[int], list[str]]
    first: str
    options: tuple[str, ...] = ()
    traffic: Callable[[dict[str, str]], list[str]] = lambda _environment: []


def _uvicorn(name: str) -> Callable[[int], list[str]]:
    def command(port: int) -> list[str]:
        words = ["app:app", "--app-dir", str(EXAMPLES / name), "--port", str(port)]
        return [str(SCRIPTS / "uvicorn"), *words, "--log-level", "warning"]

    return command


def _payments(stack: ExitStack) -> dict[str, str]:
    directory = Path("/var/tmp") / f"relive-payments-{os.getpid()}"
    directory.mkdir()
    stack.callback(lambda: subprocess.run(["rm", "-r", str(directory)], check=True))
    return {"PAYMENTS_DATA": str(directory)}


def _dnsplans(stack: ExitStack) -> dict[str, str]:
    return {"PLANS_REDIS": stack.enter_context(redis_server()).rpartition(":")[2]}


def _checkout(stack: ExitStack) -> dict[str, str]:
    port = free_port()
    stack.enter_context(_running(sys.executable, str(EXAMPLES / "checkout/gateway.py"), "--port", str(port)))
    return {
        "CHECKOUT_DATABASE": stack.enter_context(postgres_server()),
        "CHECKOUT_REDIS": stack.enter_context(redis_server()).rpartition(":")[2],
        "CHECKOUT_GATEWAY": f"http://127.0.0.1:{port}",
    }


def _prices(stack: ExitStack) -> dict[str, str]:
    if not (EXAMPLES / "prices/node_modules").is_dir():
        install = ["npm", "install", "--omit=dev", "--no-audit", "--no-fund"]
        subprocess.run(install, cwd=EXAMPLES / "prices", check=True, stdout=sys.stderr)
    return {
        "PRICES_DATABASE": stack.enter_context(postgres_server()),
        "PRICES_REDIS": stack.enter_context(redis_server()),
    }


_ALL = [
    Example(
        "payments",
        _payments,
        _uvicorn("payments"),
        "/accounts/1",
        traffic=lambda _: ["--stop-at-first-failure"],
    ),
    Example("checkout", _checkout, _uvicorn("checkout"), "/products"),
    Example("dnsplans", _dnsplans, _uvicorn("dnsplans"), "/endpoints"),
    Example(
        "prices",
        _prices,
        lambda port: ["node", str(EXAMPLES / "prices/server.js"), str(port)],
        "/price/sku-40",
        options=("--record-egress",),
        traffic=lambda environment: ["--database", environment["PRICES_DATABASE"]],
    ),
]


@contextmanager
def _running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _relive(*words: str, environment: dict[str, str] | None = None, ok: tuple[int, ...] = (0,)) -> Any:
    command, *rest = words
    done = subprocess.run(
        [str(SCRIPTS / "relive"), command, "--json", *rest],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode not in ok:
        raise SystemExit(
            f"relive {' '.join(words)} ended with status {done.returncode}: {done.stdout.decode()}"
        )
    return json.loads(done.stdout or "null")


def _wait(check: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        if value := check():
            return value
        time.sleep(0.05)
    raise SystemExit(f"{what} was not there after {_LIMIT:g} s")


def _answers(url: str) -> bool:
    return subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=False).returncode == 0


def _incident(name: str) -> int:
    """Number of the newest incident of a service, 0 without one."""
    return max((int(one["number"]) for one in _relive("incidents", name)), default=0)


def measure(example: Example, times: int) -> dict[str, Any]:
    """Let it fail, and replay it."""
    name = f"{example.name}-{os.getpid()}"
    with ExitStack() as stack:
        environment = example.prepare(stack)
        outer, inner = free_port(), free_port()
        where = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
        command = [
            "run",
            "--detach",
            "--name",
            name,
            "--every",
            "1s",
            "--pause-share",
            "100",
            *example.options,
            *where,
            "--",
        ]
        _relive(*command, *example.service(inner), environment=environment)
        stack.callback(lambda: _relive("stop", name, ok=(0, 3, 9)))
        _wait(lambda: _answers(f"http://127.0.0.1:{outer}{example.first}"), example.name)
        traffic = [
            sys.executable,
            str(EXAMPLES / example.name / "traffic.py"),
            "--url",
            f"http://127.0.0.1:{outer}",
        ]
        failed = subprocess.run([*traffic, *example.traffic(environment)], stdout=sys.stderr, check=False)
        if failed.returncode != 1:
            raise SystemExit(
                f"the traffic of {example.name} ended with status {failed.returncode}: nothing failed"
            )
        number = _wait(lambda: _incident(name), "the incident")
        began = time.monotonic()
        replay = _relive("replay", str(number), "--times", str(times), ok=(0, 10))
        took = time.monotonic() - began
    runs = replay["runs"]
    return {
        "example": example.name,
        "times": len(runs),
        "reproduced": sum(run["verdict"]["kind"] == "reproduced" for run in runs),
        "a_minute": 60 * len(runs) / took,
        "seconds": median([run["seconds"] for run in runs]),
        "requests_before": median([run["forwarded"] for run in runs]),
        **{step: _step(runs, step) for step in _STEPS},
        "differences": sorted({run["verdict"]["difference"] for run in runs if run["verdict"]["difference"]})[
            :3
        ],
    }


def _step(runs: list[dict[str, Any]], step: str) -> float | None:
    """Median of a step in milliseconds; None where no run came so far."""
    found = [run["steps"][step] * 1000 for run in runs if run.get("steps")]
    return median(found) if found else None


def _row(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "example": one["example"],
        "reproduced": f"{one['reproduced']} of {one['times']}",
        "a minute": one["a_minute"],
        "s each": one["seconds"],
        "requests before": one["requests_before"],
        **{f"{step} ms": one[step] if one[step] is not None else "-" for step in _STEPS},
    }


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description="How often the examples' failures come back.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--times", type=int, default=100, help="replays of each")
    parser.add_argument("--only", default="", help="names of examples, with commas between them")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [example.name for example in _ALL]
    load = load_average()
    found = [measure(example, options.times) for example in _ALL if example.name in wanted]
    if options.json:
        print_json({"load": load, "examples": found})
        return
    print_table(f"Replays of the examples' failures (load {load})", [_row(one) for one in found])
    for one in found:
        for difference in one["differences"]:
            print(f"{one['example']}: {difference}")


if __name__ == "__main__":
    main()
