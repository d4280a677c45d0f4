"""Ordinary traffic for the price service, and the nightly job that locks its table for a moment.

    python traffic.py --url http://127.0.0.1:8000 --database postgresql://...

Stops at the first 5xx answer and prints its request. Exit status: 0 no request failed in the time given, 1 one did, 2 the
service could not be reached.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time

import httpx
import psycopg

NO_FAILURE, FAILURE, NO_SERVICE = 0, 1, 2
LOCKED, BETWEEN = 0.5, 1.5  # [s]


def nightly(database: str, end: threading.Event) -> None:
    """Lock the table again and again, as a backup or a migration does."""
    while not end.wait(BETWEEN):
        with psycopg.connect(database) as connection:
            connection.execute("LOCK TABLE prices")
            end.wait(LOCKED)


def run(url: str, seconds: float) -> int:
    """Ask, and change a price at times, until something fails."""
    began, sent = time.monotonic(), 0
    with httpx.Client(base_url=url, timeout=30) as http:
        while time.monotonic() - began < seconds:
            sku = f"sku-{random.randrange(1, 41)}"
            path = f"/price/{sku}"
            method = "GET"
            if random.random() < 0.02:
                method, path = "PUT", f"{path}/{random.randrange(100, 9999) / 100:.2f}"
            sent += 1
            answer = http.request(method, path)
            if answer.status_code >= 500:
                after = time.monotonic() - began
                print(f"{answer.status_code} after {after:.1f} s, request {sent}: {method} {path}")
                return FAILURE
            time.sleep(0.005)
    print(f"No request failed: gave up after {sent} requests in {seconds:g} s.", file=sys.stderr)
    return NO_FAILURE


def main() -> int:
    """Read the arguments and ask."""
    parser = argparse.ArgumentParser(description="Ask for prices until a request fails.")
    parser.add_argument(
        "--url", default="http://127.0.0.1:8000", help="where the service is (default: %(default)s)"
    )
    parser.add_argument("--database", required=True, help="where its database is")
    parser.add_argument(
        "--seconds", type=float, default=120, help="give up after this long (default: %(default)s)"
    )
    options = parser.parse_args()
    end = threading.Event()
    job = threading.Thread(target=nightly, args=[options.database, end])
    job.start()
    try:
        return run(options.url, options.seconds)
    except httpx.HTTPError as error:
        print(f"Error: {options.url}: {str(error) or type(error).__name__}", file=sys.stderr)
        return NO_SERVICE
    finally:
        end.set()
        job.join()


if __name__ == "__main__":
    sys.exit(main())
