"""Secrets that show what they are by their look."""

from __future__ import annotations

import json
import sys

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder import shapes
from relive_recorder.scrub import Scrubber

sys.path.remove(str(INPROCESS))

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow/+IBAA=\nabcd\n-----END RSA PRIVATE KEY-----"
SHAPES = [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl-_x",
    PEM,
    json.dumps(PEM)[1:-1],
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a1" * 10,
    "xoxb-1234567890-abcdef",
    "sk_live_" + "a1" * 12,
    "AIza" + "a" * 35,
    "npm_" + "a1" * 18,
    "SG." + "a" * 22 + "." + "b" * 43,
    "sk-ant-api03-" + "a1" * 20,
    "hvs." + "a1" * 15,
    "rlv_0123456789abcdef_" + "a1" * 32,
]


@pytest.mark.parametrize("secret", SHAPES)
def test_it_is_found_and_taken_out(secret):
    assert shapes.found_in(f"before {secret} behind") == [secret]
    scrubber = Scrubber()
    assert scrubber.text(f'{{"note": "{secret}"}}') == f'{{"note": "{scrubber.placeholder(secret)}"}}'


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "eyJhbGciOiJIUzI1NiJ9 alone",
        "AKIA and ASIA",
        "MAKIAIOSFODNN7EXAMPLE",
        "ghp_short",
        "https://host/npm_modules/SG.html",
    ],
)
def test_what_only_begins_so(text):
    assert shapes.found_in(text) == []


def test_a_private_key_that_was_cut():
    assert shapes.found_in(PEM[:60]) == [PEM[:60]]
