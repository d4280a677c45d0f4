"""Stacks of other languages, as their run-time systems print them."""

from __future__ import annotations

import subprocess

import pytest

from relive.model.stack import find_stacks, last_stack

PRINTED = {
    "Go": (
        """\
http: panic serving 127.0.0.1:41234: runtime error: index out of range [5] with length 3
goroutine 7 [running]:
net/http.(*conn).serve.func1()
\t/usr/lib/go/src/net/http/server.go:1850 +0xbf
main.price(...)
\t/srv/main.go:12
main.handle({0x7f, 0xc0}, 0xc1)
\t/srv/main.go:30 +0x1d
""",
        "panic: runtime error: index out of range [5] with length 3",
        [
            ("/srv/main.go", 30, "main.handle"),
            ("/srv/main.go", 12, "main.price"),
            ("/usr/lib/go/src/net/http/server.go", 1850, "net/http.(*conn).serve.func1"),
        ],
    ),
    "Python's faulthandler": (
        """\
Fatal Python error: Segmentation fault

Thread 0x00007fe9a6f206c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 975 in run

Current thread 0x00007fe9a7217040 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/srv/price.py", line 3 in price
  File "/run/relive/inprocess/relive_recorder/lanes.py", line 53 in bootstrap_in_lane

Extension modules: _rates (total: 1)
""",
        "Fatal Python error: Segmentation fault",
        [("/srv/price.py", 3, "price"), ("/usr/lib/python3.11/ctypes/__init__.py", 519, "string_at")],
    ),
    "PHP": (
        """\
[22-Nov-2026] PHP Fatal error:  Uncaught TypeError: no rate in /srv/price.php:12
Stack trace:
#0 /srv/index.php(30): price('EUR')
#1 {main}
  thrown in /srv/price.php on line 12
""",
        "TypeError: no rate",
        [("", 0, "{main}"), ("/srv/index.php", 30, "price('EUR')"), ("/srv/price.php", 12, "")],
    ),
    "PHP, as a logger writes it": (
        """\
ERROR shop RuntimeException: no rate in /srv/price.php:12
Stack trace:
#0 /srv/index.php(30): price('EUR')
#1 {main}
""",
        "RuntimeException: no rate",
        [("", 0, "{main}"), ("/srv/index.php", 30, "price('EUR')"), ("/srv/price.php", 12, "")],
    ),
    "a message of PHP": (
        'PHP Warning:  Undefined array key "EUR" in /srv/price.php on line 3',
        'PHP Warning:  Undefined array key "EUR"',
        [("/srv/price.php", 3, "")],
    ),
    "Ruby": (
        """\
/srv/app.rb:12:in `price': undefined method `[]' for nil (NoMethodError)
\tfrom /srv/app.rb:30:in `<main>'
""",
        "NoMethodError: undefined method `[]' for nil",
        [("/srv/app.rb", 30, "<main>"), ("/srv/app.rb", 12, "price")],
    ),
    "Ruby, as WEBrick writes it": (
        """\
[2026-11-23 17:13:16] ERROR TypeError: nil can't be coerced into Integer
\tloans.rb:7:in `*'
\tloans.rb:7:in `block in <main>'
""",
        "TypeError: nil can't be coerced into Integer",
        [("loans.rb", 7, "block in <main>"), ("loans.rb", 7, "*")],
    ),
    "Ruby, as its logger writes it": (
        """\
E, [2026-11-23T17:13:16.524 #12]  ERROR -- : key not found: "USD" (KeyError)
/srv/loans.rb:7:in 'Hash#fetch'
""",
        'KeyError: E, [2026-11-23T17:13:16.524 #12]  ERROR -- : key not found: "USD"',
        [("/srv/loans.rb", 7, "Hash#fetch")],
    ),
    "Ruby, as Rails writes it": (
        """\
NoMethodError (undefined method `[]' for nil):

app/models/loan.rb:3:in `total'
""",
        "NoMethodError: undefined method `[]' for nil",
        [("app/models/loan.rb", 3, "total")],
    ),
    "Ruby, as Puma writes it": (
        """\
2026-11-23 17:13:16 +0000 Rack app ("GET /total" - (127.0.0.1)): #<Loans::Unknown: no rate>
loans.rb:7:in `total'
""",
        "Loans::Unknown: no rate",
        [("loans.rb", 7, "total")],
    ),
    ".NET": (
        """\
Unhandled exception. System.NullReferenceException: Object reference not set
   at Shop.Price(String c) in /srv/Shop.cs:line 12
   at Shop.Main()
""",
        "System.NullReferenceException: Object reference not set",
        [("", 0, "Shop.Main"), ("/srv/Shop.cs", 12, "Shop.Price(String c)")],
    ),
    "Rust": (
        "thread 'main' panicked at src/main.rs:4:9:\nno rate\nnote: run with `RUST_BACKTRACE=1`",
        "no rate",
        [("src/main.rs", 4, "")],
    ),
    "Java with a cause": (
        """\
java.lang.RuntimeException: outer
\tat E.main(E.java:2)
Caused by: java.lang.NullPointerException: no rate
\tat E.price(E.java:1)
\t... 1 more
""",
        "java.lang.NullPointerException: no rate",
        [("E.java", 1, "E.price")],
    ),
    "V8 without heap": (
        """\
FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory
----- Native stack trace -----

 1: 0xb78db3 node::OOMErrorHandler(char const*, v8::OOMDetails const&) [node]
 4: 0x10fb205  [node]
""",
        "Reached heap limit Allocation failed - JavaScript heap out of memory",
        [],
    ),
    "V8 with properties": (
        """\
Error: connect ECONNREFUSED 127.0.0.1:5
    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1611:16) {
  errno: -111,
}
""",
        "Error: connect ECONNREFUSED 127.0.0.1:5",
        [("node:net", 1611, "TCPConnectWrap.afterConnect [as oncomplete]")],
    ),
}


