"""Settlement: five times a second, every batch that holds payments is closed, reported and paid out.

The report of a batch carries a digest over its lines and over the digest of the report before it, so that
none can be changed or left out afterwards.
"""

from __future__ import annotations

import csv
import hashlib
import logging
import threading
import time
from pathlib import Path

from ledger import Batch, Ledger, Settlement

__all__ = ["Settler"]

INTERVAL = 0.2  # [s]

log = logging.getLogger("payments.settlement")


class Settler:
    """The thread that settles; one for each ledger."""

    def __init__(self, ledger: Ledger, reports: Path) -> None:
        self._ledger = ledger
        self._reports = reports
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="settlement", daemon=True)

    def start(self) -> None:
        """Settle what a crash left behind, then go on in the background."""
        self._reports.mkdir(parents=True, exist_ok=True)
        for batch in self._ledger.closed_batches():
            self._settle(batch)
        self._thread.start()

    def stop(self) -> None:
        """Finish the round that is under way; what came in since is settled after the next start."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                batches = self._ledger.batches_to_close()
                for batch in batches:
                    self._ledger.close(batch)
                    self._settle(batch)
            except Exception:
                log.exception("settlement round failed")
            else:
                if batches:
                    log.info("settled %d batches", len(batches))

    def _settle(self, batch: Batch) -> None:
        before = self._ledger.settlements(batch.account_id, limit=1)
        digest = hashlib.sha256(before[0].digest.encode() if before else b"")
        with (self._reports / f"{batch.account_id:04}-{batch.id}.csv").open("w", newline="") as file:
            report = csv.writer(file)
            for payment in batch.payments:
                line = [payment.id, f"{payment.created:.3f}", payment.amount, payment.fee, payment.reference]
                digest.update(repr(line).encode())
                report.writerow(line)
            report.writerow(["digest", digest.hexdigest()])
        self._ledger.record(
            Settlement(
                batch_id=batch.id,
                account_id=batch.account_id,
                payments=len(batch.payments),
                net=sum(payment.amount - payment.fee for payment in batch.payments),
                digest=digest.hexdigest(),
                created=time.time(),
            )
        )
