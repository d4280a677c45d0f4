"""Signed addresses: only what was signed opens, until it ends."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from relive.errors import NotFound, UrlRefused, UsageError
from relive.server.signed_urls import LONGEST, SignedUrls

EXPORT = "a" * 32
OTHER = "b" * 32


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.5

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def urls(tmp_path, clock):
    opened = SignedUrls(tmp_path / "server", clock=clock)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    opened = SignedUrls(tmp_path_factory.mktemp("home") / "server")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def query(lasting):
    return query_of(lasting.issue(EXPORT, lifetime=LONGEST, asked_by="ci")[1])


def query_of(url):
    assert urlsplit(url).path == f"/exports/{EXPORT}/file"
    return urlsplit(url).query.encode()


def test_what_was_signed_opens_until_its_time(urls, clock):
    link, url = urls.issue(EXPORT, lifetime=60, asked_by="ci")
    assert urls.check(EXPORT, query_of(url)) == link
    clock.now = link.expires - 0.001
    assert urls.check(EXPORT, query_of(url)) == link
    clock.now = link.expires
    with pytest.raises(UrlRefused, match="has expired"):
        urls.check(EXPORT, query_of(url))


def test_it_opens_nothing_else(urls):
    _, url = urls.issue(EXPORT, lifetime=60, asked_by="ci")
    with pytest.raises(UrlRefused, match="signature"):
        urls.check(OTHER, query_of(url))


@given(data=st.data())
def test_no_change_of_a_byte_goes_through(lasting, query, data):
    at = data.draw(st.integers(0, len(query) - 1))
    by = data.draw(st.integers(1, 255))
    changed = query[:at] + bytes([query[at] ^ by]) + query[at + 1 :]
    with pytest.raises(UrlRefused, match="signature"):
        lasting.check(EXPORT, changed)
    assert lasting.check(EXPORT, query).export == EXPORT


@given(data=st.data())
def test_no_other_text_goes_through(lasting, query, data):
    """Cut, doubled, with something added, in another order."""
    pieces = query.split(b"&")
    extra = st.sampled_from([*pieces, b"a=1", b"", b"expires=9999999999", b"signature=", query])
    changed = b"&".join(data.draw(st.lists(extra, max_size=5)))
    changed = data.draw(st.sampled_from([b"", b" ", b"&", b"\n", b"%00"])) + changed
    assume(changed != query)
    with pytest.raises(UrlRefused, match="signature"):
        lasting.check(EXPORT, changed)


@given(st.integers(-10, 10**13))
def test_no_other_end_goes_through(lasting, query, expires):
    _, end, rest = query.replace(b"&", b"=", 1).split(b"=", 2)
    assume(int(end) != expires)
    with pytest.raises(UrlRefused, match="signature"):
        lasting.check(EXPORT, b"expires=%d&" % expires + rest)


@given(st.text(max_size=40))
def test_no_other_export_goes_through(lasting, query, export):
    """Also none that would read as another field of what is signed, and no text that cannot be encoded."""
    with pytest.raises(UrlRefused, match="signature"):
        lasting.check(export, query)


def test_one_is_revoked_at_once_for_other_processes_too(urls, tmp_path, clock):
    first, url = urls.issue(EXPORT, lifetime=60, asked_by="ci")
    _, second = urls.issue(EXPORT, lifetime=60, asked_by="ci")
    others = SignedUrls(tmp_path / "server", clock=clock)
    assert urls.revoke(first.link).revoked == int(clock.now)
    with pytest.raises(UrlRefused, match="revoked"):
        others.check(EXPORT, query_of(url))
    others.check(EXPORT, query_of(second))
    others.close()
    with pytest.raises(NotFound):
        urls.revoke("0" * 32)


def test_all_are_revoked_by_another_key(urls, tmp_path, clock):
    others = SignedUrls(tmp_path / "server", clock=clock)
    old = query_of(urls.issue(EXPORT, lifetime=60, asked_by="ci")[1])
    urls.revoke_all()
    with pytest.raises(UrlRefused, match="signature"):
        others.check(EXPORT, old)
    assert all(one.revoked for one in others.links(EXPORT))
    others.check(EXPORT, query_of(urls.issue(EXPORT, lifetime=60, asked_by="ci")[1]))
    others.close()


def test_what_is_swept_out_does_not_open_again(urls, clock):
    """Not even for one whose clock is behind."""
    link, url = urls.issue(EXPORT, lifetime=60, asked_by="ci")
    clock.now += 2 * 86_400
    urls.sweep()
    assert urls.links(EXPORT) == []
    clock.now = link.created
    with pytest.raises(UrlRefused):
        urls.check(EXPORT, query_of(url))


@pytest.mark.parametrize("lifetime", [0, -1, LONGEST + 1])
def test_a_lifetime_has_its_bounds(urls, lifetime):
    with pytest.raises(UsageError):
        urls.issue(EXPORT, lifetime=lifetime, asked_by="ci")


def test_signatures_are_compared_in_constant_time(urls, monkeypatch):
    """Each refusal goes through the one comparison that takes the same time wherever two differ."""
    compared, really = [], hmac.compare_digest

    def compare(one, other):
        compared.append((one, other))
        return really(one, other)

    query = query_of(urls.issue(EXPORT, lifetime=60, asked_by="ci")[1])
    monkeypatch.setattr(hmac, "compare_digest", compare)
    for wrong in (query[:-1] + (b"0" if query[-1:] != b"0" else b"1"), query[:-1], b""):
        with pytest.raises(UrlRefused):
            urls.check(EXPORT, wrong)
    assert len(compared) == 3
