"""A living program followed line by line: in a process of its own each time, since all of its threads are."""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relive.inspection.python.program_text import program_text
from relive_inprocess import relive_stepper
from support.waiting import LIMIT

from .conftest import PYTHONS

FOLLOWED = {version: path for version, path in PYTHONS.items() if version != "3.8"}

_BEGIN = """
import json, os, queue, sys, threading, types
relive_stepper = types.ModuleType("relive_stepper")
with open({sent!r}) as file:
    exec(compile(file.read(), "<relive>", "exec"), vars(relive_stepper))

def follow(points=(), watch=None, most=1000, session=None):
    points = [dict({{"when": None, "file": "program.py"}}, **one) for one in points]
    question = dict(points=points, watch=watch, most=most, bytes=1 << 20, session=session)
    return json.loads(relive_stepper.answer(json.dumps(question)))

# Of a text, so that they are not among the lines of the program that a debugger stops at.
exec('''
def debug(*commands, pid=0):
    # What it is going to be told at its stops waits in the pipe.
    stops = dict(breakpoints=[], watches=[])
    begin, *rest = [dict(stops, do="go", target=dict(how="step")) if one == "step" else one for one in commands]
    told = follow(session=dict(begin, request=0, pid=pid))
    pipe = os.open("/proc/self/fd/%d" % told["commands"], os.O_WRONLY)
    for one in rest + [dict(stops, do="go", target=dict(how="end"))]:
        os.write(pipe, json.dumps(one).encode() + b"\\\\n")
    return told

def answers(told):
    # The positions of the last line and of the one that raised last; what was said.
    sys.settrace(None)
    pipe = os.open("/proc/self/fd/%d" % told["replies"], os.O_RDONLY | os.O_NONBLOCK)
    try:
        said = [json.loads(one) for one in os.read(pipe, 1 << 16).splitlines()]
    except BlockingIOError:
        said = []
    came = [int.from_bytes(os.pread(told["out"], 8, at), "little") for at in (16, 24)]
    print(json.dumps([came, said]))
''')

def tell(told):
    sys.settrace(None)
    records = [] if "out" not in told else os.pread(told["out"], 1 << 20, 32).decode().splitlines()
    print(json.dumps([told, [json.loads(one) for one in records]]))
"""


