"""Secrets that the proxy recorded as they were do not come out again."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from relive.config import load_settings
from relive.incidents.report.masking import MASK, FileMask, Mask, mask_for

SECRET = "correct-horse-17"


def test_headers_that_carry_credentials_are_masked_and_others_are_not():
    headers = Mask().headers([(b"authorization", b"Bearer abc"), (b"cookie", b"sid=1"), (b"accept", b"*/*")])
    assert headers == [("authorization", MASK), ("cookie", f"sid={MASK}"), ("accept", "*/*")]


def test_parameters_of_a_query_are_masked_by_their_names():
    assert Mask().target(f"/pay?a=1&api_key={SECRET}&b=") == f"/pay?a=1&api_key={MASK}&b="


def test_what_was_met_once_is_masked_wherever_it_comes_again():
    mask = Mask()
    mask.headers([(b"x-api-key", SECRET.encode())])
    assert mask.body(f"hello {SECRET}!".encode(), "text/plain") == f"hello {MASK}!".encode()
    assert mask.target(f"/x/{SECRET}") == f"/x/{MASK}"


@pytest.mark.parametrize("kind", ["application/json", "application/problem+json; charset=utf-8"])
def test_fields_of_json_are_masked_by_their_names(kind):
    body = {"user": {"name": "Ada", "password": SECRET, "pin_token": 17}, "list": [f"is {SECRET}"]}
    masked = json.loads(Mask().body(json.dumps(body).encode(), kind))
    assert masked == {"user": {"name": "Ada", "password": MASK, "pin_token": MASK}, "list": [f"is {MASK}"]}


@pytest.mark.parametrize("cut", range(1, 56))
def test_fields_of_json_that_is_cut_are_masked_by_their_names(cut):
    whole = json.dumps([{"name": "x", "password": 'se"cret', "token": 1234567}, {"name": "y"}])
    masked = Mask().body(whole[:-cut].encode(), "application/json").decode()
    assert masked.startswith('[{"name": "x", ') and "se\\" not in masked and "12345" not in masked
    cut_in_name = Mask().body(whole[: whole.index("word")].encode(), "application/json").decode()
    assert whole.startswith(cut_in_name)


def test_json_without_secrets_stays_byte_for_byte():
    body = b'{ "a" :1.0,\n"b":[ ] }'
    assert Mask().body(body, "application/json") == body


@pytest.mark.parametrize("body", [b"{", b"[" * 200_000, b"\xff\xfe"])
def test_json_that_is_none_is_masked_by_value_only(body):
    assert Mask().body(body, "application/json") == body


def test_fields_of_forms_are_masked():
    masked = Mask().body(b"user=ada&password=correct%20horse", "application/x-www-form-urlencoded")
    assert masked == f"user=ada&password={MASK}".encode()


def test_configured_names_and_patterns_and_card_numbers_are_secrets():
    mask = Mask([r"IBAN\w+"], ["pin"])
    assert mask.target("/x?pin=123456") == f"/x?pin={MASK}"
    assert mask.body(b"pay IBAN123 by 4111 1111 1111 1111", "text/plain") == f"pay {MASK} by {MASK}".encode()


def test_a_placeholder_of_the_recorder_stands():
    assert Mask().target("/x?token=<secret:0a0b0c0d>") == "/x?token=<secret:0a0b0c0d>"


class Told(BaseModel):
    """Some model."""

    lines: list[str]
    password: str = ""
    more: dict[str, Any] = {}


def test_what_is_learned_late_is_masked_early_too():
    told = Told(lines=[f"opened with {SECRET}"], more={"deep": [{"client_secret": SECRET}]})
    assert Mask().model(told) == Told(lines=[f"opened with {MASK}"], more={"deep": [{"client_secret": MASK}]})
    clean = Told(lines=["nothing"])
    assert Mask().model(clean) is clean


def test_settings_that_tell_what_is_secret_are_none():
    assert Mask(names=["door"]).tree({"secret_names": ["door"]}) == {"secret_names": ["door"]}


def test_placeholders_in_files_tell_secrets_apart_and_look_like_the_recorders():
    told = FileMask().tree([f"password={SECRET}", f"token={SECRET}x", SECRET])
    first, second = (text.partition("=")[2] for text in told[:2])
    assert re.fullmatch(r"<secret:[0-9a-f]{8}>", first)
    assert first != second
    assert told[2] == first
    assert FileMask().tree(told) == told
    assert Mask().tree({"password": first, "token": MASK}) == {"password": first, "token": MASK}


def test_secrets_of_a_running_process_are_known():
    given = ["sleep", "60"]
    process = subprocess.Popen(given, env={"DB_PASS": SECRET, "PATH": os.environ["PATH"]})
    try:
        # Popen returns when execve(2) has closed what it closes, which is a moment before the new environment is there.
        deadline = time.monotonic() + 10
        while not Path(f"/proc/{process.pid}/environ").read_bytes() and time.monotonic() < deadline:
            pass
        mask = Mask()
        mask.learn_process(process.pid)
        packed = base64.b64encode(SECRET.encode()).decode().rstrip("=")
        assert SECRET not in mask.sentence(f"it is {SECRET}")
        assert packed[:16] not in mask.sentence(f"it is {packed}")
    finally:
        process.kill()
        process.wait()


def test_of_a_service_that_is_gone_only_the_settings_are_known(tmp_path):
    settings = load_settings(home=tmp_path, secret_names=["door"])
    assert mask_for(settings, "pay").is_secret_name("door")


def test_a_secret_that_was_cut_with_its_line_shows_no_beginning():
    mask = Mask()
    mask.learn("q7lki67kizuzwu6xdq3w")
    assert mask.sentence("$.text: 'the door is q7lki67kiz...' was recorded") == (
        f"$.text: 'the door is {MASK}...' was recorded"
    )
    plain = "'it says qqq...' and waits ... \"for q7l...\""
    assert mask.sentence(plain) == plain
