"""Ordinary traffic for the price service: clients ask for prices, most in euro.

    python traffic.py --url http://127.0.0.1:8000

Stops at the first 5xx answer and prints its request. Exit status: 0 no request failed, 1 one did, 2 the service could not be
reached.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

import httpx

NO_FAILURE, FAILURE, NO_SERVICE = 0, 1, 2
ITEMS = ("tea", "coffee", "honey")


def requests(count: int) -> Iterator[str]:
    """Paths: the same each time. One client writes its currency in small letters; another wants that currency later."""
    chance = random.Random(7)
    for at in range(count):
        currency = "EUR" if chance.random() < 0.7 else chance.choice(("USD", "GBP"))
        if at == count // 3:
            currency = "chf"
        if at == count - 1:
            currency = "CHF"
        yield f"/price/{chance.choice(ITEMS)}?currency={currency}"


def run(url: str, count: int) -> int:
    """Ask until something fails."""
    with httpx.Client(base_url=url, timeout=30) as http:
        for sent, path in enumerate(requests(count), 1):
            answer = http.get(path)
            if answer.status_code >= 500:
                print(f"{answer.status_code} at request {sent}: GET {path}")
                return FAILURE
    print(f"No request failed: gave up after {count}.", file=sys.stderr)
    return NO_FAILURE


def main() -> int:
    """Read the arguments and ask."""
    parser = argparse.ArgumentParser(description="Ask for prices until one request fails.")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="where the service is (default: %(default)s)"
    )
    parser.add_argument("--count", type=int, default=60, help="requests (default: %(default)s)")
    options = parser.parse_args()
    try:
        return run(options.url, options.count)
    except httpx.HTTPError as error:
        print(f"Error: {options.url}: {str(error) or type(error).__name__}", file=sys.stderr)
        return NO_SERVICE


if __name__ == "__main__":
    sys.exit(main())