# The way into threads that are there is another one from 3.12 on.
@pytest.fixture(params=FOLLOWED.values(), ids=FOLLOWED.keys())
def followed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[str], tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Runs a program whose last word is ``tell(...)``; ``LINE`` in it is the number of the line marked ``# here``."""

    def run(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        sent = tmp_path / "sent"
        sent.write_text(program_text(relive_stepper))
        whole = _BEGIN.format(sent=str(sent)) + textwrap.dedent(text)
        line = next((n for n, one in enumerate(whole.splitlines(), 1) if "# here" in one), 0)
        program = tmp_path / "program.py"
        program.write_text(whole.replace("LINE", str(line)))
        done = subprocess.run(
            [request.param, str(program)], capture_output=True, text=True, check=False, timeout=LIMIT
        )
        assert done.returncode == 0, done.stderr
        told, records = json.loads(done.stdout)
        return told, records

    return run


def values(record: dict[str, Any]) -> list[str]:
    return [one["text"] for one in record["values"]]


def test_expressions_are_evaluated_before_a_line_each_time_it_is_reached(followed):
    told, hits = followed(
        """
        def add(numbers):
            total = 0
            for one in numbers:
                total += one  # here
            return total

        # A library's file, and one of the recorder, may be called as one of the service.
        for directory in ("/venv/site-packages/lib", "/run/relive/inprocess/relive_recorder"):
            exec(compile("def other():\\n    pass\\n", directory + "/program.py", "exec"))
        told = follow([{"line": LINE, "expressions": ["total", "[total for _ in numbers]"], "when": "one > 1"}])
        add([1, 2, 3])
        tell(told)
        """
    )
    assert told["points"][0]["source"].startswith("total += one")
    assert [values(one) for one in hits] == [["1", "[1, 1, 1]"], ["3", "[3, 3, 3]"]]
    assert {one["function"] for one in hits} == {"add"}
    assert hits[0]["position"] < hits[1]["position"]


def test_threads_that_waited_before_are_followed_and_those_that_come(followed):
    _, hits = followed(
        """
        asked, answered = queue.Queue(), queue.Queue()

        def twice(number):
            answered.put(2 * number)  # here

        def work():
            while True:
                function, number = asked.get()
                function(number)

        threading.Thread(target=work, daemon=True).start()
        asked.put((twice, 1)); answered.get()
        told = follow([{"line": LINE, "expressions": ["number"]}])
        asked.put((twice, 2)); answered.get()
        threading.Thread(target=twice, args=[3]).start(); answered.get()
        twice(4)
        tell(told)
        """
    )
    assert [values(one) for one in hits] == [["2"], ["3"], ["4"]]


def test_coroutines_that_take_turns_are_followed_each(followed):
    _, hits = followed(
        """
        import asyncio

        async def wait(name):
            for turn in range(2):
                await asyncio.sleep(0)
                name, turn  # here

        async def main():
            await asyncio.gather(wait("a"), wait("b"))

        told = follow([{"line": LINE, "expressions": ["name + str(turn)"]}])
        asyncio.run(main())
        tell(told)
        """
    )
    assert [values(one) for one in hits] == [["'a0'"], ["'b0'"], ["'a1'"], ["'b1'"]]


def test_what_an_expression_raises_is_told_and_the_program_goes_on(followed):
    _, hits = followed(
        """
        class Shy:
            def __repr__(self):
                raise SystemExit(3)

        def do(shy):
            return 1  # here

        told = follow([{"line": LINE, "expressions": ["1 / 0", "exit()", "shy", "len('ab')"]}])
        assert do(Shy()) == 1
        tell(told)
        """
    )
    raised = [one["raised"] for one in hits[0]["values"]]
    assert raised == [True, True, False, False]
    assert values(hits[0])[0] == "ZeroDivisionError: division by zero"
    assert "whose representation raises SystemExit" in values(hits[0])[2]


def test_more_records_than_are_wanted_are_counted_no_further(followed):
    _, records = followed(
        """
        def count():
            for number in range(50):
                number + 1  # here

        told = follow([{"line": LINE, "expressions": ["number"]}], most=3)
        count()
        tell(told)
        """
    )
    assert [one["kind"] for one in records] == ["hit", "hit", "hit", "full"]


@pytest.mark.parametrize(
    ("point", "what", "why"),
    [
        ({"line": 0, "expressions": ["1 +"]}, "is no expression", "SyntaxError"),
        ({"line": -1, "expressions": ["1"]}, "no function of the service has code in line", "near it"),
        ({"line": 0, "file": "other.py", "expressions": ["1"]}, "a file other.py", "program.py"),
    ],
)
def test_a_place_that_is_none_is_refused(followed, point, what, why):
    told, _ = followed(
        f"""
        def one():
            # Nothing can run in this line.
            return 1  # here

        point = {point!r}
        tell(follow([dict(point, line=LINE + point["line"])]))
        """
    )
    assert what in told["refused"]["what"] and why in told["refused"]["why"]


def test_the_line_that_wrote_a_value_is_named_also_where_it_is_the_last_of_its_function(followed):
    told, writes = followed(
        """
        CACHE = {}

        class Rate:
            def __init__(self):
                self.factor = 1

        def made():
            return Rate()

        def put():
            CACHE["rate"] = made()

        def spoil():
            CACHE["rate"].factor = None

        def drop():
            CACHE.clear()

        watch = {"expression": "CACHE['rate'].factor", "module": None}
        told = follow(watch=watch)
        put(); spoil(); drop()
        tell(told)
        """
    )
    assert told["first"] == "raises KeyError: 'rate'"
    assert [(one["place"]["function"], one["after"]) for one in writes] == [
        ("put", "1"),
        ("spoil", "None"),
        ("drop", "raises KeyError: 'rate'"),
    ]
    assert [one["place"]["source"] for one in writes] == [
        'CACHE["rate"] = made()',
        'CACHE["rate"].factor = None',
        "CACHE.clear()",
    ]


def test_a_library_that_wrote_within_a_line_counts_as_that_line(followed):
    _, writes = followed(
        """
        import heapq
        HEAP = []

        def push():
            heapq.heappush(HEAP, 3)
            return len(HEAP)

        told = follow(watch={"expression": "HEAP", "module": "__main__"})
        push()
        tell(told)
        """
    )
    assert [(one["before"], one["after"], one["place"]["source"]) for one in writes] == [
        ("[]", "[3]", "heapq.heappush(HEAP, 3)")
    ]


def test_a_thread_that_waits_outside_of_the_watched_code_is_not_in_the_middle_of_a_line(followed):
    _, writes = followed(
        """
        import sched
        SEEN = {}
        loop = sched.scheduler()
        ready, began, handled, ended = (threading.Event() for _ in range(4))

        def handle():
            SEEN["one"] = 1

        def work():
            loop.run()  # as a server does: its callbacks are the service's own, and between them it waits in a library

        def spoil():
            SEEN["one"] = None

        for number, callback in enumerate([ready.set, began.wait, handle, handled.set, ended.wait]):
            loop.enter(0, number, callback)
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        told = follow(watch={"expression": "SEEN.get('one')", "module": None})
        began.set()
        handled.wait()
        spoil()
        ended.set()
        thread.join()
        tell(told)
        """
    )
    assert [one["after"] for one in writes] == ["1", "None"]
    assert writes[1]["place"]["source"] == 'SEEN["one"] = None'
    assert writes[1]["others"] == []


def test_the_script_that_begins_an_installed_program_is_not_the_services_own(followed):
    told, _ = followed(
        """
        def is_own(file, defined):
            main = types.ModuleType("__main__")
            main.__file__ = file
            exec(defined, vars(main))
            kept, sys.modules["__main__"] = sys.modules["__main__"], main
            try:
                return relive_stepper.is_own(file)
            finally:
                sys.modules["__main__"] = kept

        print(json.dumps([[
            is_own("/srv/venv/bin/uvicorn", "from json import dumps"),
            is_own("/srv/bin/serve", "def main(): pass"),
            is_own("/srv/bin/serve.py", "from json import dumps"),
        ], []]))
        """
    )
    assert told == [False, True, True]


def test_a_debugger_unfolds_what_values_hold_and_does_not_count_frames_of_the_recorder(followed):
    _, said = followed(
        """
        class Order:
            def __init__(self):
                self.items, self.odd = {"tea": [1], (1, 2): 3}, frozenset([7])

        RATES = {"CHF": None}

        def handle(order):
            return order

        exec(compile("def through(f, x):\\n    return f(x)\\n", "/run/relive/inprocess/relive_recorder/lanes.py", "exec"))
        ask = dict(do="children", frame=0, scope=None, most=9)
        asked = [dict(ask, expression=one) for one in ("order", "(order).items", "order.odd", "order.nope")]
        asked += [dict(ask, scope="globals", most=999), dict(do="stack", most=9)]
        given = Order()
        told = debug("step", "step", *asked)
        through(handle, given)
        answers(told)
        """
    )
    stop, order, items, odd, refused, names, stack = said[1:]
    assert stop["source"] == "return order"
    assert [(one[0], *one[3:]) for one in order["values"]] == [
        ("items", "(order).items", True),
        ("odd", "(order).odd", True),
    ]
    assert [(one[0], one[3]) for one in items["values"]] == [
        ("'tea'", "((order).items)['tea']"),
        ("(1, 2)", None),
    ]
    assert [one[:1] + one[2:] for one in odd["values"]] == [["0", "7", None, False]]
    assert "cannot be looked into" in refused["refused"]["what"]
    rates = next(one for one in names["values"] if one[0] == "RATES")
    assert rates == ["RATES", "dict", "{'CHF': None}", "RATES", True] and names["module"] == "__main__"
    assert [one["function"].rpartition(".")[2] for one in stack["frames"]] == ["handle", "<module>"]


def test_a_name_of_another_module_is_refused_with_the_module(followed):
    told, _ = followed(
        """
        other = types.ModuleType("shop")
        other.__file__, other.RATES = "/srv/shop.py", {}
        sys.modules["shop"] = other
        told = follow(watch={"expression": "RATES['CHF']", "module": None})
        tell(told)
        """
    )
    assert "write shop.RATES" in told["refused"]["remedy"]


def test_a_line_that_writes_after_a_call_keeps_its_position(followed):
    _, writes = followed(
        """
        SEEN = []

        def three():
            one = 1
            two = 2
            return one + two

        def handle():
            SEEN.append(three())

        told = follow(watch={"expression": "SEEN", "module": None})
        handle()
        tell(told)
        """
    )
    (write,) = writes
    assert (write["place"]["source"], write["place"]["position"]) == ("SEEN.append(three())", 2)


@pytest.mark.parametrize(
    ("watch", "what"),
    [
        ({"expression": "NOBODY", "module": None}, "cannot be evaluated"),
        ({"expression": "sys", "module": "nobody"}, "there is no module 'nobody'"),
    ],
)
def test_a_name_that_nobody_has_is_refused(followed, watch, what):
    told, _ = followed(f"tell(follow(watch={watch!r}))")
    assert what in told["refused"]["what"]


def test_a_debugger_steps_through_generators_and_exceptions_that_are_caught_and_raised_again(followed):
    (last, raised), stops = followed(
        """
        def numbers():
            for one in (1, 2):
                yield one

        def failing():
            try:
                int("no")
            except ValueError:
                raise KeyError("again")

        def handle():
            total = 0
            for one in numbers():
                total += one
            try:
                failing()
            except KeyError:
                total += 10
            return total

        told = debug(*["step"] * 40)
        assert handle() == 13
        answers(told)
        """
    )
    sources = [one["source"] for one in stops]
    in_loop = ["for one in (1, 2):", "yield one", "total += one", "for one in numbers():"]
    assert sources[1:7] == ["total = 0", "for one in numbers():", *in_loop]
    assert [one["function"] for one in stops][3:6] == ["numbers", "numbers", "handle"]
    assert [one["position"] for one in stops] == list(range(1, len(stops) + 1))
    assert sources[raised - 1] == 'raise KeyError("again")'
    assert sources[-3:] == ["total += 10", "return total", "answers(told)"]
    assert len(stops) == last


def test_a_debugger_sees_locals_and_what_cannot_be_compiled_harms_nothing(followed):
    _, said = followed(
        """
        def handle(given):
            return given + 1

        deep = "-" * 15000 + "1"
        asked = [dict(do="children", frame=0, scope="locals", most=9), dict(do="evaluate", frame=0, expression=deep)]
        asked += [dict(do="check", expression=one, is_watched=True) for one in ("NOBODY", "os.sep")]
        spoilt = dict(do="go", target=dict(how="step"), watches=[], breakpoints=[dict(file="x", line=1, when=deep)])
        told = debug("step", "step", *asked, spoilt, dict(do="evaluate", frame=0, expression="given"))
        assert handle(4) == 5
        answers(told)
        """
    )
    _, stop, seen, refused, unknown, known, spoilt, value = said
    assert stop["source"] == "return given + 1" and seen["values"] == [["given", "int", "4", "given", False]]
    assert "is no expression" in refused["refused"]["what"] == spoilt["refused"]["what"]
    assert "cannot be evaluated" in unknown["refused"]["what"] and known == {}
    assert value["text"] == "4"


def test_a_debugger_of_another_process_s_request_stops_nowhere(followed):
    """Two workers give their requests the same numbers."""
    came, said = followed(
        """
        def handle():
            return 1

        told = debug("step", pid=os.getppid())
        handle()
        answers(told)
        """
    )
    assert came == [0, 0] and said == []
