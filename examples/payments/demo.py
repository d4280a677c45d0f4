"""The demo: the payments service under Relive fails under traffic, and the failure is brought back five times.

    python examples/payments/demo.py [--times 5] [--every 1s]

Everything it prints is real: the commands are run as shown, and their output is passed through. It ends with 0 when the
failure was reproduced in every sandbox, and with 1 when it was not, for instance because the race was lost after the
last commit before the failing request.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "payments"
BIN = Path(sys.executable).parent
READY_LIMIT = 30.0  # [s]


class Failed(Exception):
    """The demo cannot go on; the message says why."""


def say(text: str) -> None:
    """A line of the story."""
    print(f"\n# {text}", flush=True)


def run(
    *words: str, ok: tuple[int, ...] = (0,), show: bool = True, tee: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would type it; its output passes through, or is kept, or both (``tee``)."""
    if show:
        here = {
            f"{BIN}/": "",
            f"{sys.executable}": "python",
            f"{HERE}/": "examples/payments/",
            f"{HERE}": "examples/payments",
        }
        shown = list(words)
        for path, short in here.items():
            shown = [word.replace(path, short) for word in shown]
        print(f"$ {shlex.join(shown)}", flush=True)
    done = subprocess.run(
        [*words], text=True, check=False, stdout=None if show and not tee else subprocess.PIPE
    )
    if tee:
        print(done.stdout, end="", flush=True)
    if done.returncode not in ok:
        raise Failed(f"{words[0]} {words[1]} ended with status {done.returncode}")
    return done


def failed_payment(told: str) -> str:
    """The body of the payment that failed, from what the traffic client told."""
    _, found, rest = told.partition("POST /payments ")
    if not found:
        raise Failed("the failing request was no payment")
    return rest.splitlines()[0]


def try_again(url: str, payment: str) -> None:
    """Send a payment once more; it is expected to fail again."""
    print(f"$ curl {url}/payments --json {shlex.quote(payment)}")
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/payments", payment.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            raise Failed(f"the payment went through this time, with status {answer.status}")
    except urllib.error.HTTPError as refused:
        with refused:
            print(f"{refused.code} {refused.read().decode()}", flush=True)


def relive() -> str:
    """The path of the relive command, to be followed by its arguments."""
    return str(BIN / "relive")


def free_port() -> int:
    """A TCP port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_ready(url: str) -> None:
    """Wait for the service's first answer."""
    until = time.monotonic() + READY_LIMIT
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/accounts/1", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise Failed("the payments service did not become ready")


def known_incidents() -> set[int]:
    """The numbers of all incidents, of any service: on a fresh machine nothing is known under the demo's name yet."""
    return {one["number"] for one in json.loads(run(relive(), "incidents", "--json", show=False).stdout)}


def newest_incident(known: set[int], *, times: int) -> int:
    """The number of the newest incident of the service, once it is written down as often as it was seen."""
    for _ in range(100):
        found = json.loads(run(relive(), "incidents", NAME, "--json", show=False).stdout)
        if found and found[0]["number"] not in known and found[0]["times"] >= times:
            return int(found[0]["number"])
        time.sleep(0.1)
    raise Failed("the failure did not become an incident")


def play(times: int, every: str) -> int:
    """The whole story; returns the exit status."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    data = Path("/var/tmp/relive-demo-payments")
    os.environ["PAYMENTS_DATA"] = str(data)
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    known = known_incidents()

    say("A payments service starts under Relive. Nothing in it knows of Relive.")
    service = [
        str(BIN / "uvicorn"),
        "app:app",
        "--app-dir",
        str(HERE),
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    capsule = ["--name", NAME, "--every", every, "--listen", f"127.0.0.1:{port}"]
    run(relive(), "run", "--detach", *capsule, "--", *service)
    try:
        wait_until_ready(url)
        say("Customers come, from another process, until a payment fails.")
        client = [sys.executable, str(HERE / "traffic.py"), "--url", url, "--stop-at-first-failure"]
        payment = failed_payment(run(*client, ok=(1,), tee=True).stdout)
        number = newest_incident(known, times=1)
        say("The customer tries again, as customers do.")
        try_again(url, payment)
        newest_incident(known, times=2)
        say("Relive saw it, and knows the commit before the request and the one at the failure.")
        run(relive(), "show", f"incident/{number}")
        say(
            f"The state before the request comes back in {times} sealed sandboxes; each gets the same requests again."
        )
        verdict = run(relive(), "replay", str(number), "--times", str(times), ok=(0, 1, 10)).returncode
        say(
            "The same code, a fresh process, the same request: is it the code alone that fails, or the state it had?"
        )
        run(relive(), "reproduce", str(number), ok=(0, 1, 10))
        say("Meanwhile the original goes on.")
        run(relive(), "ps")
        with urllib.request.urlopen(f"{url}/accounts/1", timeout=10) as answer:
            print(f"GET {url}/accounts/1: {answer.status} {answer.read().decode()}", flush=True)
    finally:
        run(relive(), "stop", NAME, ok=(0, 3, 9), show=False)
    say("The service is ended now. Its commits and the incident stay, and can be looked at:")
    tell_what_next(number, port)
    return min(verdict, 1)


def tell_what_next(number: int, port: int) -> None:
    """Commands that can be typed as they stand."""
    if shutil.which("relive") is None:
        print(f"export PATH={BIN}:$PATH")
    print("relive dashboard                                # all of it in a browser")
    print(
        f"relive debug {number}                                  # the failing frame, in the process itself"
    )
    print(f"relive log {NAME}                             # its commits, newest first")
    print(f"relive restore {NAME} --publish 9000:{port}    # the newest lives again, for curl and its like")
    print("relive ps; relive stop BRANCH                   # what runs; end it", flush=True)


def main() -> int:
    """Read the arguments and play."""
    parser = argparse.ArgumentParser(description="The payments demo of Relive.")
    parser.add_argument("--times", type=int, default=5, help="sandboxes in which the failure is replayed")
    parser.add_argument("--every", default="1s", help="when to commit, as for relive run")
    arguments = parser.parse_args()
    try:
        return play(arguments.times, arguments.every)
    except Failed as failure:
        print(f"The demo stopped: {failure}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
