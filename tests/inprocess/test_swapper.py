"""Other code for a living program: changed in place, wherever it is held, and what could not be is said."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from relive_inprocess import relive_swapper
from support.patched import patched


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Program]:
    def make(text: str) -> Program:
        return Program(tmp_path / "program.py", textwrap.dedent(text))

    return make


class Program:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("swapped_program", path)
        assert spec is not None and spec.loader is not None
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules["swapped_program"] = self.module
        spec.loader.exec_module(self.module)

    def swap(self, *changes: tuple[str, str], knows_old: bool = True) -> dict[str, Any]:
        new = self.text
        for before, after in changes:
            assert before in new
            new = new.replace(before, after)
        old = self.text if knows_old else None
        question = {"kind": "swap", "files": [{"path": str(self.path), "old": old, "new": new}]}
        told = json.loads(relive_swapper.answer(json.dumps(question)))
        return told["files"][0] if "files" in told else told


def test_functions_methods_closures_and_decorated_ones_change_wherever_they_are_held(program):
    one = program(
        """
        import functools

        class Proxy:  # of a request that there is none of, as Flask and Celery have them
            __class__ = property(lambda self: self.nothing)

            def __getattr__(self, name):
                raise RuntimeError("Working outside of request context.")

        request = Proxy()

        def logged(function):
            @functools.wraps(function)
            def inner(*words):
                return "old wrapper", function(*words)
            return inner

        @logged
        def decorated():
            return "old"

        def counter(step):
            total = 0
            def count():
                nonlocal total
                total += step
                return total
            return count

        class Shop:
            def price(self):
                return 1
            @property
            def name(self):
                return "old"
            @name.setter
            def name(self, value):
                self.told = ("old", value)
            @staticmethod
            def fixed():
                return "old"
        """
    ).module
    decorated, count, shop = one.decorated, one.counter(1), one.Shop()
    price = shop.price
    assert count() == 1
    told = Program.swap(
        _again(one),
        ('"old wrapper"', '"new wrapper"'),
        ('return "old"', 'return "new"'),
        ('("old", value)', '("new", value)'),
        ("total += step", "total += step * 10"),
        ("return 1", "return 2"),
    )
    shop.name = "x"
    assert (decorated(), count(), price()) == (("new wrapper", "new"), 11, 2)
    assert (shop.name, shop.told, shop.fixed()) == ("new", ("new", "x"), "new")
    assert set(told["swapped"]) == {
        "logged",  # it holds the text of the functions that it makes from now on
        "logged.<locals>.inner",
        "decorated",
        "counter",
        "counter.<locals>.count",
        "Shop.price",
        "Shop.name",
        "Shop.fixed",
    }
    assert told["left"] == []


def _again(module: ModuleType) -> Program:
    made = Program.__new__(Program)
    assert module.__file__ is not None
    made.path, made.module = Path(module.__file__), module
    made.text = made.path.read_text()
    return made


def test_what_is_new_is_brought_in_and_reaches_what_was_there(program):
    one = program(
        """
        from __future__ import annotations

        RATE = 3

        class Ledger:
            def pay(self):
                return "old"

        def ask():
            return RATE
        """
    )
    ledger = one.module.Ledger()
    told = one.swap(
        (
            'return "old"',
            "return self._batch() + helped(1)\n\n    def _batch(self) -> Unknown:\n        return Extra.size",
        ),
        (
            "class Ledger",
            "import math as m\n\nclass Extra:\n    size = 40\n\n"
            "def helped(number: Unknown):\n    return m.floor(number)\n\nclass Ledger",
        ),
        ("RATE = 3", "RATE = 4"),
    )
    assert (ledger.pay(), one.module.ask()) == (41, 4)
    assert told["added"] == ["m", "Extra", "helped", "Ledger._batch"]
    assert told["swapped"] == ["Ledger.pay", "RATE"] and told["left"] == []


def test_what_cannot_be_swapped_is_said_and_left_as_it_was(program):
    one = program(
        """
        import dataclasses

        seen = []
        LIMIT = 5

        def outer(word):
            def inner():
                return word
            return inner

        def decorate(function):
            return function

        def plain():
            return 1

        def steps():
            yield 1
            yield 2

        @dataclasses.dataclass
        class Point:
            x: int = 1

        for number in range(2):
            seen.append(number)
        """
    )
    inner, going = one.module.outer("old"), one.module.steps()
    assert next(going) == 1
    one.module.LIMIT = 9  # the program has changed it: it is state
    told = one.swap(
        ("def inner():\n        return word", "other = 1\n    def inner():\n        return word, other"),
        ("def plain", "@decorate\ndef plain"),
        ("yield 2", "yield 3"),
        ("x: int = 1", "x: int = 1\n    y: int = 2"),
        ("seen.append(number)", "seen.append(number + 1)"),
        ("LIMIT = 5", "LIMIT = 6"),
    )
    assert inner() == "old" and next(going) == 2 and one.module.LIMIT == 9
    assert one.module.outer("new")() == ("new", 1)
    why = {entry["name"]: entry["why"] for entry in told["left"]}
    assert "takes other, word from around it" in why["outer.<locals>.inner"]
    assert "decorators" in why["plain"]
    assert len([name for name in why if name.startswith("Point.line")]) == 1
    assert sum("is not run again" in text for text in why.values()) == 3
    assert any("steps is being run" in note for note in told["notes"])


def test_literal_defaults_change_and_computed_ones_stay(program):
    one = program(
        """
        import time

        def paced(limit=3, *, name="old", at=time.time()):
            return limit, name

        def kept(found=[]):
            found.append(1)
            return found
        """
    )
    began = one.module.paced.__kwdefaults__["at"]
    one.module.kept()
    told = one.swap(("limit=3", "limit=4"), ('"old"', '"new"'), ("found.append(1)", "found.append(2)"))
    assert one.module.paced() == (4, "new") and one.module.paced.__kwdefaults__["at"] == began
    assert one.module.kept() == [1, 2]
    assert told["swapped"] == ["kept", "paced"]
    told = one.swap(("limit=3", "limit=3, most=time.time()"))
    assert "computed when it is defined" in told["left"][0]["why"]


def test_without_the_old_text_the_living_code_itself_is_compared(program):
    one = program("STATE = 1\ndef same():\n    return 1\n\ndef other():\n    return 1\n")
    one.module.STATE = 7
    told = one.swap(("def other():\n    return 1", "\n\ndef other():\n    return 2"), knows_old=False)
    assert told["swapped"] == ["other"] and told["left"] == []
    assert one.module.other() == 2 and one.module.STATE == 7
    assert one.module.other.__code__.co_firstlineno == 7, "tracebacks name the new lines"


def test_a_text_that_does_not_compile_changes_nothing(program):
    one = program("def same():\n    return 1\n")
    assert "same" not in one.swap(("return 1", "return ("))
    assert "program.py" in one.swap(("return 1", "return ("))["refused"]
    assert one.module.same() == 1


def test_a_file_that_is_not_loaded_is_said_to_be_so(tmp_path: Path) -> None:
    question = {"kind": "swap", "files": [{"path": str(tmp_path / "nobody.py"), "old": None, "new": "x = 1"}]}
    (told,) = json.loads(relive_swapper.answer(json.dumps(question)))["files"]
    assert told["loaded"] is False and told["swapped"] == []
    assert "failed" in json.loads(relive_swapper.answer("{}"))


def test_the_files_of_loaded_modules_are_told(program):
    one = program("x = 1\n")
    told = json.loads(relive_swapper.answer('{"kind": "files"}'))
    assert told["files"][str(one.path.resolve())] == "swapped_program"
    assert told["version"] == list(sys.version_info[:3])


def test_the_fix_of_the_payments_example_cures_a_ledger_that_lives_with_the_old_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its race is forced: the account of a batch that was closed is kept. Only other code helps then, or a restart."""
    example = Path(__file__).parents[2] / "examples" / "payments"
    spec = importlib.util.spec_from_file_location("swapped_ledger", example / "ledger.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "swapped_ledger", module)
    spec.loader.exec_module(module)
    ledger = module.Ledger(tmp_path / "payments.db")
    account = ledger.account(1)
    ledger.close(ledger._open_batches[account.batch_id])
    ledger._accounts[1] = account
    with pytest.raises(KeyError):
        ledger.pay(1, 100, "refused")
    new = (patched(example, tmp_path / "fixed") / "ledger.py").read_text()
    old = (example / "ledger.py").read_text()
    question = {"kind": "swap", "files": [{"path": str(example / "ledger.py"), "old": old, "new": new}]}
    (told,) = json.loads(relive_swapper.answer(json.dumps(question)))["files"]
    assert told["swapped"] == ["Ledger.account", "Ledger.pay"]
    assert told["added"] == ["Ledger._open_batch"] and told["left"] == []
    assert ledger.pay(1, 100, "taken").amount == 100


def test_a_new_method_has_the_private_names_of_its_class(program):
    one = program(
        """
        class Shop:
            def __init__(self):
                self.__price = 3
            def price(self):
                return 1
        """
    )
    shop = one.module.Shop()
    told = one.swap(
        ("return 1", "return self.__doubled()\n    def __doubled(self):\n        return 2 * self.__price"),
    )
    assert shop.price() == 6
    assert told["left"] == []


def test_lambdas_of_one_name_that_change_places_are_left(program):
    one = program("f = lambda x: x\ng = lambda x: x * 2\n")
    told = one.swap(("f = lambda x: x\ng = lambda x: x * 2\n", "g = lambda x: x * 2\nf = lambda x: x\n"))
    assert (one.module.f(3), one.module.g(3)) == (3, 6)
    assert [left["name"] for left in told["left"]] == ["<lambda>"]


def test_a_statement_that_is_gone_is_said(program):
    one = program("""
        seen = []
        seen.append(1)
        """)
    (left,) = one.swap(("seen.append(1)\n", ""))["left"]
    assert "is gone from the file; what it did stays" in left["why"]


def set_there(*statements: str, module: str | None = "swapped_program") -> dict[str, Any]:
    question = {"kind": "set", "statements": list(statements), "module": module}
    told: dict[str, Any] = json.loads(relive_swapper.answer(json.dumps(question)))
    return told


def test_values_are_set_where_they_are_held(program):
    one = program("cache = {'a': 1}\nLIMIT = 5\nother = cache\n")
    assert set_there("cache['a'] = None", "LIMIT += 1", "cache.update(b=LIMIT)") == {}
    assert one.module.cache == {"a": None, "b": 6} and one.module.other is one.module.cache
    assert set_there("swapped_program.LIMIT = 7", module=None) == {}
    assert one.module.LIMIT == 7
    assert set_there("del LIMIT") == {} and not hasattr(one.module, "LIMIT")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("cache[", "SyntaxError"),
        ("cach = 1", "NameError: there is no name 'cach' that could be set"),
        ("cache['b'] + 1", "KeyError: 'b'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_what_cannot_be_set_is_told(program, statement: str, told: str):
    program("cache = {'a': 1}\n")
    assert told in set_there(statement)["raised"]


def test_names_of_a_module_that_is_not_there_are_told():
    assert set_there("a = 1", module="nobody.there") == {
        "raised": "there is no module 'nobody.there' in the process"
    }
