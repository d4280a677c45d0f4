"""Without root each command answers, or says that it needs root; never that there is nothing where something may not be read.

Of a home of root's, and of one's own in which root was at work: `sudo -E` makes such a one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from server.filled import filled

# Imports as root, since what nobody may read depends on where the interpreter lies; each command becomes nobody in a fork.
WALK = """
import importlib, json, os, pkgutil, signal, sys
import rich._unicode_data, rich.console
import relive
import typer.main
from relive.cli import app

for one in pkgutil.walk_packages(relive.__path__, "relive."):
    if not one.name.startswith(("relive.dashboard", "relive.pytest_plugin")) and not one.name.endswith("__main__"):
        importlib.import_module(one.name)


def commands(command, path=()):
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, (*path, name))


def told(home, words):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writing, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.environ["RELIVE_HOME"] = home
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        signal.alarm(20)  # one that serves was not refused
        sys.argv = ["relive", *words]
        try:
            app.main()
        except SystemExit as end:
            os._exit(end.code)
        os._exit(99)
    os.close(writing)
    with open(reading, "rb") as said:
        text = said.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


found = []
more = json.loads(sys.argv[1])
for path, command in commands(typer.main.get_command(app.application())):
    name = " ".join(path)
    if name not in more["left_out"]:
        needed = ["1" for one in command.params if one.param_type_name == "argument" and one.required]
        has_json = any("--json" in one.opts for one in command.params)
        words = [*path, *["--json"] * has_json, *more["words"].get(name, needed)]
        found += [[name, home, *told(home, words)] for home in more["homes"]]
print(json.dumps(found))
"""
# They look at nothing in a home, and act on none.
LEFT_OUT = ["doctor", "adopt", "release", "podman-args"]
WORDS = {
    "leaks": ["a", "b", "c"],
    "logpoint": ["1", "app.py:88", "1"],
    "bisect": ["--replay", "1"],
    "fixture": ["1", "--output", "/nowhere"],
    "keep": ["1", "--expect", "status == 200"],
    "key trust": ["0" * 64],
    "show": ["incident/1"],
    "token create": ["--name", "mine", "--scope", "read"],
    "kept": ["/etc/hostname"],
    "try": ["1"],
}


def test_each_command_says_that_a_right_is_missing():
    with filled(commits=2, incidents=2) as roots, filled(commits=2, incidents=2) as ones_own:
        os.chown(ones_own.home, 65534, 65534)
        for home in (roots.home, ones_own.home):
            home.chmod(0o755)
        assert all(place.stat().st_mode & 1 for place in roots.home.parents), "nobody could not enter"
        told = {"homes": [str(one.home) for one in (roots, ones_own)], "left_out": LEFT_OUT, "words": WORDS}
        done = subprocess.run(
            [sys.executable, "-c", WALK, json.dumps(told)],
            env=roots.environment | {"RELIVE_FORK_SERVER": "0"},
            capture_output=True,
            text=True,
            cwd="/",
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: list[tuple[str, str, int, str]] = json.loads(done.stdout)
    assert len(found) > 100
    assert [one for one in found if not is_refused(*one)] == []


def is_refused(_name: str, _home: str, status: int, said: str) -> bool:
    """By an error that says so, in JSON where the command has that."""
    code = json.loads(said)["error"]["code"] if said.startswith("{") else "permission-missing"
    return (status, code) == (4, "permission-missing")
