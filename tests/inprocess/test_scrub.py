"""Secrets are taken out by value, and the same one always becomes the same placeholder."""

from __future__ import annotations

import sys

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.scrub import Scrubber, is_credential_name

sys.path.remove(str(INPROCESS))


@pytest.mark.parametrize(
    "name", ["DB_PASSWORD", "Authorization", "x-api-key", "AWS_SECRET_ACCESS_KEY", "Cookie", "session_id"]
)
def test_names_of_secrets(name):
    assert is_credential_name(name)


@pytest.mark.parametrize("name", ["HOME", "Content-Type", "author", "key", "passenger"])
def test_other_names(name):
    assert not is_credential_name(name)


def test_a_learned_secret_is_found_in_any_text():
    scrubber = Scrubber()
    placeholder = scrubber.learn("hunter22")
    assert scrubber.text("mysql://root:hunter22@db") == f"mysql://root:{placeholder}@db"
    assert scrubber.data(b"\xff hunter22") == b"\xff " + placeholder.encode()
    assert scrubber.learn(placeholder) == placeholder


def test_what_was_made_of_a_text_holds_until_a_secret_is_learned():
    scrubber = Scrubber()
    assert [scrubber.often("GET hunter22"), scrubber.often("GET hunter22")] == ["GET hunter22"] * 2
    made = scrubber.made()
    assert made["GET hunter22"] == "GET hunter22"
    placeholder = scrubber.learn("hunter22")
    made["GET hunter22"] = "made before it was learned"
    assert scrubber.often("GET hunter22") == f"GET {placeholder}"


def test_many_different_texts_are_not_all_remembered():
    scrubber = Scrubber()
    for number in range(5000):
        scrubber.often(f"key-{number}")
    scrubber.often("x" * 300)
    assert 0 < len(scrubber.made()) <= 2048
    assert "x" * 300 not in scrubber.made()


def test_a_secret_within_another():
    scrubber = Scrubber()
    short, long = scrubber.learn("secret-a"), scrubber.learn("secret-a-and-b")
    assert scrubber.text("secret-a-and-b secret-a") == f"{long} {short}"


def test_card_numbers_are_known_by_their_check_digit():
    scrubber = Scrubber()
    assert "4111" not in scrubber.text("card 4111 1111 1111 1111.")
    assert scrubber.text("order 4111 1111 1111 1112") == "order 4111 1111 1111 1112"
    for card in (
        "4111-1111-1111-1111",
        "378282246310005",
        "30569309025904",
        "6011111111111117",
        "2223003122003222",
    ):
        assert scrubber.text(f'{{"n": "{card}"}}') == f'{{"n": "{scrubber.placeholder(card)}"}}'


@pytest.mark.parametrize(
    "number",
    [
        "0.4111111111111111",  # a fraction
        "41111111111111113",  # 17 digits: of no card, though the check digit is right
        "2345678901234567896",
        "id_4111111111111111",
        "a4111111111111111",
        "4111111111111111f",
        "104111111111111111",
    ],
)
def test_numbers_that_are_no_cards_are_kept(number):
    """An answer in which such a number was a placeholder would be no JSON in a replay."""
    assert Scrubber().text(f'{{"score": {number}}}') == f'{{"score": {number}}}'


def test_patterns_and_names_of_the_configuration():
    scrubber = Scrubber([r"ACC-[0-9]+"], ["badge"])
    assert "ACC-77" not in scrubber.text("from ACC-77")
    assert scrubber.packed({"Badge": "blue-and-long"}) == {"Badge": scrubber.placeholder("blue-and-long")}
