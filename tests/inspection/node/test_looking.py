"""Which scripts are a service's own, and how they are called."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.inspection.node.looking import chosen_module, is_own, module_name


def test_packages_and_node_itself_are_not_the_services_own():
    assert is_own("file:///srv/shop/app.js") and is_own("/srv/shop/lib/carts.mjs")
    for url in ("node:internal/fs", "/srv/shop/node_modules/express/index.js", "", "evalmachine.<anonymous>"):
        assert not is_own(url)


def test_a_module_is_called_as_its_file_and_an_index_as_its_directory():
    assert module_name("/srv/shop/rate-limits.js") == "rate_limits"
    assert module_name("/srv/shop/carts/index.mjs") == "carts"


def test_a_module_is_found_by_name_or_end_of_its_path_and_else_the_others_are_named():
    files = ["/srv/app.js", "/srv/lib/carts.js"]
    assert chosen_module(files, None) == "/srv/app.js"
    assert chosen_module(files, "carts") == chosen_module(files, "lib/carts.js") == "/srv/lib/carts.js"
    assert chosen_module([], None) is None
    with pytest.raises(UsageError, match="no module baskets") as error:
        chosen_module(files, "baskets")
    assert "app, carts" in str(error.value.cause)
