"""Users who sign in, look at who they are, and sign out again.

python traffic.py URL USERS
"""

from __future__ import annotations

import json
import sys
import urllib.request


def ask(url: str, body: dict[str, str] | None = None, token: str = "") -> dict[str, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"X-Token": token, "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return dict(json.loads(answer.read()))


def main(url: str, users: int) -> None:
    for number in range(users):
        user = {"user": f"user-{number}"}
        token = ask(f"{url}/login", user)["token"]
        assert ask(f"{url}/me", token=token) == user
        ask(f"{url}/logout", user)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
