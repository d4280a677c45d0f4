"""What people write about capsules: when to commit, addresses, names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.capsule import (
    CapsuleFacts,
    CapsuleSpec,
    LifePaths,
    Policy,
    check_name,
    parse_address,
    parse_every,
)

from .strategies import addresses, native_text, numbers


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("never", Policy(at_start=False)),
        ("start", Policy(at_start=True)),
        ("change", Policy(at_start=True, seconds=1.0, on_change=True)),
        ("deploy", Policy(at_start=True, seconds=1.0, on_deploy=True)),
        ("10ms", Policy(at_start=True, seconds=0.01)),
        ("request", Policy(at_start=True, each_request=True)),
        ("30s", Policy(at_start=True, seconds=30)),
        ("500ms", Policy(at_start=True, seconds=0.5)),
        ("1.5m", Policy(at_start=True, seconds=90)),
        ("2h", Policy(at_start=True, seconds=7200)),
    ],
)
def test_every_is_a_time_or_a_word(text, policy):
    assert parse_every(text) == policy


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "0s", "0.0m", "-1s", "1 s", "1e3s", "5d", "30S", "Never", "1s\n", "٣s", "9" * 400 + "h"],
)
def test_every_refuses_what_is_neither(text):
    with pytest.raises(UsageError) as caught:
        parse_every(text)
    assert repr(text) in caught.value.message
    assert "30s" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8000", ("127.0.0.1", 8000)),
        (":8000", ("127.0.0.1", 8000)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:80", ("::1", 80)),
        ("[2001:db8::2]:8443", ("2001:db8::2", 8443)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_address(text) == address


def test_an_address_without_a_host_takes_the_given_one():
    assert parse_address("80", default_host="::1") == ("::1", 80)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:", "a:0", "a:65536", "a:-1", "a:8000 ", "a b:80", "a:²", "a:٣", "9" * 5000),
        *(
            "::1",
            "::1:80",
            "fe80::1:80",
            "[::1]",
            "[::1:80",
            "::1]:80",
            "[]:80",
            "[localhost]:80",
            "[127.0.0.1]:80",
        ),
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert "HOST:PORT" in (caught.value.remedy or "")


@given(st.ip_addresses(), st.integers(1, 65535))
def test_every_ip_address_with_a_port_is_read(host, port):
    text = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
    assert parse_address(text) == (str(host), port)


@given(st.text())
def test_any_other_text_is_an_address_or_a_usage_error(text):
    try:
        host, port = parse_address(text)
    except UsageError:
        return
    assert host
    assert 0 < port < 65536


@pytest.mark.parametrize("name", ["pay", "Pay.2_x-y", "0", "a" * 63])
def test_a_name_of_letters_digits_dot_dash_underscore_is_allowed(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "ä", "a" * 64, "a@{1}", "a\0"]
)
def test_a_name_that_means_something_else_in_a_path_or_a_ref_is_refused(name):
    with pytest.raises(UsageError):
        check_name(name)


specs = st.builds(
    CapsuleSpec,
    name=st.just("pay"),
    command=st.lists(native_text, min_size=1, max_size=3),
    directory=native_text,
    environment=st.dictionaries(native_text, native_text, max_size=3),
    policy=st.sampled_from([parse_every("30s"), parse_every("never"), parse_every("request")]),
    listen=st.none() | addresses,
    upstream=st.none() | addresses,
    hang_after=st.none() | st.floats(0.1, 1e6),
    memory=st.none() | numbers,
    user=st.none() | st.just("nobody"),
)


@given(specs)
def test_what_was_asked_for_comes_back_from_its_file(spec):
    """Also arguments and variables that are no UTF-8, which are none of Relive's business."""
    assert CapsuleSpec.model_validate_json(spec.model_dump_json()) == spec


@given(specs, st.lists(st.tuples(native_text, st.just("00")), max_size=2))
def test_the_facts_of_a_life_come_back_from_their_file(spec, points):
    facts = CapsuleFacts(
        spec=spec, life="x", init=1, init_started=2, root=3, root_inside=2, started_wall_ns=4, points=points
    )
    assert CapsuleFacts.model_validate_json(facts.model_dump_json()) == facts


def test_the_files_of_a_life_do_not_collide(tmp_path):
    paths = LifePaths(tmp_path)
    names = [
        name for name, value in vars(LifePaths).items() if isinstance(value, property) and name != "logs"
    ]
    files = [getattr(paths, name) for name in names] + paths.logs
    assert len(set(files)) == len(files)
    assert all(tmp_path in file.parents for file in files)
