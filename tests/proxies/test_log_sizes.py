"""Sizes of logs that are told late are those of before the moment in question, never of after it."""

from __future__ import annotations

from pathlib import Path

from relive.proxies.ingress._log_sizes import NotedLogSizes


def test_a_request_has_the_size_before_it_and_an_answer_that_of_now(tmp_path: Path) -> None:
    log, moment = tmp_path / "log", 0
    sizes = NotedLogSizes([str(log)], lambda: moment)
    log.write_text("a")
    sizes.note(10)
    log.write_text("ab")
    sizes.note(20)
    log.write_text("abc")
    told = []
    for moment in (5, 10, 19, 20, 1000):  # noqa: B007  the closure reads it
        told.append(sizes.sizes().get(str(log)))
    assert told == [None, 1, 1, 2, 2]
    assert sizes.sizes_after() == {str(log): 3}
