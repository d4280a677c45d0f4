"""Services of Django, aiohttp.web and Celery, as they are run: a failure becomes an incident, and the incident comes again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.waiting import eventually

from .harness import PYTHON, SERVICES, Relive, free_port
from .test_redis import server, start_redis
from .test_replay import ask

UVICORN = ("-m", "uvicorn", "--app-dir", str(SERVICES), "--port", "{port}")
GUNICORN = ("-m", "gunicorn", "--chdir", str(SERVICES), "-b", "127.0.0.1:{port}")
SHOPS = {
    "django-uvicorn-async": ((*UVICORN, "django_shop:asgi"), "/async/pen", "told (django_shop.py:"),
    "django-gunicorn": ((*GUNICORN, "django_shop:wsgi"), "/order/pen", "told (django_shop.py:"),
    "aiohttp": (("{copy}", "{port}"), "/order/pen", "order (aiohttp_shop.py:"),
}


@pytest.mark.parametrize(
    "shop",
    # gunicorn's way to a replay is tests/real/test_gunicorn.py's too
    [pytest.param(shop, marks=[pytest.mark.soak] * (shop == "django-gunicorn")) for shop in SHOPS],
)
def test_a_failing_request_is_an_incident_which_a_replay_reproduces(
    relive: Relive, tmp_path: Path, shop: str
) -> None:
    """GIVEN a service that counts, and so fails at the fourth order
    WHEN the incident is shown and replayed, as is the order before it
    THEN the failing frame is there with its values, and each comes again to the last digit.
    """
    command, path, place = SHOPS[shop]
    changed = changed_copy(SERVICES / "aiohttp_shop.py", tmp_path / "code")
    inner, outer = free_port(), free_port()
    words = [str(PYTHON), *(word.format(port=inner, copy=changed) for word in command)]
    listen = ["--listen", f"127.0.0.1:{outer}", "--upstream", str(inner)]
    relive(
        *("run", "--detach", "--name", "shop", "--every", "start", *listen, "--", *words),
        environment={"SHOP_DB": str(tmp_path / "shop.db")},
    )
    # Not through the proxy: what it cannot hand on would be an incident.
    eventually(lambda: socket.create_connection(("127.0.0.1", inner), 1).close() or True, "it listens")
    eventually(lambda: relive.commits("shop"), "the commit at the start")
    answers = [ask(outer, "GET", path) for _ in range(4)]
    assert [status for status, _ in answers] == [200, 200, 200, 500], answers
    incidents = eventually(lambda: relive.incidents("shop"), "the incident")
    assert len(incidents) == 1, [one["sighting"] for one in incidents]
    (incident,) = incidents
    number = str(incident["number"])
    assert "ValueError: no pen is left for " in incident["sighting"]["summary"]
    shown = relive("show", number)
    assert place in incident["sighting"]["summary"], shown
    text = json.dumps(shown)
    assert '"left": "-1"' in text
    assert '"what": "\'pen\'"' in text
    if "aiohttp" in shop:
        assert shown["package"]["revision"]["dirty"] is True
    else:
        assert "insert into" in text.lower()
    (run,) = relive("replay", "--pace", "fast", number)["runs"]
    assert run["verdict"]["kind"] == "reproduced", run
    assert run["verdict"]["inside"] == [], run
    assert run["outcome"]["misses"] == []


def changed_copy(source: Path, directory: Path) -> Path:
    """A file that was changed since it was committed."""
    directory.mkdir()
    copy = directory / source.name
    copy.write_text(source.read_text())
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "one")):
        subprocess.run(["git", *words], cwd=directory, check=True)
    copy.write_text(f"{source.read_text()}# changed\n")
    return copy


@pytest.mark.skipif(server is None, reason="needs redis-server")
def test_a_failing_task_of_celery_is_an_incident_with_a_debugger_in_it(
    relive: Relive, tmp_path: Path
) -> None:
    """Its pool is of forked processes. The commit holds the failing one; the worker goes on with the next task."""
    _, port = start_redis(relive, tmp_path)
    broker = f"redis://127.0.0.1:{port}/0"
    worker = ("worker", "-c", "2", "-l", "CRITICAL", "--without-gossip", "--without-mingle")
    relive(
        *("run", "--detach", "--name", "worker", "--every", "start", "--"),
        *(str(PYTHON), "-m", "celery", "--workdir", str(SERVICES), "-A", "tasks", *worker),
        environment={"BROKER": broker},
    )
    eventually(lambda: relive.commits("worker"), "the commit at the start")
    assert task(broker, "pen", 3) == "6"
    assert task(broker, "book", 3) == "KeyError('book')"
    (incident,) = eventually(lambda: relive.incidents("worker"), "the incident")
    assert "KeyError: 'book' in price (tasks.py:" in incident["sighting"]["summary"]
    assert incident["at"]
    assert task(broker, "pen", 4) == "8"
    answer: dict[str, Any] = relive("debug", "-c", "p what, count", "-c", "p PRICES", str(incident["number"]))
    assert [one["answer"] for one in answer["answers"]] == ["('book', 3)", "{'pen': 2}"]
    replayed = relive.say("replay", str(incident["number"]))
    assert (replayed.returncode, "relive debug" in replayed.stdout) == (2, True)


def task(broker: str, *given: object) -> str:
    """What becomes of a task that is sent to the worker, by a client of its own."""
    program = (
        "import ast, sys, tasks\n"
        "try: print(tasks.price.delay(*ast.literal_eval(sys.argv[1])).get(timeout=30))\n"
        "except Exception as error: print(repr(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, repr(given)],
        env={"BROKER": broker, "PYTHONPATH": str(SERVICES)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()
