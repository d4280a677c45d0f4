"""What was seen line by line, as it is kept with a task and read again."""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.model.stepping import LoggedHit, LoggedRun, LoggedValue, ValueWrite, Written


def test_a_write_by_nobody_is_read_again_as_it_was():
    write = ValueWrite(place=None, before="1", after="None")
    found = Written(
        incident=1,
        service="s",
        failing="request 1 (GET /)",
        expression="app.x",
        commit=CommitId("c" * 64),
        tried=[],
        first="1",
        last="None",
        writes=[write],
        fails=None,
        result="not restored",
        has_requests=False,
        sentence="",
    )
    assert Written.model_validate_json(found.model_dump_json()) == found


def test_a_condition_that_raised_has_no_expression():
    value = LoggedValue(expression=None, type="", text="NameError", raised=True)
    hit = LoggedHit(request=None, position=1, function="f", values=[value])
    run = LoggedRun(number=1, fails=True, result="fails the same", hits=[hit])
    assert LoggedRun.model_validate_json(run.model_dump_json()) == run
