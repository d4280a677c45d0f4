"""What the part in C says to be clean has no secret in it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from .conftest import INPROCESS
from .quick_bench import SECRETS, native, pairs_in, texts

sys.path.insert(0, str(INPROCESS))
from relive_recorder import scrub, shapes

sys.path.remove(str(INPROCESS))


@given(
    st.lists(
        st.sampled_from([*"0123456789", " ", "-", ".", "x", "_", "4111111111111111", "378282246310005"]),
        max_size=30,
    ).map("".join)
)
@example("0.4111111111111111")
@example("a 4111 1111-1111 1111 2222")
def test_no_card_is_overlooked(text):
    checker = native.Checker(("password",), tuple(SECRETS), True)
    if checker.clean(text):
        assert scrub.Scrubber().text(text) == text


@given(texts)
@example("to\u212aen=geheim12345")
@example("4111 1111-11111111 1x")
@example('{"password": "geheim"}')
@example("PASSWORD=geheim")
def test_a_text_that_is_said_to_be_clean_has_no_secret_in_it(text):
    checker = native.Checker(("password", "token", "key"), tuple(SECRETS), True)
    slow = scrub.Scrubber()
    for secret in SECRETS:
        slow.learn(secret)
    if checker.clean(text):
        assert slow.text(text) == text
    data = text.encode("utf-8", "surrogatepass")
    if checker.clean(data):
        assert slow.data(data) == data


def test_most_texts_are_said_to_be_clean():
    """Otherwise the test above would say nothing."""
    checker = native.Checker(("password",), tuple(SECRETS), True)
    assert all(
        map(
            checker.clean,
            ["", "SELECT a FROM b WHERE c = ?", "Grüße", "2026-11-21 23:59:59", "\U0001f600 12345"],
        )
    )
    assert not native.Checker((), ("\ud800abcdef",), True).clean("x")
    assert not native.Checker((), (), False).clean("x")


def test_no_hint_and_no_beginning_of_a_secret_is_overlooked():
    checker = native.Checker((*scrub.HINTS, "pn", "zip"), (*shapes.BEGINNINGS, "Q7"), True)
    for hint in (*scrub.HINTS, "pn", "zip"):
        for written in (hint, hint.upper(), hint.title(), hint[0] + hint[1:].upper()):
            assert not checker.clean(f"{written}=")
            assert not checker.clean(f"a ss to {written}: 1")
            assert checker.clean(f"a ss to {written} 1")
            assert checker.clean(f"{written[:-1]}=")
    for beginning in (*shapes.BEGINNINGS, "Q7"):
        assert not checker.clean(beginning)
        assert not checker.clean(f"a {beginning}12345678")
        assert checker.clean(beginning[:-1])


@pytest.mark.parametrize("secret", ["hunter2-hunter2", "grünes-Geheimnis"])
def test_a_writer_looks_for_what_is_learned_meanwhile(tmp_path, secret):
    """Also where another thread makes a checker while it is learned: all that were made know too little."""
    with pairs_in(tmp_path)()[0] as bench:
        quickly, scrubber = bench.ring.quick, bench.scrubber
        assert quickly.rows(1, [("a new secret",)])
        scrubber.learn("a new secret")
        assert quickly.rows(1, [("a new secret",)]) is None
        assert quickly.rows(1, [("another one",)])
        known = scrubber.checker
        scrubber.checker = None  # as in a thread that is interrupted before it does that
        scrubber.learn("another one")
        assert quickly.rows(1, [("another one",)]) is None
        scrubber.checker = known  # and one that is interrupted behind it
        assert quickly.rows(1, [("another one",), (secret,)]) is None


@pytest.mark.parametrize("secret", SECRETS)
def test_what_is_learned_is_looked_for_from_then_on(secret):
    scrub.check_with(native.Checker)
    scrubber = scrub.Scrubber()
    scrub.check_with(None)
    assert scrubber.text(f"a {secret} b") == f"a {secret} b"
    placeholder = scrubber.learn(secret)
    assert scrubber.text(f"a {secret} b") == f"a {placeholder} b"
