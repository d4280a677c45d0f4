"""Routes of requests: what is a value in a path, and that they are bounded whatever clients send."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.agent.failures.routes import RouteTable

_WORDS = ["".join(one) for one in itertools.product("abcdefgh", repeat=2)]


@pytest.mark.parametrize(
    ("one", "other", "route"),
    [
        ("/orders/17", "/orders/18?full=1", "GET /orders/*"),
        ("/orders/f1-10/items", "/orders/f2-7/items", "GET /orders/*/items"),
        ("/u/0b0d3a6e-6c1f-4f6e-8e55-1f2a3b4c5d6e", "/u/9f7e", "GET /u/*"),
        ("/blob/deadbeef", "/blob/cafebabe", "GET /blob/*"),
        ("/mail/a%40b", "/mail/c@d", "GET /mail/*"),
        ("/17", "/18", "GET /*"),
        ("/ab12", "/cd34", "GET /*"),
    ],
)
def test_values_in_a_path_are_one_route(one, other, route):
    table = RouteTable()
    assert table.route("GET", one) == table.route("GET", other) == route


def test_names_in_a_path_are_routes_of_their_own():
    table = RouteTable()
    targets = ["/", "/v1/pay", "/v2/pay", "/oauth2/token", "/s3/token", "/pay/refund", "/pay/settle", "pay"]
    routes = [table.route("GET", target) for target in targets]
    assert routes == [f"GET {target}" for target in targets]
    assert table.route("POST", "/pay/refund") == "POST /pay/refund"


def test_slugs_become_one_route_when_there_are_many():
    """GIVEN titles in a path, which look like names, THEN few are told apart, the others are one, and all stay what they were."""
    table = RouteTable()
    slugs = [f"/shelf/{one}-{other}/read" for one, other in itertools.product("abcdef", "uvwxyz")]
    routes = [table.route("GET", slug) for slug in slugs]
    assert routes[0] == "GET /shelf/a-u/read"
    assert routes[-1] == "GET /shelf/*/read"
    assert len(set(routes)) == 5
    assert [table.route("GET", slug) for slug in slugs] == routes


@given(st.lists(st.lists(st.text("abc/-%1", max_size=6), max_size=14).map("/".join), max_size=300))
def test_routes_are_bounded_and_stay(targets):
    table = RouteTable()
    routes = [table.route("GET", target) for target in targets]
    assert [table.route("GET", target) for target in targets] == routes


def test_many_paths_are_few_routes():
    table = RouteTable()
    words = ["".join(one) for one in itertools.product("abcdefgh", repeat=2)]
    assert len({table.route("GET", f"/{one}") for one in words}) == 33
    assert len({table.route("GET", f"/shop/{one}/{other}") for one in words for other in words}) <= 25


def test_words_behind_words_are_bounded():
    """GIVEN two words of a client's choice in each path, and even for a method, THEN routes stay few, and those of others apart."""
    table = RouteTable()
    pairs = [f"{one}/{other}" for one, other in itertools.product(_WORDS, _WORDS)]
    assert len({table.route("GET", f"/users/{one}") for one in pairs}) < 300
    assert table.route("GET", "/orders/open/items") == "GET /orders/open/items"
    assert (
        len(
            {
                table.route(method, f"/{one}/{pair}")
                for method in _WORDS
                for one, pair in zip(_WORDS, pairs, strict=False)
            }
        )
        < 1000
    )
    assert len({table.route("GET", f"/{pair}/{pair}") for pair in pairs}) < 3000
    before = table.route("GET", "/new/open/items")
    assert table.route("GET", "/new/open/items") == before


def test_each_method_of_a_grpc_service_is_a_route():
    table = RouteTable()
    paths = [
        f"/acme.shop.orders.v1.OrderService/{one}OrderV2"
        for one in ("Get", "Put", "List", "Move", "Drop", "Pay")
    ]
    assert [table.route("POST", one) for one in paths] == [f"POST {one}" for one in paths]
    assert (
        len({table.route("POST", f"/a.B/M{one}") for one in _WORDS * 2 + [f"x{one}" for one in _WORDS]}) == 65
    )
