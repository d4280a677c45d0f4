"""What benchmarks name is still there, and they take the arguments of their smallest form: this is looked at in every run.

That each ends with a table only running it shows, which takes minutes in sum (``make smoke``, ``test_smallest.py``).
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .test_smallest import BENCHMARKS, LEFT_OUT, SMALLEST

# Runs each as far as its arguments are read, and imports the parts that it puts a stopwatch to; in one process, which imports
# Relive once. What it says is one line: {name: what is wrong}.
_LOOK = """
import argparse, importlib, inspect, io, json, re, runpy, sys, traceback
from contextlib import redirect_stderr

folder, wanted = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, folder)

class Parsed(BaseException):
    pass

parse = argparse.ArgumentParser.parse_args
def parse_and_end(*arguments, **options):
    parse(*arguments, **options)
    raise Parsed
argparse.ArgumentParser.parse_args = parse_and_end

def look(name, options):
    path = f"{folder}/{name}.py"
    sys.argv = [path, *options]
    with redirect_stderr(io.StringIO()) as said:
        try:
            runpy.run_path(path, run_name="__main__")
        except Parsed:
            pass
        except SystemExit:
            yield said.getvalue()
        except Exception:
            yield traceback.format_exc()
        else:
            yield "it reads no arguments"
    for where in re.findall(r'"(relive[a-z_.]*:[A-Za-z_.]+)"', open(path).read()):
        module, _, names = where.partition(":")
        try:
            found = importlib.import_module(module)
            for step in names.split("."):
                found = inspect.getattr_static(found, step)
        except (ImportError, AttributeError) as error:
            yield f"{where} is no more: {error}"

print(json.dumps({name: list(look(name, options)) for name, options in wanted.items()}))
"""


@pytest.fixture(scope="module")
def wrong() -> dict[str, list[str]]:
    """Of each benchmark what is wrong with it."""
    names = {path.stem for path in BENCHMARKS.glob("[!_]*.py")} - LEFT_OUT
    wanted = {name: SMALLEST.get(name, "").split() for name in sorted(names)}
    wanted["api"] += ["--home", "/"]  # as its smallest form does
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(BENCHMARKS), json.dumps(wanted)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in BENCHMARKS.glob("[!_]*.py") if path.stem not in LEFT_OUT)
)
def test_it_imports_takes_its_arguments_and_finds_what_it_measures(
    wrong: dict[str, list[str]], name: str
) -> None:
    assert wrong[name] == []
