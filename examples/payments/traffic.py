"""Ordinary traffic for the payments service: checkouts pay, merchants look at their accounts.

    python traffic.py --url http://127.0.0.1:8000 --stop-at-first-failure

Prints a line for every 5xx answer. Exit status: 0 no request failed, 1 at least one did, 2 the service could
not be reached or refused a request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field

import httpx

NO_FAILURE, FAILURE, NO_SERVICE = 0, 1, 2
PAUSE = 0.2  # [s] between two actions of one client, on average


class Done(Exception):
    """No more requests are to be sent."""


@dataclass
class Traffic:
    """What was sent so far, and what is still allowed."""

    max_requests: int
    max_seconds: float
    stop_at_first_failure: bool
    sent: int = 0
    failures: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.started

    async def send(
        self, http: httpx.AsyncClient, method: str, path: str, body: dict[str, object] | None = None
    ) -> httpx.Response:
        """Send a request and report it if it fails.

        Raises:
            Done: the bound is reached, or this request failed and the first failure was asked for.
            httpx.HTTPError: no answer, or an answer that says the request was wrong.
        """
        if self.sent >= self.max_requests or self.seconds >= self.max_seconds:
            raise Done
        self.sent += 1
        number = self.sent
        answer = await http.request(method, path, json=body)
        if answer.status_code >= 500:
            self.failures += 1
            sent = f" {json.dumps(body)}" if body else ""
            print(
                f"{answer.status_code} after {self.seconds:.1f} s, request {number}: {method} {path}{sent}",
                flush=True,
            )
            if self.stop_at_first_failure:
                raise Done
        else:
            answer.raise_for_status()
        return answer


async def client(traffic: Traffic, http: httpx.AsyncClient, accounts: list[int], dice: random.Random) -> None:
    """Pay into one account after the other; its owner looks at it at once, and at times at the payouts."""
    while True:
        account = dice.choice(accounts)
        payment: dict[str, object] = {
            "account": account,
            "amount": dice.randrange(150, 20_000),
            "reference": f"order-{dice.randrange(10**8):08}",
        }
        await traffic.send(http, "POST", "/payments", payment)
        await traffic.send(http, "GET", f"/accounts/{account}")
        if dice.randrange(10) == 0:
            await traffic.send(http, "GET", f"/accounts/{account}/settlements")
        await asyncio.sleep(dice.uniform(0, 2 * PAUSE))


async def run(traffic: Traffic, url: str, *, clients: int, seed: int | None) -> None:
    """Let all clients work until the first of them is done."""
    dice = random.Random(seed)
    # uvicorn closes a connection that was idle for 5 s; who keeps it as long may send a request just then.
    limits = httpx.Limits(keepalive_expiry=2)
    async with httpx.AsyncClient(base_url=url, timeout=30, limits=limits) as http:
        accounts = [account["id"] for account in (await traffic.send(http, "GET", "/accounts")).json()]
        working = [
            asyncio.create_task(client(traffic, http, accounts, random.Random(dice.random())))
            for _ in range(clients)
        ]
        try:
            finished, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)


def main() -> int:
    """Send traffic and say how it went."""
    parser = argparse.ArgumentParser(description="Send ordinary traffic to the payments service.")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="where the service is (default: %(default)s)"
    )
    parser.add_argument("--clients", type=int, default=8, help="how many at once (default: %(default)s)")
    parser.add_argument(
        "--max-requests", type=int, default=15_000, help="give up after this many (default: %(default)s)"
    )
    parser.add_argument(
        "--max-seconds", type=float, default=420, help="give up after this long (default: %(default)s)"
    )
    parser.add_argument("--stop-at-first-failure", action="store_true", help="stop at the first 5xx answer")
    parser.add_argument("--seed", type=int, help="make the same choices again (default: others each time)")
    options = parser.parse_args()

    traffic = Traffic(options.max_requests, options.max_seconds, options.stop_at_first_failure)
    try:
        asyncio.run(run(traffic, options.url, clients=options.clients, seed=options.seed))
    except Done:
        pass
    except httpx.HTTPError as error:
        print(f"Error: {options.url}: {str(error) or type(error).__name__}", file=sys.stderr)
        return NO_SERVICE
    except KeyboardInterrupt:
        pass
    if traffic.failures:
        return FAILURE
    print(
        f"No request failed: gave up after {traffic.sent} requests in {traffic.seconds:.0f} s.",
        file=sys.stderr,
    )
    return NO_FAILURE


if __name__ == "__main__":
    sys.exit(main())
