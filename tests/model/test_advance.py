"""How far long work has come."""

from __future__ import annotations

from relive.model.advance import Advance


def test_it_tells_the_stage_that_moved_last_and_that_anything_moves() -> None:
    """A commit is taken while the one before it is stored."""
    advance = Advance()
    assert (advance.current, advance.moves) == (None, 0)
    copying = advance.begin("copying", 10)
    storing = advance.begin("storing", 5)
    seen = [advance.moves]
    for stage, count in ((copying, 1), (storing, 1), (copying, 3)):
        stage.step(count)
        assert advance.current is stage
        seen.append(advance.moves)
    assert (copying.done, storing.done) == (4, 1)
    assert seen == sorted(set(seen))
