"""Changing the key by which this host signs commits."""

from __future__ import annotations

import contextlib

from relive.errors import StoreError
from relive.kernel.disk_errors import disk_errors
from relive.store import Store

__all__ = ["change_signer"]


def change_signer(store: Store, *, disown: bool) -> tuple[bytes, int]:
    """Sign with another key from now on; returns its public key, and how many commits were signed anew.

    Args:
        disown: the old key, and those before it, are not to be accepted any more: what they have signed in this store is checked
            and signed with the new key first. After a crash on the way they still are; doing it again ends it.

    Raises:
        DiskFull, StoreError: it could not be done to its end.
    """
    parts, count = store.internals, 0
    with disk_errors("changing the signing key", parts.directory), parts.lock.held(shared=False):
        fresh = parts.keyring.rotate_signing_key()
        if disown:
            before = parts.keyring.own_before()
            for commit_id in sorted(parts.placements.commits()):
                with contextlib.suppress(StoreError):  # it is damaged, and cannot be restored either way
                    count += parts.placements.sign_anew(commit_id, before)
            parts.keyring.disown()
    return fresh, count
