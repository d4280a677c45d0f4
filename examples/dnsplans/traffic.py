"""Ordinary traffic for the name service: clients resolve one endpoint after the other.

    python traffic.py --url http://127.0.0.1:8000

Stops at the first 5xx answer and prints its request. Exit status: 0 no request failed in the time given, 1 one did, 2 the
service could not be reached.
"""

from __future__ import annotations

import argparse
import sys
import time

import httpx

NO_FAILURE, FAILURE, NO_SERVICE = 0, 1, 2
PAUSE = 0.02  # [s] between two rounds


def run(url: str, seconds: float) -> int:
    """Ask until something fails."""
    began, sent = time.monotonic(), 0
    with httpx.Client(base_url=url, timeout=30) as http:
        endpoints = http.get("/endpoints").raise_for_status().json()
        while time.monotonic() - began < seconds:
            for endpoint in endpoints:
                sent += 1
                answer = http.get(f"/resolve/{endpoint}")
                if answer.status_code >= 500:
                    after = time.monotonic() - began
                    print(
                        f"{answer.status_code} after {after:.1f} s, request {sent}: GET /resolve/{endpoint}"
                    )
                    return FAILURE
                answer.raise_for_status()
            time.sleep(PAUSE)
    print(f"No request failed: gave up after {sent} requests in {seconds:g} s.", file=sys.stderr)
    return NO_FAILURE


def main() -> int:
    """Read the arguments and ask."""
    parser = argparse.ArgumentParser(description="Resolve endpoints until one fails.")
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
