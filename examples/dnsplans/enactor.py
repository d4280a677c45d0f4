"""Enactors: each takes the newest plan, has all endpoints follow it, and then deletes plans that nobody needs any more.

There are two, so that one that is held up does not hold up the others. Both may work at the same time: an endpoint follows
whatever was applied last, and as plans are only ever replaced by newer ones, that is the newest.
"""

from __future__ import annotations

import logging
import random
import threading

from plans import ENDPOINTS, PlanStore

__all__ = ["Enactor"]

KEPT = 5  # plans before the one just applied
ONE_ENDPOINT = 0.01  # [s] to talk to the servers of an endpoint
BUSY, RETRY = 0.01, 1.5  # how likely they are busy, and how long it then takes [s]

log = logging.getLogger("dnsplans.enactor")


class Enactor:
    """One worker."""

    def __init__(self, name: str, store: PlanStore) -> None:
        self.name = name
        self._store = store
        self._dice = random.Random()
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"enactor-{name}", daemon=True)

    def start(self) -> None:
        """Work in the background."""
        self._thread.start()

    def _run(self) -> None:
        while True:
            plan = self._store.newest()
            if plan > max(self._store.active(endpoint) for endpoint in ENDPOINTS):
                self._enact(plan)
            self._pause.wait(self._dice.uniform(0.02, 0.06))

    def _enact(self, plan: int) -> None:
        for endpoint in ENDPOINTS:
            self._talk_to(endpoint)
            self._store.apply(endpoint, plan)
        log.info("%s: plan %d is applied", self.name, plan)
        if self._store.delete_before(plan - KEPT):
            log.info("%s: plans before %d are deleted", self.name, plan - KEPT)

    def _talk_to(self, endpoint: str) -> None:
        if self._dice.random() < BUSY:
            log.info("%s: %s is busy, trying again", self.name, endpoint)
            self._pause.wait(RETRY)
        self._pause.wait(ONE_ENDPOINT)
