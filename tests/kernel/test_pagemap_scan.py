"""Whether the kernel tells which pages were written."""

from __future__ import annotations

import errno

import pytest

from relive.kernel import pagemap_scan


def test_it_can_be_asked_here() -> None:
    pagemap_scan.try_to_scan()


def test_a_kernel_that_does_not_know_the_call_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagemap_scan, "PAGEMAP_SCAN", 0xC0606611)
    with pytest.raises(OSError) as refusal:
        pagemap_scan.try_to_scan()
    assert refusal.value.errno in (errno.ENOTTY, errno.EINVAL)  # before Linux 6.7; from then on
