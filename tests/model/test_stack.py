"""Finding the stack in what a service printed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.model.stack import find_stack

SIMPLE = """\
Traceback (most recent call last):
  File "/app/pay.py", line 12, in <module>
    main()
  File "/app/pay.py", line 7, in main
    return 1 / amount
           ~~^~~~~~~~
ZeroDivisionError: division by zero
"""


def lines(text: str) -> list[str]:
    return text.splitlines()


def printed_by(code: str) -> list[str]:
    """What a real Python prints."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    ).stderr.splitlines()


def test_frames_of_the_recorder_are_not_the_services():
    """Whether it records or replays it calls the service from other lines."""
    recorder = '  File "/run/relive/inprocess/relive_recorder/servers/asgi.py", line 9, in _through\n    await app()\n'
    between = SIMPLE.replace('  File "/app/pay.py", line 7', recorder + '  File "/app/pay.py", line 7')
    assert find_stack(lines(between)).frames == find_stack(lines(SIMPLE)).frames


def test_frames_come_outermost_first_with_the_exception():
    stack = find_stack(lines(SIMPLE))
    assert stack is not None
    assert stack.exception == "ZeroDivisionError: division by zero"
    assert stack.frames == [("/app/pay.py", 12, "<module>"), ("/app/pay.py", 7, "main")]
    assert stack.text == lines(SIMPLE)


@pytest.mark.parametrize("log", [[], ["all is well"], ["Traceback"], ['  File "a", line 1, in f']])
def test_without_one_there_is_none(log):
    assert find_stack(log) is None


@pytest.mark.parametrize("lead", ["\t", "    ", "2026-11-28 22:47:06 pay[7]: ", "E "])
def test_what_a_logger_puts_before_each_line_is_left_out(lead):
    """Twisted's begins each line of a message but the first with a tab."""
    log = [
        "2026-11-28 22:47:06+0000 [-] Unhandled Error",
        *(lead + line for line in lines(SIMPLE)),
        lead,
        "on",
    ]
    assert find_stack(log) == find_stack(lines(SIMPLE))


@pytest.mark.parametrize("lead", ["    ", "ERROR: "])
def test_what_stands_before_its_head_alone_is_none_of_the_others(lead):
    assert find_stack(lines(lead + SIMPLE)) == find_stack(lines(SIMPLE))


def test_other_lines_around_it_do_not_matter():
    log = [
        "INFO: before",
        "ERROR:    Exception in ASGI application",
        *lines(SIMPLE),
        "INFO: after",
        '  File "x", line 1, in y',
    ]
    assert find_stack(log) == find_stack(lines(SIMPLE))


@pytest.mark.parametrize("kept", range(1, 7))
def test_one_that_is_cut_off_is_none(kept):
    assert find_stack(lines(SIMPLE)[:kept]) is None


def test_of_two_separate_ones_the_first_counts():
    other = SIMPLE.replace("ZeroDivisionError", "KeyError")
    stack = find_stack([*lines(SIMPLE), "", "INFO: something else", "", "and more", *lines(other)])
    assert stack is not None
    assert stack.exception.startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('cause') from e", "ValueError: cause"),
        ("try:\n  {}['a']\nexcept KeyError:\n  raise ValueError('context')", "ValueError: context"),
        (
            "try:\n  try:\n    {}['a']\n  except KeyError:\n    1/0\nexcept ZeroDivisionError:\n  raise OSError('third')",
            "OSError: third",
        ),
        ("try:\n  {}['a']\nexcept KeyError:\n  raise ValueError('alone') from None", "ValueError: alone"),
    ],
)
def test_of_chained_ones_the_last_counts_since_it_came_out(code, exception):
    stack = find_stack(printed_by(code))
    assert stack is not None
    assert stack.exception == exception


def test_recursion_that_is_summed_up_is_one_stack():
    stack = find_stack(printed_by("def f(): f()\nf()"))
    assert stack is not None
    assert stack.exception.startswith("RecursionError")
    assert any("more times" in line for line in stack.text)


def test_a_syntax_error_has_no_function_in_its_last_frame():
    stack = find_stack(printed_by("compile('1 +', 'x.py', 'exec')"))
    assert stack is not None
    assert stack.exception.startswith("SyntaxError")
    assert stack.frames == [("<string>", 1, "<module>")]


def test_a_message_of_several_lines_gives_its_first():
    stack = find_stack(printed_by("raise ValueError('one\\ntwo')"))
    assert stack is not None
    assert stack.exception == "ValueError: one"


def test_an_exception_without_a_message():
    stack = find_stack(printed_by("raise ValueError"))
    assert stack is not None
    assert stack.exception == "ValueError"


GROUP = """\
def fail(kind):
    raise kind("oh")
def main():
    found = []
    for kind in (ValueError, KeyError):
        try:
            fail(kind)
        except Exception as e:
            found.append(e)
    raise ExceptionGroup("both", found)
main()
"""


def test_of_an_exception_group_the_margins_are_taken_off():
    stack = find_stack(printed_by(GROUP))
    assert stack is not None
    assert stack.exception == "ExceptionGroup: both (2 sub-exceptions)"
    assert [function for _, _, function in stack.frames] == ["<module>", "main"]
    assert not any("|" in line for line in stack.text)


def test_a_log_prefix_with_a_bar_is_no_margin():
    stack = find_stack(
        [
            "app | Traceback (most recent call last):",
            '  File "a.py", line 1, in f',
            "    x | y",
            "TypeError: no",
        ]
    )
    assert stack is not None
    assert stack.frames == [("a.py", 1, "f")]
    assert "    x | y" in stack.text


def test_one_that_is_torn_by_another_is_passed_over():
    """Two threads, or a process killed while it printed and started again."""
    other = SIMPLE.replace("ZeroDivisionError", "KeyError")
    stack = find_stack([*lines(SIMPLE)[:3], *lines(other)])
    assert stack is not None
    assert stack.exception.startswith("KeyError")


def test_a_long_message_does_not_break_the_chain():
    log = printed_by(
        "try:\n  raise ValueError('\\n'.join('abcdef'))\nexcept ValueError:\n  raise OSError('came out')"
    )
    stack = find_stack(log)
    assert stack is not None
    assert stack.exception == "OSError: came out"


@given(
    st.lists(
        st.sampled_from(
            [*lines(SIMPLE), "", "  | x", "During handling of the above exception", "    +-+---"]
        ),
        max_size=14,
    )
)
def test_any_mixture_of_lines_is_read_without_an_error(log):
    stack = find_stack(log)
    assert stack is None or stack.text[0].startswith("Traceback")


@given(st.lists(st.text(max_size=20), max_size=8))
def test_any_text_is_read_without_an_error(log):
    find_stack([*log, *lines(SIMPLE)])
