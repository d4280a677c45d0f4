"""The ledger: accounts, payments and batches in SQLite, with what is asked for most kept in memory.

Account: a merchant. What is shown of it is computed from all its payments, so it is cached.
Batch: the payments of one account that will be paid out together. Each account has exactly one open batch,
to which new payments are added; closing it opens the next. Settling closed batches is in settlement.py.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Account", "Batch", "Ledger", "Payment", "Settlement", "UnknownAccount", "UnknownPayment"]

HERE = Path(__file__).parent
FEE_PERIOD = 30 * 86400  # [s] the volume of this long decides the fee tier


class UnknownAccount(LookupError):
    """There is no account of that number."""


class UnknownPayment(LookupError):
    """There is no payment of that number."""


@dataclass(frozen=True)
class Payment:
    """Money that a customer paid to an account; ``amount`` and ``fee`` in cents."""

    id: int
    account_id: int
    amount: int
    fee: int
    reference: str
    created: float


@dataclass
class Batch:
    """The payments of one account that are paid out together."""

    id: int
    account_id: int
    payments: list[Payment] = field(default_factory=list)


@dataclass(frozen=True)
class Account:
    """An account as it was when last computed; money in cents, ``fee_rate`` in basis points."""

    id: int
    name: str
    batch_id: int
    volume: int
    balance: int
    fee_rate: int


@dataclass(frozen=True)
class Settlement:
    """A batch that was paid out: ``net`` cents, under the digest of its report."""

    batch_id: int
    account_id: int
    payments: int
    net: int
    digest: str
    created: float


class Ledger:
    """All the money of one data directory. Thread safe: writers take turns, readers do not wait for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.RLock()
        self._accounts: dict[int, Account] = {}
        self._open_batches: dict[int, Batch] = {}
        if not path.exists():
            with self._database() as db:
                db.executescript(f"BEGIN; {_sql('schema.sql')} {_sql('seed.sql')} COMMIT;")
        self._load_open_batches()

    def account(self, account_id: int) -> Account:
        """Return the account, from memory unless it changed since it was last asked for."""
        account = self._accounts.get(account_id)
        if account is None:
            account = self._accounts[account_id] = self._read_account(account_id)
        return account

    def accounts(self) -> list[tuple[int, str]]:
        """Return number and name of every account."""
        with self._database() as db:
            return db.execute("SELECT id, name FROM accounts ORDER BY id").fetchall()

    def payment(self, payment_id: int) -> Payment:
        """Return a payment, settled or not."""
        with self._database() as db:
            row = db.execute(
                "SELECT id, account_id, amount, fee, reference, created FROM payments WHERE id = ?",
                [payment_id],
            ).fetchone()
        if row is None:
            raise UnknownPayment(payment_id)
        return Payment(*row)

    def settlements(self, account_id: int, *, limit: int = 20) -> list[Settlement]:
        """Return what was paid out to an account, newest first."""
        with self._database() as db:
            rows = db.execute(
                "SELECT batch_id, account_id, payments, net, digest, created FROM settlements"
                " WHERE account_id = ? ORDER BY batch_id DESC LIMIT ?",
                [account_id, limit],
            ).fetchall()
        return [Settlement(*row) for row in rows]

    def pay(self, account_id: int, amount: int, reference: str) -> Payment:
        """Book a payment into the account's open batch."""
        with self._writing:
            account = self.account(account_id)
            batch = self._open_batches[account.batch_id]
            fee = max(1, amount * account.fee_rate // 10_000)
            created = time.time()
            with self._database() as db:
                cursor = db.execute(
                    "INSERT INTO payments (account_id, batch_id, amount, fee, reference, created)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    [account_id, batch.id, amount, fee, reference, created],
                )
            assert cursor.lastrowid is not None
            payment = Payment(cursor.lastrowid, account_id, amount, fee, reference, created)
            batch.payments.append(payment)
            self._accounts.pop(account_id, None)
        return payment

    def batches_to_close(self) -> list[Batch]:
        """Return the open batches that hold payments."""
        with self._writing:
            return [batch for batch in self._open_batches.values() if batch.payments]

    def close(self, batch: Batch) -> None:
        """Close a batch and open the account's next one; no payment is added to ``batch`` any more."""
        with self._writing:
            with self._database() as db:
                cursor = db.execute("INSERT INTO batches (account_id) VALUES (?)", [batch.account_id])
                assert cursor.lastrowid is not None
                db.execute(
                    "UPDATE accounts SET batch_id = ? WHERE id = ?", [cursor.lastrowid, batch.account_id]
                )
            del self._open_batches[batch.id]
            self._open_batches[cursor.lastrowid] = Batch(cursor.lastrowid, batch.account_id)
            self._accounts.pop(batch.account_id, None)

    def closed_batches(self) -> list[Batch]:
        """Return the batches that were closed but not settled, as a crash leaves them."""
        return self._read_batches(
            "batches.id NOT IN (SELECT batch_id FROM accounts)"
            " AND batches.id NOT IN (SELECT batch_id FROM settlements)"
        )

    def record(self, settlement: Settlement) -> None:
        """Note that a closed batch was paid out."""
        with self._writing, self._database() as db:
            db.execute(
                "INSERT INTO settlements (batch_id, account_id, payments, net, digest, created)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [
                    settlement.batch_id,
                    settlement.account_id,
                    settlement.payments,
                    settlement.net,
                    settlement.digest,
                    settlement.created,
                ],
            )

    def _read_account(self, account_id: int) -> Account:
        with self._database() as db:
            row = db.execute(
                "SELECT name, plan, batch_id FROM accounts WHERE id = ?", [account_id]
            ).fetchone()
            if row is None:
                raise UnknownAccount(account_id)
            name, plan, batch_id = row
            (volume,) = db.execute(
                "SELECT coalesce(sum(amount), 0) FROM payments WHERE account_id = ? AND created > ?",
                [account_id, time.time() - FEE_PERIOD],
            ).fetchone()
            (balance,) = db.execute(
                "SELECT coalesce(sum(amount - fee), 0) FROM payments WHERE batch_id = ?", [batch_id]
            ).fetchone()
            (fee_rate,) = db.execute(
                "SELECT rate FROM fee_tiers WHERE plan = ? AND from_volume <= ? ORDER BY from_volume DESC",
                [plan, volume],
            ).fetchone()
        return Account(account_id, name, batch_id, volume, balance, fee_rate)

    def _load_open_batches(self) -> None:
        for batch in self._read_batches("batches.id IN (SELECT batch_id FROM accounts)"):
            self._open_batches[batch.id] = batch

    def _read_batches(self, condition: str) -> list[Batch]:
        with self._database() as db:
            rows = db.execute(f"SELECT id, account_id FROM batches WHERE {condition}").fetchall()
            batches = {batch_id: Batch(batch_id, account_id) for batch_id, account_id in rows}
            for batch_id, *payment in db.execute(
                "SELECT batch_id, payments.id, payments.account_id, amount, fee, reference, created"
                f" FROM payments JOIN batches ON batches.id = batch_id WHERE {condition}"
            ):
                batches[batch_id].payments.append(Payment(*payment))
        return list(batches.values())

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Connect, and commit at the end; an exception that leaves the block rolls back."""
        db = sqlite3.connect(self._path, timeout=10)
        try:
            with db:
                yield db
        finally:
            db.close()


def _sql(name: str) -> str:
    return (HERE / name).read_text()
