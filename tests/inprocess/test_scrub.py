"""Secrets are taken out by value, and the same one always becomes the same placeholder."""

from __future__ import annotations

import base64
import gzip
import sys

import pytest

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.credential_names import is_credential_name
from relive_recorder.scrub import Scrubber

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


@pytest.mark.parametrize(
    "name",
    [
        "PGPW",
        "MYPW",
        "pw",
        "db_pwd",
        "DB_PASS",
        "PASS",
        "dbPass",
        "SMTP_PASS_2",
        "passcode",
        "csrf_token",
        "jwt",
    ],
)
def test_short_names_of_passwords(name):
    assert is_credential_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PWD",
        "OLDPWD",
        "compass",
        "bypass",
        "passage",
        "pass_rate",
        "tokenizer",
        "max_tokens",
        "token_type",
        "monkey",
    ],
)
def test_names_with_parts_of_such_names(name):
    assert not is_credential_name(name)


def test_a_configured_name_with_either_dash():
    scrubber = Scrubber(names=["door_code"])
    assert scrubber.is_secret_name("Door-Code")
    assert scrubber.text("--door-code=4711 door_code=4712") == (
        f"--door-code={scrubber.placeholder('4711')} door_code={scrubber.placeholder('4712')}"
    )


def test_a_command_line():
    scrubber = Scrubber()
    words = [
        "serve",
        "--db-password",
        "hunter22",
        "--token=abcdefg",
        "--broker",
        "amqp://a:broker-1@h/",
        "--verbose",
    ]
    told = scrubber.words(words)
    secrets = ["hunter22", "abcdefg", "broker-1"]
    assert told == [
        *(
            "serve",
            "--db-password",
            scrubber.placeholder("hunter22"),
            f"--token={scrubber.placeholder('abcdefg')}",
        ),
        *("--broker", f"amqp://a:{scrubber.placeholder('broker-1')}@h/", "--verbose"),
    ]
    assert scrubber.text(" ".join(secrets)) == " ".join(map(scrubber.placeholder, secrets))
    assert scrubber.words(["--password", "--verbose", "x"]) == ["--password", "--verbose", "x"]


@pytest.mark.parametrize(
    "text",
    [
        "{{'user': 'ada', 'password': '{}'}}",
        'password => "{}"',
        "password = '{}' AND name = 'ada'",
        "X-Api-Key: {}",
        "mysql: --password {} cannot connect",
        '--cut\r\nContent-Disposition: form-data; name="passwd"\r\n\r\n{}\r\n--cut--\r\n',
    ],
)
def test_fields_as_programs_write_them(text):
    scrubber = Scrubber()
    assert scrubber.text(text.format("hunter-22")) == text.format(scrubber.placeholder("hunter-22"))


@pytest.mark.parametrize(
    "text",
    [
        "wrong password for user ada",
        "password: try again",
        "compass: north-by-7",
        "tokenizer='fast-1'",
        '{"max_tokens": "100000"}',
        "tasks-1 disk-2 eyJust xoxo- AKIA",
    ],
)
def test_what_is_no_secret_stays(text):
    assert Scrubber().text(text) == text


ODD = "Zx9/k+T<q3=\"7w&8L'm"
# As Python, JavaScript and Java write it; as .NET and others do; json.dumps; PHP; Flask; html.escape and Django; MarkupSafe; PHP.
ESCAPED = [
    "Zx9%2Fk%2BT%3Cq3%3D%227w%268L%27m",
    "Zx9%2fk%2bT%3cq3%3d%227w%268L%27m",
    "Zx9/k+T<q3=\\\"7w&8L'm",
    "Zx9\\/k+T<q3=\\\"7w&8L'm",
    'Zx9/k+T\\u003cq3=\\"7w\\u00268L\\u0027m',
    "Zx9/k+T&lt;q3=&quot;7w&amp;8L&#x27;m",
    "Zx9/k+T&lt;q3=&#34;7w&amp;8L&#39;m",
    "Zx9/k+T&lt;q3=&quot;7w&amp;8L&#039;m",
]


@pytest.mark.parametrize("escaped", ESCAPED)
@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_secret_as_it_is_escaped(escaped, is_lasting):
    scrubber = Scrubber()
    scrubber.learn(ODD, lasting=is_lasting)
    assert scrubber.text(f"it is {escaped}.") == f"it is {scrubber.placeholder(ODD)}."
    assert scrubber.data(escaped.encode()) == scrubber.placeholder(ODD).encode()


@pytest.mark.parametrize("before", range(4))
def test_a_lasting_secret_in_base64_and_hexadecimal_wherever_it_begins(before):
    scrubber = Scrubber()
    scrubber.learn_environment({"API_KEY": "k+/abcdefghij?>"})
    raw = b"x" * before + b"k+/abcdefghij?>" + b"yz"
    for encoded in (base64.b64encode(raw), base64.urlsafe_b64encode(raw), base64.b16encode(raw)):
        assert "<secret:" in scrubber.text(f"packed {encoded.decode()} behind")


def test_in_gzip():
    scrubber = Scrubber()
    packed = gzip.compress(b'{"password": "hunter22"}')
    clean = gzip.compress(b'{"name": "ada"}')
    assert (
        gzip.decompress(scrubber.data(packed))
        == f'{{"password": "{scrubber.placeholder("hunter22")}"}}'.encode()
    )
    assert scrubber.data(clean) == clean
    assert scrubber.data(packed[:10]) == packed[:10]


def test_all_of_a_value_that_a_name_tells():
    scrubber = Scrubber()
    told = scrubber.packed({"tokens": ["first-one", {"$": ["utf8", "second-one"]}], "user": "ada"})
    assert told["user"] == "ada"
    assert told["tokens"] == [
        scrubber.placeholder("first-one"),
        {"$": ["utf8", scrubber.placeholder("second-one")]},
    ]
