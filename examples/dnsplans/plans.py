"""Plans: which addresses each endpoint shall have, kept in Redis, the store that planner, enactors and resolver share.

===================  ==========================================================
key                  value
===================  ==========================================================
``plan:newest``      number of the newest plan
``plan:N``           JSON of plan N: endpoint to addresses
``active``           hash: endpoint to the number of the plan that it follows
===================  ==========================================================
"""

from __future__ import annotations

import json
import random
import threading

import redis

__all__ = ["ENDPOINTS", "NoPlan", "PlanStore", "Planner"]

ENDPOINTS = ["dynamo.example", "queue.example", "login.example", "mail.example"]
INTERVAL = 0.15  # [s] between two plans


class NoPlan(LookupError):
    """An endpoint follows a plan that is not there."""


class PlanStore:
    """The store. Thread safe, as the client's pool is."""

    def __init__(self, port: int) -> None:
        self._redis = redis.Redis(port=port, decode_responses=True)

    def newest(self) -> int:
        """Number of the newest plan, 0 before the first."""
        return int(self._redis.get("plan:newest") or 0)

    def add(self, addresses: dict[str, list[str]]) -> int:
        """Keep a new plan; returns its number."""
        number = self.newest() + 1
        self._redis.set(f"plan:{number}", json.dumps(addresses))
        self._redis.set("plan:newest", number)
        return number

    def active(self, endpoint: str) -> int:
        """Number of the plan that an endpoint follows, 0 when none was applied."""
        return int(self._redis.hget("active", endpoint) or 0)

    def apply(self, endpoint: str, number: int) -> None:
        """Have an endpoint follow a plan."""
        self._redis.hset("active", endpoint, str(number))

    def delete_before(self, number: int) -> int:
        """Delete all plans before one; returns how many there were."""
        old = [key for key in self._redis.keys("plan:[0-9]*") if int(key.partition(":")[2]) < number]
        return int(self._redis.delete(*old)) if old else 0

    def addresses(self, endpoint: str) -> list[str]:
        """Where an endpoint is now; raises NoPlan."""
        number = self.active(endpoint)
        plan = self._redis.get(f"plan:{number}")
        if plan is None:
            raise NoPlan(f"{endpoint} follows plan {number}, which is not in the store")
        return list(json.loads(plan)[endpoint])


class Planner:
    """The thread that looks at the load balancers and makes plans."""

    def __init__(self, store: PlanStore) -> None:
        self._store = store
        self._dice = random.Random()
        self._thread = threading.Thread(target=self._run, name="planner", daemon=True)

    def start(self) -> None:
        """Make the first plan, have everybody follow it, go on in the background."""
        first = self._store.add(self._plan())
        for endpoint in ENDPOINTS:
            self._store.apply(endpoint, first)
        self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(INTERVAL):
            self._store.add(self._plan())

    def _plan(self) -> dict[str, list[str]]:
        return {name: [f"192.0.2.{self._dice.randrange(1, 255)}" for _ in range(3)] for name in ENDPOINTS}
