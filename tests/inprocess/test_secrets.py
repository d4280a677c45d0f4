"""A secret that is known never gets into a text, bytes or packed value, in whatever encoding it stands there."""

from __future__ import annotations

import base64
import json
import os
import string
import sys
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import INPROCESS, each_python

sys.path.insert(0, str(INPROCESS))
from relive_recorder import values
from relive_recorder.scrub import Scrubber

sys.path.remove(str(INPROCESS))

# Long enough to be found by value, with all that is written differently in one encoding or another. A placeholder is 17
# characters of which the last 10 are in the alphabet of secrets too, so no secret is made of those alone.
SECRETS = st.text(
    string.ascii_letters + string.digits + " +/%&=?:;@\"'\\é€\n", min_size=8, max_size=40
).filter(
    lambda text: (
        len(text.strip()) >= 8 and len(set(text)) > 4 and not set(text) <= set(string.hexdigits + "secret<>:")
    )
)
WAYS = {
    "plain": (str, "before {} behind"),
    "percent": (lambda secret: quote(secret, safe=""), "/path?x={}&y=1"),
    "plus": (quote_plus, "x={}"),
    "json": (lambda secret: json.dumps(secret)[1:-1], '["a", "{}"]'),
    "json-utf8": (lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1], '["a", "{}"]'),
}


@pytest.mark.parametrize("way", WAYS)
@given(secret=SECRETS)
def test_a_secret_of_the_environment(way, secret):
    scrubber = Scrubber()
    scrubber.learn_environment({"API_TOKEN": secret, "HOME": "/root"})
    write, frame = WAYS[way]
    text = frame.replace("{}", write(secret))
    expected = frame.replace("{}", scrubber.placeholder(secret))
    assert scrubber.text(text) == expected
    assert scrubber.data(text.encode()) == expected.encode()


@given(secret=SECRETS, junk=st.binary(max_size=20))
def test_in_packed_bytes_and_what_is_no_text(secret, junk):
    scrubber = Scrubber()
    scrubber.learn(secret)
    raw = b"\xff" + junk + b"\n" + secret.encode() + b"\n"
    packed = scrubber.packed(values.pack({"key": [raw]}))
    again = values.unpack(packed)["key"][0]
    assert secret.encode() not in again
    assert scrubber.placeholder(secret).encode() in again
    assert base64.b64encode(secret.encode()).decode() not in json.dumps(packed)


NAMED = st.text(string.ascii_letters + string.digits + "-_.~", min_size=8, max_size=40).filter(
    lambda text: any(one.isdigit() for one in text) and not set(text) <= set(string.hexdigits)
)
PLACES = {
    "bearer": lambda secret: f"Authorization: Bearer {secret}",
    "basic": lambda secret: "Authorization: Basic " + base64.b64encode(f"user:{secret}".encode()).decode(),
    "userinfo": lambda secret: f"postgresql://user:{secret}@db/orders",
    "query": lambda secret: f"https://host/path?page=2&api_key={secret}&x=1",
    "form": lambda secret: urlencode({"name": "x", "password": secret}),
    "json": lambda secret: json.dumps({"user": {"id": 7, "client_secret": secret, "z": "z"}}),
    "json in json": lambda secret: json.dumps({"text": json.dumps({"password": secret, "x": "kept"})}),
    "log": lambda secret: f"login failed: password={secret}, user=ada",
}


@pytest.mark.parametrize("place", PLACES)
@given(secret=NAMED)
def test_a_secret_is_known_by_its_place_and_then_found_anywhere(place, secret):
    scrubber = Scrubber()
    text = PLACES[place](secret)
    scrubbed = scrubber.text(text)
    assert secret not in scrubbed
    assert base64.b64encode(f"user:{secret}".encode()).decode() not in scrubbed
    assert scrubber.text(f"again {secret}") == f"again {scrubber.placeholder(secret)}"


def test_what_is_beside_a_secret_is_kept():
    scrubber = Scrubber()
    given_text = PLACES["json in json"]("hunter22-hunter22")
    assert scrubber.text(given_text) == given_text.replace(
        "hunter22-hunter22", scrubber.placeholder("hunter22-hunter22")
    )
    assert json.loads(scrubber.text(given_text))
    for text in (
        "a basic example of it",
        "the bearer shall pay",
        "monkey=banana",
        "order 4111111111111111000000001",
    ):
        assert scrubber.text(text) == text


def test_headers_keep_what_is_not_secret():
    scrubber = Scrubber()
    one, other = scrubber.placeholder("value-of-one"), scrubber.placeholder("value-of-other")
    assert scrubber.header("Cookie", "a=value-of-one; b=value-of-other") == f"a={one}; b={other}"
    assert scrubber.header("Set-Cookie", "a=value-of-one; Path=/; HttpOnly") == f"a={one}; Path=/; HttpOnly"
    assert scrubber.header("Authorization", "Bearer value-of-one") == f"Bearer {one}"
    assert scrubber.header("X-Api-Key", "value-of-one") == one
    assert scrubber.header("Content-Type", "text/plain") == "text/plain"


def test_old_secrets_give_way_to_new_ones_but_those_of_the_environment_stay():
    scrubber = Scrubber()
    scrubber.learn_environment({"DATABASE_URL": "pg://u:lasting-one@h/d"})
    for number in range(1000):
        scrubber.learn(f"passing-{number}")
    assert "lasting-one" not in scrubber.text("lasting-one")
    assert "passing-999" not in scrubber.text("passing-999")


@each_python
def test_none_is_in_ring_bodies_or_what_a_fault_says(run_recorded, python, tmp_path, monkeypatch):
    """Over a fork too, where the same secret has the same placeholder."""
    monkeypatch.setenv("PAYMENT_API_KEY", "planted-key-1")
    (tmp_path / "conf.ini").write_text("password = x\ntoken=planted-in-file\n" + "line\n" * 30000)
    ran = run_recorded(
        "import logging, os, subprocess, sys\n"
        f"open({str(tmp_path / 'conf.ini')!r}).read()\n"
        "os.environ.get('PAYMENT_API_KEY')\n"
        "logging.getLogger('a').error('sent %s to %s', 'planted-key-1', 'https://u:planted-pw-2@h/')\n"
        "subprocess.run(['true', '--token=planted-arg-3', 'planted-key-1'])\n"
        "if os.fork() == 0:\n"
        "    logging.getLogger('b').error('child planted-key-1')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "from relive_recorder.recorder import recorder\n"
        "recorder.switch_off(ValueError('planted-key-1'))\n",
        python,
    )
    assert ran.status == 0
    kept = b"".join(path.read_bytes() for path in (tmp_path / "rings").iterdir())
    assert b"planted" not in kept
    assert "recorder switched off" in ran.err.splitlines()[-1]
    assert "planted" not in ran.err.splitlines()[-1]
    texts = [event.fields["text"] for event in ran.events if event.kind == "log-record"]
    placeholders = {word for text in texts for word in text.split() if word.startswith("<secret:")}
    assert len(texts) == 2
    assert len({text.split()[1] for text in texts}) == 1, placeholders
    assert os.environ["PAYMENT_API_KEY"] == "planted-key-1"