@pytest.mark.parametrize("form", PRINTED)
def test_the_exception_and_its_frames_innermost_last(form):
    text, exception, frames = PRINTED[form]
    (stack,) = find_stacks(["before", *text.splitlines(), "after"])
    assert stack.exception == exception
    assert stack.frames == frames


def printed_by(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stderr.splitlines()


def test_what_node_prints_of_an_error_and_of_one_that_nobody_catches():
    code = "function f(x) { return x.y }; try { f(null) } catch (e) { console.error('oh', e) }; f(null)"
    stacks = find_stacks(printed_by("node", "-e", code))
    assert len(stacks) == 2
    for stack in stacks:
        assert stack.exception.startswith("TypeError: Cannot read properties of null")
        assert stack.frames[-1] == ("[eval]", 1, "f")


def test_what_perl_prints():
    stack = last_stack(printed_by("perl", "-e", "warn 'oh'; die 'no rate for 17'"))
    assert stack is not None
    assert (stack.exception, stack.frames) == ("no rate for 17", [("-e", 1, "")])


@pytest.mark.parametrize(
    "line",
    ["all is well", "  at noon", "panic: but no goroutine", "#0 nothing", "Caused by: nobody", "a in b:3"],
)
def test_lines_that_only_look_alike_are_none(line):
    assert find_stacks(["begin", line, "end"]) == []


def test_stacks_of_several_languages_come_in_their_order():
    python = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "KeyError: 1"]
    node = ["TypeError: oh", "    at price (/srv/app.js:1:2)"]
    assert [stack.exception for stack in find_stacks([*node, *python, *node])] == [
        "TypeError: oh",
        "KeyError: 1",
        "TypeError: oh",
    ]


@pytest.mark.parametrize("text", ["Warning: ", "a(", "at ", "Error", "x at y line "])
def test_a_hostile_log_is_read_in_linear_time(text):
    """256 KiB on one line; without a bound, a pattern would take minutes over it."""
    assert len(find_stacks([text * ((1 << 18) // len(text)), "    at f (g:1)"])) == 1


@pytest.mark.parametrize(
    "line", ["  ... 1 more", "Error" * 204, "  at noon", "Traceback (most recent call last):"]
)
def test_a_hostile_line_again_and_again_is_read_in_linear_time(line):
    """128 KiB, as much as is read of a log for each failure: it took 25 s of lines that stand for more frames."""
    lines = [line] * ((128 << 10) // len(line))
    assert find_stacks(lines) == []
    assert find_stacks([*lines, "Error: x", "    at f (g:1)"])[-1].exception == "Error: x"


def test_a_word_that_names_error_after_error_is_read_in_linear_time():
    heads = ["Error" * 200 + "(", "    at f (g:1)"] * 100
    assert len(find_stacks(heads)) == 100


@pytest.mark.parametrize(
    ("head", "exception"),
    [
        ("12:00 a.b.IOErrors: x", "a.b.IOErrors: x"),
        ("Error.of: x, KeyError", "KeyError"),
        ("$MyException", "$MyException"),
        ("a.Error$Inner: no FooFailure", "FooFailure"),
    ],
)
def test_the_type_is_the_last_part_of_a_dotted_word(head, exception):
    assert find_stacks([head, "    at f (g:1)"])[0].exception == exception


def test_a_cause_all_of_whose_frames_were_printed_before_ends_behind_them():
    lines = ["a.AError: x", "\tat f(A.java:1)", "Caused by: a.BError: y", "\t... 3 more", "end"]
    found = find_stacks(lines)
    assert [(one.exception, one.frames, one.text) for one in found] == [
        ("a.BError: y", [("A.java", 1, "f")], lines[:4])
    ]
