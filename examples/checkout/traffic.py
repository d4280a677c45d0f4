"""Ordinary traffic for the checkout: customers fill carts and pay.

    python traffic.py --url http://127.0.0.1:8000

Stops at the first 5xx answer and prints its request. Exit status: 0 no request failed in the time given, 1 one did, 2 the
service could not be reached.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import httpx

NO_FAILURE, FAILURE, NO_SERVICE = 0, 1, 2


def run(url: str, seconds: float) -> int:
    """Buy until something fails."""
    began, sent = time.monotonic(), 0
    with httpx.Client(base_url=url, timeout=30) as http:
        products = http.get("/products").raise_for_status().json()
        while time.monotonic() - began < seconds:
            customer = f"c{random.randrange(10**6):06}"
            bought = random.choices(products, k=random.randrange(1, 4))
            for path in (*(f"/carts/{customer}/{sku}" for sku in bought), f"/checkout/{customer}"):
                sent += 1
                answer = http.post(path)
                if answer.status_code >= 500:
                    print(
                        f"{answer.status_code} after {time.monotonic() - began:.1f} s, request {sent}: POST {path}"
                    )
                    return FAILURE
                answer.raise_for_status()
    print(f"No request failed: gave up after {sent} requests in {seconds:g} s.", file=sys.stderr)
    return NO_FAILURE


def main() -> int:
    """Read the arguments and buy."""
    parser = argparse.ArgumentParser(description="Fill carts and pay until a request fails.")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="where the service is (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=120, help="give up after this long (default: %(default)s)"
    )
    options = parser.parse_args()
    try:
        return run(options.url, options.seconds)
    except httpx.HTTPError as error:
        print(f"Error: {options.url}: {str(error) or type(error).__name__}", file=sys.stderr)
        return NO_SERVICE


if __name__ == "__main__":
    sys.exit(main())
