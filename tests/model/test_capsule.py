"""A capsule as a value: its name, and what comes back from its files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import UsageError
from relive.model.capsule import CapsuleFacts, CapsuleSpec, check_name
from relive.model.commit_policy import parse_every

from .strategies import addresses, native_text, numbers


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
