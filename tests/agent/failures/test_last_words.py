from __future__ import annotations

import pytest

from relive.agent.failures.last_words import exception_at_end

NODE = """/srv/shop.js:3
  throw new TypeError("no plan");
  ^

TypeError: no plan
    at process.<anonymous> (/srv/shop.js:3:9)
    at process.emit (node:events:517:28)
"""


def test_the_stack_that_node_leaves_names_the_exception() -> None:
    assert exception_at_end([*NODE.splitlines(), "", "Node.js v18.20.4"]) == "TypeError: no plan"


@pytest.mark.parametrize("lines", [[], ["ready"], [*NODE.splitlines(), "one", "two", "three"]])
def test_what_may_have_been_caught_is_not_named(lines: list[str]) -> None:
    assert exception_at_end(lines) is None
